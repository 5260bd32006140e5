"""The recurrence of the RG-LRU (Griffin, De et al., 2024, arXiv 2402.19427, §2.4).

    log a_t = -rate sigmoid(r_t),  h_t = a_t h_{t-1} + sqrt(1 - a_t^2) (sigmoid(i_t) x_t)              (3, 4, 6)

As in the published code, the first token is not scaled down, and the slope of the square root is limited to 1000 where
a is close to 1. There 1 - a^2 = -expm1(2 log a) keeps its precision. Time and memory O(N D).

    B batch, N length, D width
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops.precision import upcast
from models.ops.scan import diagonal_scan

STEEPEST = 1000.0  # slope of the square root


class _Root(torch.autograd.Function):
    """The square root of x >= 0, with a limited slope."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        root = x.sqrt()
        ctx.save_for_backward(root)
        return root

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> Tensor:
        return grad / (2 * ctx.saved_tensors[0]).clamp(min=1 / STEEPEST)


def recurrence(
    x: Tensor,
    r: Tensor,
    i: Tensor,
    rate: Tensor,
    first: Tensor | None,
    *,
    hidden: Tensor | None = None,
    state: Tensor | None = None,
) -> Tensor:
    """h (B, N, D) from x, and from r and i before their sigmoids (B, N, D), with `rate` (D,) = 8 softplus(Lambda).

    h is float32 or float64. `first` (B or 1, N, 1) is True at the first token of each example, `hidden` (B, N, 1) at
    tokens that leave the state unchanged. `state` (B, D) is h before these tokens.
    """
    log_a = -rate * upcast(r).sigmoid()
    a, scale = log_a.exp(), _Root.apply(torch.expm1(2 * log_a).neg())
    if first is not None:
        scale = scale.masked_fill(first, 1.0)
    b = scale * upcast(i).sigmoid() * upcast(x)
    if hidden is not None:
        a, b = a.masked_fill(hidden, 1.0), b.masked_fill(hidden, 0.0)
    return diagonal_scan(a, b, state)
