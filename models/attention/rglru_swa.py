"""RGLRU-SWA: a recurrence and attention to a window of its outputs, Latte's competitor (Dolga et al., 2024, §4.1).

    Y = RGLRU(X),  Z = RMSNorm(Y),  Q = W_q Z,  K = W_k Z,  V = W_v X
    o_i = sum_{i-w < j <= i} softmax_j( <R^i q_i, R^j k_j> / sqrt(E) ) v_j,   R RoPE's rotation

Time O(N w D), memory O(N D), decoding state D + 2 w D numbers. As in Latte's layers there are no biases, weights are
LeCun-normal, the window holds w keys (D-8) and the RG-LRU has one block per head (D-9). No reading that was tried
matches the paper's 141 M parameters.

    B batch, N length, D width, H heads, E head width, w window
"""

from typing import Any, ClassVar

from torch import Tensor

from models.attention.base import Attention, Pattern, State
from models.layers.rglru import NormalisedRGLRU
from models.layers.sliding_window import SlidingWindow, lecun_linear
from models.ops.heads import merge_heads, split_heads


class RGLRUSWA(Attention):
    """4 D^2 + 2 D^2/H + 4 D parameters. Raises ValueError for a window below 1, or an odd head width."""

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.CAUSAL_SELF})

    def __init__(self, dim: int, heads: int, *, window: int = 128, **options: Any):
        super().__init__(dim, heads, **options)
        self.recurrence = NormalisedRGLRU(dim, heads, causal=True)
        self.local = SlidingWindow(dim, heads, window, causal=True)
        self.v_proj, self.out_proj = lecun_linear(dim, dim), lecun_linear(dim, dim)

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        z = self.recurrence(x, key_padding_mask=key_padding_mask)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = self.local(z, v, key_padding_mask=key_padding_mask, dropout=self.active_dropout)
        return self.out_proj(merge_heads(y))

    def empty_state(self, batch: int) -> State:
        """The states of the recurrence and the window."""
        return {"recurrence": self.recurrence.empty_state(batch), "local": self.local.empty_state(batch)}

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        z, recurrence = self.recurrence.chunk(x, state["recurrence"])
        v = split_heads(self.v_proj(x), self.head_dim)  # (B, H, n, E)
        y, local = self.local.chunk(z, v, state["local"])
        return self.out_proj(merge_heads(y)), {"recurrence": recurrence, "local": local}
