"""Convolutions against the direct sum."""

import pytest
import torch
import torch.nn.functional as F
from drawn import leaf
from hypothesis import given, settings
from hypothesis import strategies as st
from same import assert_same

from models.layers.convolution import ShortConvolution
from models.ops import short_convolution
from models.ops.fft_convolution import fft_convolution
from models.ops.tiles import TileBudget


def direct(u, kernel):
    """u, kernel (.., N), tap by tap."""
    rows = []
    for t in range(u.shape[-1]):
        taps = range(min(t + 1, kernel.shape[-1]))
        rows.append(sum(kernel[..., i] * u[..., t - i] for i in taps))
    return torch.stack(rows, -1)


@settings(max_examples=15)
@given(length=st.integers(1, 50), past=st.integers(1, 60), future=st.integers(0, 50))
def test_fft_convolution_is_the_direct_sum_of_the_past_and_of_the_future(length, past, future):
    u, kernel, ahead = leaf(2, 3, length), leaf(3, past, seed=1), leaf(3, future, seed=2) if future else None
    expected = direct(u, kernel)
    if future:
        shifted = torch.cat([torch.zeros_like(ahead[..., :1]), ahead], -1)
        expected = expected + direct(u.flip(-1), shifted).flip(-1)
    assert_same(fft_convolution(u, kernel, ahead), expected, [u, kernel, ahead], rtol=1e-12)


@pytest.mark.parametrize(("lead", "kernel_lead"), [((1, 4), (3, 1)), ((4,), (3, 4)), ((3, 4), ())])
def test_gradients_of_broadcast_axes_are_sums(lead, kernel_lead):
    u, kernel, ahead = leaf(*lead, 9), leaf(*kernel_lead, 12, seed=1), leaf(*kernel_lead, 5, seed=2)
    assert torch.autograd.gradcheck(fft_convolution, (u, kernel, ahead))


def test_fft_convolution_takes_16_bits_in_float32():
    u, kernel = leaf(2, 100).bfloat16(), leaf(2, 100, seed=1).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        y = fft_convolution(u, kernel)
    assert y.dtype is torch.bfloat16
    torch.testing.assert_close(y.double(), direct(u.double(), kernel.double()), atol=0.01, rtol=0.01)


@pytest.mark.parametrize(("taps", "ahead"), [(1, 0), (4, 1), (9, 4)])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [1, 2, 7])
def test_short_convolution_is_the_direct_sum(taps, ahead, causal, length):
    layer = ShortConvolution(5, taps, causal=causal).double()
    x = leaf(2, length, 5)
    shift = 0 if causal else ahead
    padded = torch.cat([x, x.new_zeros(2, shift, 5)], 1)
    expected = direct(padded.mT, layer.weight).mT[:, shift:]
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("shift", [0, 1, 3])
@pytest.mark.parametrize("numbers", [1, 40, 10**6])
def test_short_convolution_in_tiles_has_the_gradients_of_torchs(monkeypatch, numbers, shift):
    monkeypatch.setattr(short_convolution, "TILE", TileBudget(numbers, numbers))
    x, weight, count = leaf(3, 23, 5), leaf(5, 4, seed=1), 23 - shift
    y = short_convolution.short_convolution(x, weight, shift=shift, count=count)
    expected = F.conv1d(x.mT, weight.flip(1)[:, None], padding=3, groups=5).mT[:, shift : shift + count]
    assert_same(y, expected, [x, weight])


def test_short_convolution_sums_16_bits_in_float32():
    layer, x = ShortConvolution(5, 4), leaf(2, 3000, 5).detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    assert y.dtype is torch.bfloat16
    (gradient,) = torch.autograd.grad(y, layer.weight, torch.ones_like(y))
    wide = x.detach().double()
    expected = torch.stack([wide[:, : 3000 - i].sum((0, 1)) for i in range(4)], 1)
    torch.testing.assert_close(gradient.double(), expected, atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
def test_short_convolution_takes_padding_as_zeros(causal):
    layer = ShortConvolution(5, 3, causal=causal).double()
    x, mask = leaf(1, 9, 5).detach(), torch.arange(9)[None] >= 6
    changed = x.masked_fill(mask[..., None], 1e9)
    y = layer(changed, key_padding_mask=mask)
    torch.testing.assert_close(y[:, :6], layer(x[:, :6]))
    flipped = layer(changed.flip(1), key_padding_mask=mask.flip(1))
    torch.testing.assert_close(flipped[:, 3:], layer(x[:, :6].flip(1)))


def test_short_convolution_starts_with_unit_gain():
    torch.manual_seed(0)
    y = ShortConvolution(2000, 3)(torch.randn(1, 50, 2000))
    assert abs(y[:, 2:].std().item() - 1) < 0.05


def test_refusal():
    with pytest.raises(ValueError, match="1 tap or more, not 0"):
        ShortConvolution(4, 0)
