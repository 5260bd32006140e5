"""Sums of features against the definition, and linear attention against the reference."""

import pytest
import torch
from golden import golden, needs_golden

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
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)
    for a, b in zip(*(torch.autograd.grad(y.square().sum(), leaves) for y in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, b, atol=1e-11, rtol=0)


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
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)
    for a, b in zip(*(torch.autograd.grad(y.square().sum(), leaves) for y in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=0)


def test_many_features_are_not_kept(monkeypatch):
    monkeypatch.setattr(layer, "SEGMENT", TileBudget(1, 1))
    q, k, v = features(length=640)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        segmented_kernel_attention(q, k, v, lambda x: torch.cos(x.repeat(1, 1, 1, 4)), 24, causal=True, floor=0.1)
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
    # its queries are scaled and its eps is not
    eps, tolerance = 1e-10 * meta["hyper"]["K"] ** 0.5, meta["tolerance_max_abs"]
    leaves = [arrays[name].requires_grad_() for name in "qkv"]
    y = linear_attention(*leaves, causal=True, eps=eps)
    torch.testing.assert_close(y, arrays["y"], atol=tolerance, rtol=0)
    if "g" in arrays:
        for name, ours in zip("qkv", torch.autograd.grad(y, leaves, arrays["g"]), strict=True):
            torch.testing.assert_close(ours, arrays[f"d{name}"], atol=10 * tolerance, rtol=0)
