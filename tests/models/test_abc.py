"""Causal ABC against the reference; scores of running means against the definition."""

import pytest
import torch
from golden import check, golden, leaves_of, needs_golden
from same import assert_same

from models.attention.abc import causal_weights
from models.ops import running_share
from models.ops.running_scores import running_scores
from models.ops.running_softmax import running_softmax


@needs_golden
def test_published_causal_form():
    meta, arrays = golden("abc_cs_fla_n63")
    leaves = leaves_of(arrays, "qkvs")
    q, k, v, s = leaves.values()
    check(meta, arrays, running_softmax(causal_weights(q, k, s), s, v), leaves)


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
    assert_same(ours, theirs, leaves, atol=1e-11)


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
    assert_same(ours, theirs, [logits])
