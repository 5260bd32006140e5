"""The convolution over time against torch's, and its filters as rows of a matrix."""

import pytest
import torch
from same import assert_same

from models.ops.time_convolution import time_convolution


def inputs(length, taps, dtype=torch.double):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, length, 3, 4, generator=generator, dtype=dtype)
    w = torch.randn(3, taps, generator=generator, dtype=dtype)
    return x.requires_grad_(), w.requires_grad_()


@pytest.mark.parametrize("taps", [1, 3, 33, 35, 65])
@pytest.mark.parametrize("length", [1, 2, 31, 32, 100, 129])
def test_equals_torchs_in_output_and_every_gradient(length, taps):
    leaves = inputs(length, taps)
    x, w = leaves
    ours = time_convolution(x.transpose(1, 2), w)  # heads as they come out of a projection
    expected = torch.conv2d(x.transpose(1, 2), w[:, None, :, None], padding=(taps // 2, 0), groups=3)
    assert ours.shape == expected.shape
    assert_same(ours, expected, leaves)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_in_few_bits_it_is_close(dtype):
    x, w = inputs(100, 33)
    exact = time_convolution(x.transpose(1, 2), w)
    y = time_convolution(x.to(dtype).transpose(1, 2), w.to(dtype))
    assert y.dtype == dtype
    assert (y - exact).abs().max() <= 4 * torch.finfo(dtype).eps * exact.abs().max()
