"""Skyformer against the public code, given its sample, and the sample itself."""

import pytest
import torch
from golden import check, golden, leaves_of, needs_golden

from models.attention.skyformer import Skyformer, skyformer, tokens_at


@needs_golden
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equals_the_public_code(dtype):
    meta, arrays = golden("skyformer_ns_n48")
    leaves, padding = leaves_of(arrays, "qkv", dtype), ~arrays["mask"]
    q = leaves["q"].masked_fill(padding[:, None, :, None], 0.0)  # as the public code sets padded queries
    sample = arrays["index"].long() % meta["hyper"]["n"]  # there, key indices follow the query indices
    y = skyformer(q, *(leaves[x] for x in "kv"), sample, key_padding_mask=padding, batch_init=True)
    # gradients of zeroed entries are zero there
    check(meta, arrays, y, leaves, where=arrays["mask"][:, None, :, None])


def test_tokens_are_drawn_evenly_from_the_real_ones():
    real = torch.rand(3, 40, generator=torch.Generator().manual_seed(0)) < 0.5
    draws = torch.arange(0, 1, 1e-4, dtype=torch.double)
    for row, positions in zip(real, tokens_at(draws, real), strict=True):
        counts = torch.bincount(positions, minlength=40)
        assert (counts[~row] == 0).all()
        assert (counts[row] - len(draws) / row.sum()).abs().max() <= 1


def test_the_last_token_is_the_last_that_can_be_drawn():
    draws = torch.tensor([1 - 2**-24])  # times 2,048 it is 2,048 in float32
    assert tokens_at(draws, torch.ones(1, 2048, dtype=torch.bool)).tolist() == [[2047]]
    assert tokens_at(draws, torch.zeros(1, 5, dtype=torch.bool)).max() < 5


def test_the_sample_is_drawn_anew_in_training_if_asked():
    x = torch.randn(2, 30, 16)
    model = Skyformer(16, 2, pattern="noncausal_self", max_length=30, features=4, resample=True)
    assert not torch.equal(model(x)[0], model(x)[0])
    model.eval()
    assert torch.equal(model(x)[0], model(x)[0])


@pytest.mark.parametrize("scale", [0.0, 0.1, 3.0, 100.0])
def test_many_like_rows_do_not_break_the_inverse(scale):
    """From identical rows to an identity kernel, in float32."""
    torch.manual_seed(0)
    model = Skyformer(64, 2, pattern="noncausal_self", max_length=256)
    x = (scale * torch.randn(2, 256, 64)).requires_grad_()
    y, _ = model(x)
    y.square().sum().backward()
    with torch.no_grad():
        exact, _ = model.double()(x.double())
    assert (y - exact).abs().max() <= 1e-4 * exact.abs().max()
    assert torch.isfinite(x.grad).all()
