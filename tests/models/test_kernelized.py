"""Kernelized attention against the public code, and its tiles."""

import pytest
import torch
from golden import golden, needs_golden

from models.attention.kernelized import kernelized


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


def test_a_query_on_its_key_weighs_one_whatever_their_size():
    """In float32 the distance of two long vectors is the difference of large numbers."""
    q = 1e4 * torch.randn(1, 1, 50, 8)
    y = kernelized(q, q, torch.ones(1, 1, 50, 1))
    assert torch.isfinite(y).all()
    assert (y <= 1 + 1e-6).all()
