"""Softmax attention whose weights have dropout: `F.scaled_dot_product_attention` with cheap masks on a CPU.

torch's fused CPU kernel takes no dropout. Its other form keeps all N M weights and a mask from `bernoulli_`. This one
computes tiles (`softmax_lse`), draws each mask again in the backward pass, and keeps O((N + M) E) numbers.

    B batch, H heads, N query length, M key length, E head width, F width of the values
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops.dropout import draw_seed, drop
from models.ops.precision import autocast_disabled, upcast
from models.ops.softmax_lse import Visible, softmax_lse, softmax_lse_backward


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """q (B, H, N, E), k (B, H, M, E), v (B, H, M, F) -> (B, H, N, F).

    The mask can be expanded to (B, H, N, M): bool, True at visible keys, or numbers that are added to the scores. Each
    query sees a key. N = M if causal; there is no mask then. `dropout` is the dropped share of weights, whatever the
    mode of the calling module.
    """
    if not dropout or q.device.type != "cpu" or torch.compiler.is_compiling():
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if mask is not None and mask.is_floating_point():  # may be learned
        scores = upcast(q @ k.mT) * scale + mask
        return drop(scores.softmax(-1), dropout).to(v.dtype) @ v
    hidden = None if mask is None else (~mask).expand(*q.shape[:2], mask.shape[-2], -1)
    return _Dropped.apply(q, k, v, Visible(causal, hidden, dropout, draw_seed(dropout), scale))


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, visible: Visible) -> Tensor:
        with autocast_disabled(q):
            out, lse = softmax_lse(q, k, v, visible)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.visible = visible
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        with autocast_disabled(grad):
            return *softmax_lse_backward(grad, *ctx.saved_tensors, ctx.visible), None
