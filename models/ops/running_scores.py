"""Scores of queries against running means of keys, as in attention to slots that fill up over time.

    z_tl = <q_t, sum_{s<=t} w_tsl k_s>,   w_tsl = e^{theta_sl} / sum_{s'<=t} e^{theta_s'l}

With the running softmax o_t(p) = sum_l p_tl sum_{s<=t} w_tsl k_s, linear in p, and L(p) = sum_t <o_t(p), q_t>,

    z = dL/dp,   and for a gradient dz of z:   dq = o(dz),   dtheta = dL/dtheta,   dk = dL/dk at p = dz

Both passes are thus those of `running_softmax`: time O(N L E), no state per token, and safe for arbitrary logits.

    B batch, H heads, N length, L latents, E head width
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops.precision import autocast_disabled, upcast
from models.ops.running_softmax import running_softmax


def running_scores(q: Tensor, logits: Tensor, k: Tensor, *, key_padding_mask: Tensor | None = None) -> Tensor:
    """q and k (B, H, N, E), logits (B, H, N, L), mask (B, N) True at hidden keys -> z (B, H, N, L).

    z is float32 or float64, and zero for queries before the first visible key.
    """
    with autocast_disabled(q):
        return _RunningScores.apply(upcast(q), upcast(logits), upcast(k), key_padding_mask)


class _RunningScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q: Tensor, logits: Tensor, k: Tensor, padding: Tensor | None) -> Tensor:
        ctx.save_for_backward(q, logits, k, padding)
        with torch.enable_grad():
            p = logits.new_zeros(()).expand_as(logits).requires_grad_()  # arbitrary p: L is linear in it
            o = running_softmax(p, logits.detach(), k.detach(), key_padding_mask=padding)
        return torch.autograd.grad(o, p, q)[0]

    @staticmethod
    @once_differentiable
    def backward(ctx, dz: Tensor) -> tuple[Tensor | None, ...]:
        q, logits, k, padding = ctx.saved_tensors
        with torch.enable_grad(), autocast_disabled(q):
            logits, k = logits.detach().requires_grad_(), k.detach().requires_grad_()
            dq = running_softmax(dz, logits, k, key_padding_mask=padding)
        return dq.detach(), *torch.autograd.grad(dq, (logits, k), q), None
