"""Performer's kernels."""

import torch

from models.attention.performer import Performer


def performer(**options):
    torch.manual_seed(0)
    return Performer(16, 2, pattern="noncausal_self", max_length=32, **options)


def test_skyformers_kernel_is_nearer_to_the_mean():
    """Its logits are q'k / E, as for attention of queries and keys that are scaled by E^-1/4 each."""
    x = torch.randn(1, 9, 16, generator=torch.Generator().manual_seed(1))
    published, shorter = performer(skyformer_compat=True, features=64), performer(features=64)
    with torch.no_grad():
        for linear in (shorter.q_proj, shorter.k_proj):
            linear.weight *= shorter.head_dim**-0.25
    torch.testing.assert_close(published(x)[0], shorter(x)[0])
    assert not torch.allclose(published(x)[0], performer(features=64)(x)[0], atol=1e-3)


def test_relu_without_directions_has_nothing_random():
    assert "directions" not in performer(kernel="relu", features=None).state_dict()
    assert performer(kernel="relu", features=24).directions.shape == (2, 24, 8)


def test_queries_that_match_no_key_see_the_mean():
    """If all features are at the floor of 1e-3, weights are equal."""
    model = performer(kernel="relu", features=None).double().eval()
    with torch.no_grad():
        for linear in (model.q_proj, model.k_proj):
            linear.weight.zero_()
            linear.bias.fill_(-1.0)
    x = torch.randn(1, 7, 16, dtype=torch.double)
    y = model(x)[0]
    expected = model.out_proj(model.v_proj(x).mean(1, keepdim=True)).expand_as(y)
    torch.testing.assert_close(y, expected)
