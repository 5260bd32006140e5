"""Kernelized attention against the public code, and its tiles."""

import pytest
import torch
from golden import check, golden, leaves_of, needs_golden

from models.attention.kernelized import kernelized


@needs_golden
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equals_the_public_code(dtype):
    meta, arrays = golden("kernelized_ns_n63")
    leaves, padding = leaves_of(arrays, "qkv", dtype), ~arrays["mask"]
    q = leaves["q"].masked_fill(padding[:, None, :, None], 0.0)  # as the public code sets padded queries
    y = kernelized(q, *(leaves[x] for x in "kv"), key_padding_mask=padding)
    # gradients of zeroed entries are zero there
    check(meta, arrays, y, leaves, where=arrays["mask"][:, None, :, None])


def test_a_query_on_its_key_weighs_one_whatever_their_size():
    """In float32 the distance of two long vectors is the difference of large numbers."""
    q = 1e4 * torch.randn(1, 1, 50, 8)
    y = kernelized(q, q, torch.ones(1, 1, 50, 1))
    assert torch.isfinite(y).all()
    assert (y <= 1 + 1e-6).all()
