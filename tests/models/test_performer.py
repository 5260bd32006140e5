"""Performer's kernels."""

import pytest
import torch

from models.attention.performer import Performer


def performer(**options):
    torch.manual_seed(0)
    return Performer(16, 2, pattern="noncausal_self", max_length=32, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "cosine"}, "one of exp, relu, not cosine"),
        ({"features": None}, "set features, or kernel=relu"),
        ({"features": 0}, "features >= 1, not 0"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        performer(**options)


def test_relu_without_directions_has_nothing_random():
    assert "directions" not in performer(kernel="relu", features=None).state_dict()
    assert performer(kernel="relu", features=24).directions.shape == (2, 24, 8)


def test_queries_that_match_no_key_see_the_mean():
    """Where all features are at the floor of 1e-3, weights are equal."""
    model = performer(kernel="relu", features=None).double().eval()
    with torch.no_grad():
        for linear in (model.q_proj, model.k_proj):
            linear.weight.zero_()
            linear.bias.fill_(-1.0)
    x = torch.randn(1, 7, 16, dtype=torch.double)
    y = model(x)[0]
    expected = model.out_proj(model.v_proj(x).mean(1, keepdim=True)).expand_as(y)
    torch.testing.assert_close(y, expected)
