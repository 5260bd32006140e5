"""Each token's share of the exponentials so far: u_t = e^{theta_t} / sum_{s<=t} e^{theta_s}, for arbitrary theta.

With m_t the largest logit up to t and h_t = u_t du_t,

    c_t = e^{m_{t-1} - m_t} c_{t-1} + e^{theta_t - m_t},   u_t = e^{theta_t - m_t} / c_t
    r_t = h_t + (1 - u_{t+1}) r_{t+1},                     dtheta_t = h_t - u_t r_t

where no exponent is positive and c_t >= 1. Time O(N L log SEGMENT); only u is kept, everything else is computed per
segment, in few kernels for all tokens at once.

    B batch, H heads, N length, L latents
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops.precision import upcast
from models.ops.running_softmax import HIDDEN
from models.ops.scan import diagonal_scan
from models.ops.tiles import in_few_kernels, spans

SEGMENT = 1024  # tokens


def running_share(logits: Tensor, *, key_padding_mask: Tensor | None = None) -> Tensor:
    """logits (B, H, N, L), mask (B, N) True at excluded tokens -> u (B, H, N, L), in float32 or float64."""
    logits = upcast(logits)
    if key_padding_mask is not None:
        logits = logits.masked_fill(key_padding_mask[:, None, :, None], HIDDEN)
    return _RunningShare.apply(logits)


class _RunningShare(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits: Tensor) -> Tensor:
        shares = torch.empty_like(logits)
        largest, total = torch.full_like(logits[:, :, :1], HIDDEN), torch.zeros_like(logits[:, :, 0])
        for tokens in _segments(logits):
            top = running_maximum(torch.cat([largest, logits[:, :, tokens]], 2))
            added = (logits[:, :, tokens] - top[:, :, 1:]).exp()
            sums = diagonal_scan((top[:, :, :-1] - top[:, :, 1:]).exp(), added, total, dim=2)
            shares[:, :, tokens] = added / sums
            largest, total = top[:, :, -1:], sums[:, :, -1]
        ctx.save_for_backward(shares)
        return shares

    @staticmethod
    @once_differentiable
    def backward(ctx, dshares: Tensor) -> Tensor:
        (shares,) = ctx.saved_tensors
        dlogits = torch.empty_like(shares)
        later, decay = torch.zeros_like(shares[:, :, 0]), torch.zeros_like(shares[:, :, :1])
        for tokens in reversed(_segments(shares)):
            u = shares[:, :, tokens]
            h = u * dshares[:, :, tokens]
            sums = diagonal_scan(torch.cat([1 - u[:, :, 1:], decay], 2), h, later, dim=2, reverse=True)
            dlogits[:, :, tokens] = h - u * sums
            later, decay = sums[:, :, 0], 1 - u[:, :, :1]
        return dlogits


def _segments(x: Tensor) -> list[slice]:
    """The tokens of x (B, H, N, L) that are computed together."""
    return [slice(None)] if in_few_kernels(x) else spans(0, x.shape[2], SEGMENT)


def running_maximum(x: Tensor) -> Tensor:
    """The running maximum over the tokens of x (B, H, N, L); on a CPU in place, by doubling, faster than cummax."""
    if in_few_kernels(x):
        return x.cummax(2).values
    shift = 1
    while shift < x.shape[2]:
        x[:, :, shift:] = torch.maximum(x[:, :, shift:], x[:, :, :-shift])
        shift *= 2
    return x
