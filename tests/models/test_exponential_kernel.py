"""Sums of exponentials against the sum itself."""

import pytest
import torch
from same import assert_same

from models.ops.exponential_kernel import exponential_kernel


def draw(complex_modes: bool):
    generator = torch.Generator().manual_seed(0)
    dtype = torch.complex128 if complex_modes else torch.float64
    coefficients = torch.randn(2, 3, 5, dtype=dtype, generator=generator)
    rates = -torch.rand(3, 5, dtype=torch.float64, generator=generator).to(dtype)
    if complex_modes:
        rates = rates + 20j * torch.rand(3, 5, dtype=torch.float64, generator=generator)
    return coefficients.requires_grad_(), rates.requires_grad_()


@pytest.mark.parametrize("complex_modes", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5, 16, 41])
def test_is_the_sum_in_value_and_gradient(complex_modes, length):
    coefficients, rates = draw(complex_modes)
    ours = exponential_kernel(coefficients, rates, length)
    theirs = torch.stack([(coefficients * torch.exp(rates * i)).sum(-1).real for i in range(length)], -1)
    assert ours.dtype is torch.float64
    assert_same(ours, theirs, (coefficients, rates), rtol=1e-13)


def test_stays_wide_under_autocast():
    coefficients, rates = (x.detach().to(torch.complex64) for x in draw(complex_modes=True))
    with torch.autocast("cpu", torch.bfloat16):
        kernel = exponential_kernel(coefficients, rates, 41)
    torch.testing.assert_close(kernel, exponential_kernel(coefficients, rates, 41), atol=0, rtol=0)
