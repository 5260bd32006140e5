"""Kernelized attention against the public code, and its tiles."""

import pytest
import torch
from golden import golden, needs_golden
from twins.landmarks import gaussian_rows

from models.attention import kernelized as module
from models.attention.kernelized import kernelized
from models.ops.tiles import TileBudget


@needs_golden
@pytest.mark.parametrize(("dtype", "share"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_equals_the_public_code(dtype, share):
    meta, arrays = golden("kernelized_ns_n63")
    q, k, v = (arrays[name].to(dtype) for name in "qkv")
    padding = ~arrays["mask"]
    q = q.masked_fill(padding[:, None, :, None], 0.0)  # as the public code sets padded queries
    leaves = {"q": q.requires_grad_(), "k": k.requires_grad_(), "v": v.requires_grad_()}
    y = kernelized(q, k, v, key_padding_mask=padding)
    y.backward(arrays["g"].to(dtype))
    assert (y - arrays["y"]).abs().max() <= share * arrays["y"].abs().max()
    for name, leaf in leaves.items():
        rows = arrays["mask"][:, None, :, None]  # gradients of zeroed entries are zero there
        assert ((leaf.grad - arrays[f"d{name}"]) * rows).abs().max() <= share * arrays[f"d{name}"].abs().max(), name
    assert meta["tolerance_max_abs"] >= share or dtype is torch.float32


@pytest.mark.parametrize("tile", [1, 40, 300, 2**19])
def test_tiles_are_the_definition(monkeypatch, tile):
    monkeypatch.setattr(module, "TILE", TileBudget(tile, tile))
    monkeypatch.setattr(module, "FEWEST_ROWS", 3)
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 3, 17, 4), (2, 3, 11, 4), (2, 3, 11, 5))
    q, k, v = leaves = [torch.randn(s, generator=generator, dtype=torch.double).requires_grad_() for s in shapes]
    theirs = torch.stack([gaussian_rows(a, b) for a, b in zip(q.flatten(0, 1), k.flatten(0, 1), strict=True)])
    theirs = theirs.unflatten(0, (2, 3)) @ v
    ours = kernelized(q, k, v)
    torch.testing.assert_close(ours, theirs, atol=1e-13, rtol=0)
    cotangent = torch.randn(ours.shape, generator=generator, dtype=torch.double)
    for a, b in zip(*(torch.autograd.grad(y, leaves, cotangent) for y in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)


def test_backward_drops_what_forward_dropped(monkeypatch):
    monkeypatch.setattr(module, "TILE", TileBudget(30, 30))
    monkeypatch.setattr(module, "FEWEST_ROWS", 2)
    q, k, v = (torch.randn(1, 2, 7, 3, dtype=torch.double, requires_grad=True) for _ in range(3))

    def dropped(*tensors):
        torch.manual_seed(0)
        return kernelized(*tensors, dropout=0.4)

    assert torch.autograd.gradcheck(dropped, (q, k, v))
    kept = dropped(q, k, torch.ones_like(v))
    assert (kept < kernelized(q, k, torch.ones_like(v))).any()


def test_a_query_on_its_key_weighs_one_whatever_their_size():
    """In float32 the distance of two long vectors is the difference of large numbers."""
    q = 1e4 * torch.randn(1, 1, 50, 8)
    y = kernelized(q, q, torch.ones(1, 1, 50, 1))
    assert torch.isfinite(y).all()
    assert (y <= 1 + 1e-6).all()
