"""Convolutions along a sequence: a long one by FFT, a short one as a layer."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.ops.precision import autocast_disabled, upcast


def fft_convolution(u: Tensor, kernel: Tensor, future: Tensor | None = None) -> Tensor:
    """y_t = sum_{i=0}^{t} kernel_i u_{t-i} of u (.., N) and kernel (.., K), in O(N log N): u's dtype, last axis N.

    `future` (.., F) adds sum_{i>=1} future_{i-1} u_{t+i}. The leading axes are broadcast against each other. Taps past
    the ends of u are not read. Computed in float32, or float64.
    """
    length = u.shape[-1]
    kernel = kernel[..., :length]
    future = kernel[..., :0] if future is None else future[..., : length - 1]
    # with less, the end would wrap around to the start
    total = length + max(kernel.shape[-1] - 1, future.shape[-1])
    size = 1 << (total - 1).bit_length()
    size = size * 3 // 4 if total <= size * 3 // 4 else size  # both are quick to transform
    with autocast_disabled(u):
        kernel = upcast(kernel)
        if future.shape[-1]:
            gap = (0, size - kernel.shape[-1] - future.shape[-1])
            kernel = torch.cat([F.pad(kernel, gap), upcast(future).flip(-1)], -1)
        product = torch.fft.rfft(upcast(u), size) * torch.fft.rfft(kernel, size)
        return torch.fft.irfft(product, size)[..., :length].to(u.dtype)


class ShortConvolution(nn.Module):
    """y_t = sum_{i<taps} w_i x_{t-i} in each channel, without bias: taps D parameters, LeCun-normal.

    Not `causal`: y_t = sum_i w_i x_{t+r-i} with r = (taps - 1) // 2, centred for an odd number of taps. Raises
    ValueError for fewer than one tap.
    """

    def __init__(self, dim: int, taps: int, *, causal: bool = True):
        super().__init__()
        if taps < 1:
            raise ValueError(f"a convolution has 1 tap or more, not {taps}")
        self.ahead = 0 if causal else (taps - 1) // 2
        self.weight = nn.Parameter(torch.empty(dim, taps))
        nn.init.normal_(self.weight, std=taps**-0.5)

    def forward(self, x: Tensor, *, key_padding_mask: Tensor | None = None) -> Tensor:
        """x (B, N, D) -> (B, N, D). A padded token, True in `key_padding_mask` (B, N), counts as zero."""
        if key_padding_mask is not None:
            x = x.masked_fill(key_padding_mask[..., None], 0.0)
        dim, taps = self.weight.shape
        y = F.conv1d(x.mT, self.weight.flip(1)[:, None], padding=taps - 1, groups=dim)  # (B, D, N + taps - 1)
        return y[..., self.ahead : self.ahead + x.shape[1]].mT

    def empty_state(self, batch: int) -> Tensor:
        """The last taps - 1 inputs, (B, taps - 1, D)."""
        dim, taps = self.weight.shape
        return self.weight.new_zeros(batch, taps - 1, dim)

    def chunk(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The next n tokens x (B, n, D) -> (B, n, D), equal to the same rows of the causal `forward`."""
        window = torch.cat([state.to(x.dtype), x], 1)  # (B, taps - 1 + n, D), oldest first
        state = window[:, x.shape[1] :].to(state.dtype, copy=True)
        if x.shape[1] == 1:
            return (window * self.weight.flip(1).mT).sum(1, keepdim=True), state
        return F.conv1d(window.mT, self.weight.flip(1)[:, None], groups=x.shape[2]).mT, state
