"""Causal ABC against the reference; scores of running means against the definition."""

import pytest
import torch
from golden import golden, needs_golden

from models.attention.abc import causal_weights
from models.ops import running_share
from models.ops.running_scores import running_scores
from models.ops.running_softmax import running_softmax


@needs_golden
def test_published_causal_form():
    meta, arrays = golden("abc_cs_fla_n63")
    q, k, v, s = leaves = [arrays[name].requires_grad_() for name in "qkvs"]
    y = running_softmax(causal_weights(q, k, s), s, v)
    torch.testing.assert_close(y, arrays["y"], atol=meta["tolerance_max_abs"], rtol=0)
    for name, ours in zip("qkvs", torch.autograd.grad(y, leaves, arrays["g"]), strict=True):
        torch.testing.assert_close(ours, arrays[f"d{name}"], atol=10 * meta["tolerance_max_abs"], rtol=0)


@pytest.mark.parametrize("size", [1.0, 300.0], ids=["flat", "steep"])  # steep logits use the always-stable path
@pytest.mark.parametrize("padded", [False, True])
def test_running_scores_equal_their_definition(size, padded):
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 2, 3, 70, 5, generator=generator, dtype=torch.double)
    logits = size * torch.randn(2, 3, 70, 4, generator=generator, dtype=torch.double)
    leaves = [x.requires_grad_() for x in (q, logits, k)]
    padding = torch.arange(70).expand(2, 70) >= torch.tensor([[70], [33]]) if padded else None
    hidden = torch.ones(70, 70, dtype=torch.bool).triu(1)
    if padded:
        hidden = hidden | padding[:, None, None]
    rows = logits.mT[..., None, :].expand(2, 3, 4, 70, 70)
    weights = rows.masked_fill(hidden.unsqueeze(-3), -torch.inf).softmax(-1)  # (B, H, L, N, N)
    theirs = torch.einsum("bhlts,bhse,bhte->bhtl", weights, k, q)
    ours = running_scores(*leaves, key_padding_mask=padding)
    torch.testing.assert_close(ours, theirs, atol=1e-11, rtol=0)
    cotangent = torch.randn(ours.shape, generator=generator, dtype=torch.double)
    for a, b in zip(*(torch.autograd.grad(y, leaves, cotangent) for y in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=0)


@pytest.mark.parametrize("size", [1.0, 300.0], ids=["flat", "steep"])
@pytest.mark.parametrize("segment", [16, 1024])
def test_running_share_equals_its_definition(monkeypatch, size, segment):
    monkeypatch.setattr(running_share, "SEGMENT", segment)
    logits = size * torch.randn(2, 3, 70, 4, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    padding = torch.rand(2, 70, generator=torch.Generator().manual_seed(1)) < 0.3
    logits.requires_grad_()
    hidden = logits.masked_fill(padding[:, None, :, None], -torch.inf)
    theirs = (hidden - hidden.logcumsumexp(2)).exp()[~padding[:, None, :, None].expand_as(logits)]
    ours = running_share.running_share(logits, key_padding_mask=padding)
    ours = ours[~padding[:, None, :, None].expand_as(logits)]
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)
    grads = [torch.autograd.grad(y.sin().sum(), logits)[0] for y in (ours, theirs)]
    torch.testing.assert_close(*grads, atol=1e-11, rtol=0)
