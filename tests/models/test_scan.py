"""The diagonal scan against a plain loop."""

import contextlib

import pytest
import torch
from drawn import leaf
from hypothesis import given, settings
from hypothesis import strategies as st
from same import assert_same
from zoo import few_kernels

from models.ops import scan
from models.ops.scan import diagonal_scan


def loop(a, b, initial, reverse=False):
    """a, b (B, N, F), one step after another."""
    h, rows = initial, {}
    order = range(b.shape[1])
    for t in reversed(order) if reverse else order:
        h = a[:, t] * h + b[:, t]
        rows[t] = h
    return torch.stack([rows[t] for t in order], 1)


@settings(max_examples=25)
@given(
    length=st.integers(1, 26) | st.sampled_from([63, 64, 133]),  # chunks of 8, and chunks of chunks
    reverse=st.booleans(),
    dtype=st.sampled_from([torch.float64, torch.complex128]),
    form=st.sampled_from([contextlib.nullcontext, few_kernels]),
)
def test_equals_the_loop_in_output_and_gradients(length, reverse, dtype, form):
    a, b, initial = (0.5 * leaf(2, length, 3, dtype=dtype, seed=1)), leaf(2, length, 3, dtype=dtype), leaf(2, 3)
    with pytest.MonkeyPatch.context() as patch, form():
        patch.setattr(scan, "CHUNK", 8)
        ours, theirs = diagonal_scan(a, b, initial, reverse=reverse), loop(a, b, initial, reverse)
        assert_same(ours, theirs, (a, b, initial), rtol=1e-12)


@pytest.mark.parametrize("dim", [0, 1, 2, -2])
def test_along_any_axis_with_broadcast_factors(dim):
    b = leaf(5, 70, 6)
    a = leaf(6) / 4 if dim != 2 else leaf(70, 1) / 4
    initial = leaf(*b.select(dim, 0).shape)
    spread = a.expand_as(b).movedim(dim, 1)
    expected = loop(spread, b.movedim(dim, 1), initial).movedim(1, dim)
    h = diagonal_scan(a, b, initial, dim=dim)
    assert_same(h, expected, [a], rtol=1e-7)


def test_a_real_factor_with_a_complex_input():
    a, b = torch.rand(2, 40, 3, dtype=torch.float64), leaf(2, 40, 3, dtype=torch.complex128)
    torch.testing.assert_close(diagonal_scan(a, b), loop(a, b, b.new_zeros(2, 3)))


def test_small_factors_and_long_sequences_keep_their_digits():
    a = torch.linspace(1e-30, 1.0, 2**14)[None, :, None].requires_grad_()
    b = torch.ones(1, 2**14, 1)
    h = diagonal_scan(a, b)
    exact = loop(a.double(), b.double(), b.new_zeros(1, 1).double())
    torch.testing.assert_close(h.double(), exact, atol=0, rtol=1e-5)
    h.sum().backward()
    assert torch.isfinite(a.grad).all()


def test_16_bits_are_scanned_in_float32():
    a, b = torch.rand(1, 100, 4).bfloat16(), torch.randn(1, 100, 4).bfloat16()
    exact = loop(a.double(), b.double(), torch.zeros(1, 4, dtype=torch.float64))
    with torch.autocast("cpu", torch.bfloat16):
        h = diagonal_scan(a, b)
    assert h.dtype is torch.float32
    torch.testing.assert_close(h.double(), exact, atol=1e-5, rtol=1e-5)
