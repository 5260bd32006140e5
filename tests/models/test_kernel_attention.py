"""Sums of features against the definition, and linear attention against the reference."""

from functools import partial

import pytest
import torch
from golden import check, golden, leaves_of, needs_golden
from memory import saved_for_backward
from same import assert_same

from models.attention.linear_transformer import linear_attention
from models.ops import kernel_attention as layer
from models.ops.kernel_attention import (
    kernel_attention,
    segmented_kernel_attention,
)
from models.ops.tiles import TileBudget


def features(length=37, width=6, value=5):
    generator = torch.Generator().manual_seed(0)
    q, k = torch.rand(2, 2, 3, length, width, generator=generator, dtype=torch.double)
    v = torch.randn(2, 3, length, value, generator=generator, dtype=torch.double)
    return [x.requires_grad_() for x in (q, k, v)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("guards", [{}, {"eps": 0.5}, {"floor": 20.0}])
def test_equals_its_definition_in_output_and_gradient(causal, guards):
    q, k, v = leaves = features()
    padding = torch.arange(37).expand(2, 37) >= torch.tensor([[37], [21]])
    scores = (q @ k.mT).masked_fill(padding[:, None, None], 0.0)
    scores = scores.tril() if causal else scores
    total = (scores.sum(-1, keepdim=True) + guards.get("eps", 0.0)).clamp(min=guards.get("floor", 0.0))
    theirs = scores @ v / total
    ours = kernel_attention(q, k, v, causal=causal, key_padding_mask=padding, **guards)
    assert_same(ours, theirs, leaves)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kept", [0, 8], ids=["remade", "kept"])
def test_segments_are_one_whole(monkeypatch, causal, kept):
    monkeypatch.setattr(layer, "SEGMENT", TileBudget(1, 1))  # 64 tokens
    monkeypatch.setattr(layer, "MOST_KEPT", kept)
    q, k, v = leaves = features(length=150)
    padding = torch.arange(150).expand(2, 150) >= torch.tensor([[150], [71]])
    options = {"causal": causal, "key_padding_mask": padding, "floor": 0.1}
    ours = segmented_kernel_attention(q, k, v, torch.cos, 6, **options)
    theirs = kernel_attention(torch.cos(q), torch.cos(k), v, **options)
    assert_same(ours, theirs, leaves)


def test_many_features_are_not_kept(monkeypatch):
    monkeypatch.setattr(layer, "SEGMENT", TileBudget(1, 1))
    q, k, v = features(length=640)
    options = {"causal": True, "floor": 0.1}
    call = partial(segmented_kernel_attention, q, k, v, lambda x: torch.cos(x.repeat(1, 1, 1, 4)), 24, **options)
    kept = [x.numel() for x in saved_for_backward(call)]
    # pieces of the inputs, and the sums at the borders of segments
    assert max(kept) <= q.numel()
    assert sum(kept) <= q.numel() + k.numel() + v.numel() + 10 * 2 * 3 * 24 * 6


def test_sums_are_wide_under_autocast():
    q, k, v = (x.detach().float() for x in features())
    exact = kernel_attention(q, k, v, causal=False)
    with torch.autocast("cpu", torch.bfloat16):
        y = kernel_attention(q, k, v, causal=False)
    torch.testing.assert_close(y, exact, atol=0, rtol=0)


@needs_golden
@pytest.mark.parametrize("case", ["linear_cs_normalised_n63", "linear_cs_normalised_n192"])
def test_published_linear_attention(case):
    meta, arrays = golden(case)
    leaves = leaves_of(arrays, "qkv")
    # its queries are scaled and its eps is not
    y = linear_attention(*leaves.values(), causal=True, eps=1e-10 * meta["hyper"]["K"] ** 0.5)
    check(meta, arrays, y, leaves)
