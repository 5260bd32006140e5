"""A long convolution along a sequence, by FFT.

With the transforms U of the input, K of the kernel and G of the output's gradient, the transforms of the gradients of
input and kernel are conj(K) G and conj(U) G: three real transforms. Autograd would run a complex one of the full size
for each of the two, and copy more.

N length, K taps of the past, F taps of the future
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

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
    size = 1
    while size < total:  # comparisons, so that torch.compile keeps the size a constant
        size *= 2
    size = size * 3 // 4 if total <= size * 3 // 4 else size  # both sizes have fast transforms
    with autocast_disabled(u):
        kernel = upcast(kernel)
        if future.shape[-1]:
            gap = (0, size - kernel.shape[-1] - future.shape[-1])
            kernel = torch.cat([F.pad(kernel, gap), upcast(future).flip(-1)], -1)
        return _Circular.apply(upcast(u), kernel, size).to(u.dtype)


class _Circular(torch.autograd.Function):
    """The first N numbers of the circular convolution of u (.., N) and a kernel (.., K) with a period of `size`."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, kernel: Tensor, size: int) -> Tensor:
        spectra = torch.fft.rfft(u, size), torch.fft.rfft(kernel, size)
        ctx.save_for_backward(*spectra)
        ctx.shapes, ctx.size = (u.shape, kernel.shape), size
        return torch.fft.irfft(spectra[0] * spectra[1], size)[..., : u.shape[-1]]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        with autocast_disabled(grad):
            spectrum = torch.fft.rfft(grad, ctx.size)
            gradients = []
            for wanted, shape, other in zip(ctx.needs_input_grad, ctx.shapes, ctx.saved_tensors[::-1], strict=False):
                if not wanted:
                    gradients.append(None)
                    continue
                product = (spectrum * other.conj()).sum_to_size(*shape[:-1], spectrum.shape[-1])
                gradients.append(torch.fft.irfft(product, ctx.size)[..., : shape[-1]])
        return *gradients, None
