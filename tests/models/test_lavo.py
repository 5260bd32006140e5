"""LAVO's memory: what the generic tests, at one tile, cannot see."""

import pytest
import torch

from models.attention import lavo
from models.attention.lavo import past_memory, read


@pytest.mark.parametrize(("length", "window"), [(50, 8), (50, 1), (50, None), (7, 16), (48, 16)])
@pytest.mark.parametrize("tile", [1, 16, 2048])
def test_reading_in_tiles_is_the_definition(monkeypatch, length, window, tile):
    monkeypatch.setattr(lavo, "TILE", tile)
    generator = torch.Generator().manual_seed(0)
    memories = 1 if window is None else -(-length // window)
    shapes = [(2, 3, length, 4), (2, 3, memories, 5), (3, 5, 4)]
    q, memory, bases = (torch.randn(s, generator=generator, dtype=torch.double).requires_grad_() for s in shapes)
    each = memory.expand(2, 3, length, 5) if window is None else memory.repeat_interleave(window, 2)[:, :, :length]
    rows = each[..., None] * bases[:, None]  # X~ of every query, (2, 3, N, 5, 4)
    weights = (rows @ q[..., None] / 2).softmax(-2)
    theirs = (weights * rows).sum(-2)
    ours = read(q, memory, bases, window=window)
    torch.testing.assert_close(ours, theirs, atol=1e-13, rtol=0)
    cotangent = torch.randn(ours.shape, generator=generator, dtype=torch.double)
    for a, b in zip(*(torch.autograd.grad(y, (q, memory, bases), cotangent) for y in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)


@pytest.mark.parametrize("window", [4, None])
def test_backward_drops_what_forward_dropped(monkeypatch, window):
    monkeypatch.setattr(lavo, "TILE", 8)
    q = torch.randn(1, 2, 20, 4, dtype=torch.double, requires_grad=True)
    memory = torch.randn(1, 2, 5 if window else 1, 3, dtype=torch.double, requires_grad=True)
    bases = torch.randn(2, 3, 4, dtype=torch.double, requires_grad=True)

    def dropped(*tensors):
        torch.manual_seed(0)
        return read(*tensors, window=window, dropout=0.4)

    assert torch.autograd.gradcheck(dropped, (q, memory, bases))


def test_nothing_as_large_as_the_logits_is_kept():
    """n r numbers a head are made tile by tile: what forward keeps for backward is q and the memory."""
    q = torch.randn(1, 2, 4096, 8, requires_grad=True)
    bases = torch.randn(2, 8, 8)
    memory = past_memory(q.detach(), bases, window=64)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        read(q, memory, bases, window=64)
    assert sorted(kept, reverse=True)[:2] == [q.numel(), memory.numel()]
    assert sum(kept) < 1.1 * q.numel()
