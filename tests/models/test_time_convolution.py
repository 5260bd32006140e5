"""The convolution over time against torch's, and its filters as rows of a matrix."""

import pytest
import torch

from models.ops.time_convolution import shifted_rows, time_convolution


def inputs(length, taps, dtype=torch.double):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, length, 3, 4, generator=generator, dtype=dtype)
    w = torch.randn(3, taps, generator=generator, dtype=dtype)
    return x.requires_grad_(), w.requires_grad_()


@pytest.mark.parametrize("taps", [1, 3, 33, 35, 65])
@pytest.mark.parametrize("length", [1, 2, 31, 32, 100, 129])
def test_equals_torchs_in_output_and_every_gradient(length, taps):
    leaves = inputs(length, taps)
    results = []
    for call in (
        time_convolution,
        lambda x, w: torch.conv2d(x, w[:, None, :, None], padding=(taps // 2, 0), groups=3),
    ):
        y = call(leaves[0].transpose(1, 2), leaves[1])  # heads as they come out of a projection
        results.append((y, *torch.autograd.grad((y * y.detach().sin()).sum(), leaves)))
    for ours, expected in zip(*results, strict=True):
        assert ours.shape == expected.shape
        torch.testing.assert_close(ours, expected, atol=1e-12, rtol=0)


def test_each_row_has_the_taps_one_place_further():
    w = torch.tensor([[1.0, 2.0, 3.0]])
    rows = shifted_rows(w, 2)[0]
    assert rows.tolist() == [[1, 2, 3, 0], [0, 1, 2, 3]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_in_few_bits_it_is_close(dtype):
    x, w = inputs(100, 33)
    exact = time_convolution(x.transpose(1, 2), w)
    y = time_convolution(x.to(dtype).transpose(1, 2), w.to(dtype))
    assert y.dtype == dtype
    assert (y - exact).abs().max() <= 4 * torch.finfo(dtype).eps * exact.abs().max()
