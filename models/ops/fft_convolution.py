"""A long convolution along a sequence, by FFT.

N length, K taps of the past, F taps of the future
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from models.ops.precision import autocast_disabled, upcast


def fft_convolution(u: Tensor, kernel: Tensor, future: Tensor | None = None) -> Tensor:
    """y_t = sum_{i=0}^{t} kernel_i u_{t-i} of u (.., N) and kernel (.., K), in O(N log N): u's dtype, last axis N.

    `future` (.., F) adds sum_{i>=1} future_{i-1} u_{t+i}. Leading axes are broadcast. Taps beyond the ends of u are
    ignored. Computed in float32 or float64.
    """
    length = u.shape[-1]
    kernel = kernel[..., :length]
    future = kernel[..., :0] if future is None else future[..., : length - 1]
    # with a shorter transform, the end would wrap around to the start
    total = length + max(kernel.shape[-1] - 1, future.shape[-1])
    size = 1 << (total - 1).bit_length()
    size = size * 3 // 4 if total <= size * 3 // 4 else size  # both sizes have fast transforms
    with autocast_disabled(u):
        kernel = upcast(kernel)
        if future.shape[-1]:
            gap = (0, size - kernel.shape[-1] - future.shape[-1])
            kernel = torch.cat([F.pad(kernel, gap), upcast(future).flip(-1)], -1)
        product = torch.fft.rfft(upcast(u), size) * torch.fft.rfft(kernel, size)
        return torch.fft.irfft(product, size)[..., :length].to(u.dtype)
