"""Banded attention against softmax attention with an explicit mask."""

import pytest
import torch
from drawn import leaf
from hypothesis import given, settings
from hypothesis import strategies as st
from same import assert_same

from models.ops import banded
from models.ops.banded import banded_attention
from models.ops.tiles import TileBudget


def masked(q, k, v, *, left, right, bias=None, key_padding_mask=None, scale=None):
    """The definition, with all scores."""
    position = torch.arange(q.shape[2])
    relative = position - position[:, None]
    hidden = (relative < -left) | (relative > right)
    if key_padding_mask is not None:
        hidden = hidden | key_padding_mask[:, None, None]
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias[:, (relative + left).clamp(0, left + right)]
    return scores.masked_fill(hidden, -1e30).softmax(-1).masked_fill(hidden, 0.0) @ v


def tensors(length, left, right, *, batch=2, heads=3, width=4, seed=0):
    shapes = [(batch, heads, length, width)] * 3 + [(heads, left + right + 1)]
    return [leaf(*shape, seed=seed + i) for i, shape in enumerate(shapes)]


@settings(max_examples=40)
@given(
    length=st.integers(1, 150),
    left=st.integers(0, 170),
    right=st.integers(0, 170),
    biased=st.booleans(),
    padded=st.booleans(),
    tile=st.sampled_from([1, 5000, 2**19]),
)
def test_equals_the_masked_softmax(length, left, right, biased, padded, tile):
    q, k, v, bias = tensors(length, left, right)
    mask = None
    if padded:
        mask = torch.rand(2, length, generator=torch.Generator().manual_seed(length)) < 0.4
    options = {"left": left, "right": right, "bias": bias if biased else None, "key_padding_mask": mask}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(banded, "TILE", TileBudget(tile, tile))
        leaves = (q, k, v, bias) if biased else (q, k, v)
        assert_same(banded_attention(q, k, v, **options), masked(q, k, v, **options), leaves)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_gradcheck(dropout, padded):
    q, k, v, bias = tensors(37, 3, 2, batch=1, heads=2, width=2)
    mask = torch.arange(37)[None] >= 30 if padded else None

    def attention(q, k, v, bias):
        torch.manual_seed(0)  # every call drops the same weights
        return banded_attention(q, k, v, left=3, right=2, bias=bias, key_padding_mask=mask, dropout=dropout)

    assert torch.autograd.gradcheck(attention, (q, k, v, bias), fast_mode=True)


def test_dropout_drops_its_share_and_keeps_the_mean():
    torch.manual_seed(0)
    q, k = torch.zeros(2, 2, 500, 4), torch.zeros(2, 2, 500, 4)
    v = torch.ones(2, 2, 500, 4)
    y = banded_attention(q, k, v, left=9, right=0, dropout=0.25)  # a mean of 10 ones, each 0 or 4/3
    kept = y[:, :, 20:, 0] * 0.75
    assert abs(kept.mean().item() - 0.75) < 0.01
    assert abs(kept.var().item() - 0.75 * 0.25 / 10) < 0.003


@pytest.mark.parametrize(("batch", "length", "calls"), [(6, 48, 2), (1, 320, 3), (2, 320, 4)])
def test_torch_s_kernel_is_called_per_block_or_per_example_and_gives_the_same_bits(monkeypatch, batch, length, calls):
    name = "_scaled_dot_product_flash_attention_for_cpu"
    kernel, made = getattr(torch.ops.aten, name), []
    monkeypatch.setattr(torch.ops.aten, name, lambda *args, **kwargs: made.append(1) or kernel(*args, **kwargs))
    q, k, v = (torch.randn(batch, 2, length, 8) for _ in range(3))
    together = banded_attention(q, k, v, left=8, right=8)
    assert len(made) == calls
    alone = [banded_attention(*(x[i : i + 1] for x in (q, k, v)), left=8, right=8) for i in range(batch)]
    assert torch.equal(together, torch.cat(alone))


def test_a_query_that_sees_no_key_gets_zeros_and_gives_no_gradient():
    q, k, v, _ = tensors(40, 2, 0)
    mask = torch.arange(40).expand(2, 40) < 10
    y = banded_attention(q, k, v, left=2, right=0, key_padding_mask=mask)
    y.sum().backward()
    assert (y[:, :, :10] == 0).all()
    assert all(torch.isfinite(t.grad).all() for t in (q, k, v))
    assert (v.grad[:, :, :10] == 0).all()


def test_bfloat16_takes_the_softmax_in_float32():
    q, k, v, bias = (t.detach() for t in tensors(80, 9, 9))
    small = [t.bfloat16() for t in (q, k, v)]
    exact = masked(*(t.double() for t in small), left=9, right=9, bias=bias)
    y = banded_attention(*small, left=9, right=9, bias=bias.float())
    assert y.dtype is torch.bfloat16
    assert (y.double() - exact).abs().max() < 0.02


def test_refusals():
    q, k, v, bias = tensors(5, 1, 1)
    with pytest.raises(ValueError, match="left=-1"):
        banded_attention(q, k, v, left=-1, right=0)
    with pytest.raises(ValueError, match=r"\(3, 3\), not \(3, 4\)"):
        banded_attention(q, k, v, left=1, right=2, bias=bias)
