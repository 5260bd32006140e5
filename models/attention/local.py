"""Local attention: softmax over a window (Luong et al., 2015, arXiv 1508.04025, as in the CAB benchmark).

    o_i = sum_{j in W(i)} softmax_j(<q_i, k_j> / sqrt(E)) v_j
    causal self:     W(i) = { j : i - w < j <= i }    w keys, the query's own among them
    noncausal self:  W(i) = { j : |i - j| <= w }      2 w + 1 keys

Time O(N w D), memory O(N D). Decoding keeps the last w keys and values: 2 w D numbers per layer. The two windows are
those of CAB's LocalAttention. Padding is hidden; given a padding mask, CAB attends to duplicates of the first and last
key, which is not reproduced here (D-20). LRA's "local attention" is strided and therefore a different model (D-23).

    B batch, N length, H heads, E head width, w window
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from models.attention.base import MultiHead, Pattern, State
from models.ops.banded import banded_attention
from models.ops.ring import attend_to_ring


def local(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    window: int,
    causal: bool,
    bias: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q, k, v (B, H, N, E), bias (H, keys of a window), mask (B, N) True at padding -> (B, H, N, E)."""
    left, right = (window - 1, 0) if causal else (window, window)
    return banded_attention(
        q, k, v, left=left, right=right, bias=bias, key_padding_mask=key_padding_mask, dropout=dropout
    )


class Local(MultiHead):
    """Multi-head attention to a window. Raises ValueError for a window below 1.

    `epe` adds a learned bias per head and distance, initially zero: H w parameters, or H (2 w + 1) in the noncausal
    form. With it the causal form is LAVO's local half (D-2).
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF, Pattern.CAUSAL_SELF})

    def __init__(self, dim: int, heads: int, *, window: int = 16, epe: bool = False, **options: Any):
        super().__init__(dim, heads, **options)
        self.check_sizes(window=window)
        self.window = window
        keys = window if self.pattern.causal else 2 * window + 1
        self.position_bias = nn.Parameter(torch.zeros(heads, keys)) if epe else None

    def extend(self, head_dim: int, share: float) -> int | None:
        if self.position_bias is not None:
            raise ValueError("Local's position bias does not exist in trained attention: set epe=false")
        self.q_proj = self.k_proj = self.v_proj = self.out_proj = None
        return self.window

    def mix(self, x: Tensor, v: Tensor, near: Tensor) -> Tensor:
        return near

    def mix_chunk(self, x: Tensor, v: Tensor, near: Tensor, state: State) -> tuple[Tensor, State]:
        return near, state

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        return local(
            q,
            k,
            v,
            window=self.window,
            causal=self.pattern.causal,
            bias=self.position_bias,
            key_padding_mask=key_padding_mask,
            dropout=self.active_dropout,
        )

    def empty_state(self, batch: int) -> State:
        if self.q_proj is None:  # trained attention keeps the window
            return {}
        return self.empty_cache(batch, self.window)

    def attend_chunk(self, q: Tensor, k: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        return attend_to_ring(q, k, v, state, bias=self.position_bias)
