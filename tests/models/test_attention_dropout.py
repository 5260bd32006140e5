"""Softmax attention with dropout: its masks are read off, and a plain form with the same masks is its twin."""

import pytest
import torch
from memory import saved_for_backward
from same import assert_same
from torch.nn import functional as F
from zoo import pairs

from models.ops import softmax_lse as module
from models.ops.attention import attention
from models.ops.tiles import TileBudget

SHAPES = {"several": (3, 2, 40, 33, 8, 6), "one tile": (2, 3, 7, 11, 4, 5), "square": (1, 2, 9, 9, 4, 4)}


def inputs(batch, heads, queries, keys, width, value_width, dtype=torch.float64):
    torch.manual_seed(queries)
    shapes = (queries, width), (keys, width), (keys, value_width)
    return [torch.randn(batch, heads, *shape, dtype=dtype, requires_grad=True) for shape in shapes]


def twin(q, k, v, kept, *, mask=None, causal=False, scale=None):
    """The plain form with a given mask of dropout, (B, H, N, M)."""
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), float("-inf"))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype is torch.bool else scores + mask
    return (scores.softmax(-1) * kept) @ v


def masks_of(q, k, options, seed):
    """The factors of each weight: the values are unit vectors, and p itself is the twin's without a mask."""
    unit = torch.eye(k.shape[2], dtype=q.dtype).expand(*k.shape[:3], -1)
    torch.manual_seed(seed)
    dropped = attention(q, k, unit, dropout=0.3, **options)
    weights = twin(q, k, unit, torch.ones((), dtype=q.dtype), **options)
    return torch.where(weights > 0, dropped / weights, 0.0).detach()


def masks(name, q, k):
    (batch, heads, queries), keys = q.shape[:3], k.shape[2]
    torch.manual_seed(1)
    visible = {
        "keys": torch.rand(batch, 1, 1, keys) > 0.3,
        "pairs": torch.rand(queries, keys) > 0.3,
        "all": torch.rand(batch, heads, queries, keys) > 0.3,
    }[name]
    visible[..., 0] = True
    return visible


@pytest.mark.parametrize(
    ("kind", "shape", "budget"),
    pairs(["plain", "scale", "causal", "keys", "pairs", "all"], SHAPES, [64, 2**18, 1], most=1),
)
def test_output_and_gradients_equal_the_plain_form_with_the_same_masks(monkeypatch, kind, shape, budget):
    monkeypatch.setattr(module, "TILE", TileBudget(budget, budget))
    q, k, v = inputs(*SHAPES[shape])
    if kind == "causal" and q.shape[2] != k.shape[2]:
        k, v = (x[:, :, : q.shape[2]].detach().requires_grad_() for x in (k, v))
        q = q[:, :, : k.shape[2]].detach().requires_grad_()
    settings = {"plain": {}, "scale": {"scale": 0.7}, "causal": {"causal": True}}
    options = settings[kind] if kind in settings else {"mask": masks(kind, q, k)}
    kept = masks_of(q, k, options, seed=5)
    values = kept[kept > 0].round(decimals=9).unique()
    assert len(values) == 1 and abs(values.item() - 1 / 0.7) < 1e-4
    torch.manual_seed(5)
    y = attention(q, k, v, dropout=0.3, **options)
    expected = twin(q, k, v, kept, **options)
    assert_same(y, expected, (q, k, v), rtol=1e-11)


def test_every_tile_has_masks_of_its_own(monkeypatch):
    monkeypatch.setattr(module, "TILE", TileBudget(256, 256))
    q, k, _ = inputs(2, 2, 32, 32, 4, 4)
    kept = masks_of(q, k, {}, seed=3).flatten(0, 2)  # a row per query
    assert len(kept.unique(dim=0)) == len(kept)


def test_learned_scores_have_a_gradient():
    q, k, v = inputs(2, 2, 6, 6, 4, 4)
    bias = torch.randn(2, 6, 6, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(2)
    gradient = torch.autograd.grad(attention(q, k, v, mask=bias, dropout=0.2).sum(), bias)[0]
    assert gradient.abs().sum() > 0


def test_without_dropout_it_is_torchs():
    q, k, v = inputs(1, 2, 8, 8, 4, 4)
    assert torch.equal(attention(q, k, v, causal=True), F.scaled_dot_product_attention(q, k, v, is_causal=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_rounds_only_its_ends(dtype):
    q, k, v = (x.detach() for x in inputs(2, 2, 20, 20, 8, 8, torch.float32))
    halves = [x.to(dtype).requires_grad_() for x in (q, k, v)]
    torch.manual_seed(4)
    y = attention(*halves, dropout=0.1)
    torch.manual_seed(4)
    exact = attention(*(x.detach().float() for x in halves), dropout=0.1)
    assert y.dtype is dtype and torch.equal(y, exact.to(dtype))
    y.sum().backward()
    assert all(x.grad.dtype is dtype and x.grad.isfinite().all() for x in halves)


def test_under_autocast_the_result_has_the_type_of_the_queries_as_torchs_has():
    q, k, v = (x.detach() for x in inputs(2, 2, 20, 20, 8, 8, torch.float32))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = attention(q.bfloat16(), k.bfloat16(), v, dropout=0.1)
    assert y.dtype is torch.bfloat16 and y.isfinite().all()


def test_memory_is_that_of_a_tile():
    """4,096 queries and keys: all weights would take 64 MiB per head."""
    q, k, v = inputs(1, 1, 4096, 4096, 8, 8, torch.float32)
    saved = saved_for_backward(lambda: attention(q, k, v, dropout=0.1))
    assert sum(x.numel() for x in saved) < 6 * 4096 * 8
