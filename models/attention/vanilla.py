"""Softmax attention (Vaswani et al., 2017, arXiv 1706.03762): the baseline of every table.

    Attention(Q, K, V) = softmax(Q K' / sqrt(E)) V                                              (1)

Time O(N M D). Memory O((N + M) D) with torch's fused kernels; with weight dropout or a padding mask some of them fall
back to all N M scores. Decoding keeps all keys and values: 2 N D numbers per layer. `RotaryVanilla` rotates queries and
keys by their positions before the product (Su et al., 2021, arXiv 2104.09864; base 10000, adjacent channels paired).

    B batch, N query length, M key length, H heads, E head width
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from models.attention.base import MultiHead, Pattern, State
from models.ops.attention import attention
from models.ops.padding import see_something
from models.ops.positions import apply_rope, rope_frequencies


def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q (B, H, N, E), k and v (B, H, M, E), mask (B, M) True at padding -> (B, H, N, E).

    Without `causal`, a query whose keys are all padding gets zeros.
    """
    if key_padding_mask is None:
        return attention(q, k, v, causal=causal, dropout=dropout)
    visible = ~key_padding_mask[:, None, None]  # (B, 1, 1, M)
    if causal:
        past = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
        visible = visible & past  # (B, 1, N, M)
    y = attention(q, k, v, mask=see_something(visible), dropout=dropout)
    return y if causal else y.masked_fill(key_padding_mask.all(1)[:, None, None, None], 0.0)


class Vanilla(MultiHead):
    """Multi-head softmax attention. Raises ValueError on decoding past `max_length`."""

    patterns: ClassVar[frozenset[Pattern]] = frozenset(Pattern)
    linear: bool = False

    def extend(self, head_dim: int, share: float) -> int | None:
        return None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        causal = self.pattern is Pattern.CAUSAL_SELF
        return softmax_attention(q, k, v, causal=causal, key_padding_mask=key_padding_mask, dropout=self.active_dropout)

    def empty_state(self, batch: int) -> State:
        return self.growing_cache(batch)

    def attend_chunk(self, q: Tensor, k: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        seen, state = state["seen"], self.remember(k, v, state)
        end = state["seen"]
        k, v = state["k"][:, :, :end], state["v"][:, :, :end]
        if seen == 0:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            past = None  # a single query sees all keys
            if end - seen > 1:
                past = torch.ones(end - seen, end, dtype=torch.bool, device=q.device).tril(seen)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=past)
        return y, state


class MathVanilla(Vanilla):
    """The same function without torch's fused kernels: it forms all N M weights in O(N M) memory."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return super().attend(q, k, v, key_padding_mask)


class RotaryVanilla(Vanilla):
    """Self-attention with rotary positions. Raises ValueError for an odd head width."""

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF, Pattern.CAUSAL_SELF})

    def __init__(self, dim: int, heads: int, **options: Any):
        super().__init__(dim, heads, **options)
        rope_frequencies(self.head_dim)  # refuses an odd width

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        positions = torch.arange(q.shape[2], device=q.device)
        return super().attend(apply_rope(q, positions), apply_rope(k, positions), v, key_padding_mask)

    def attend_chunk(self, q: Tensor, k: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        positions = torch.arange(state["seen"], state["seen"] + q.shape[2], device=q.device)
        return super().attend_chunk(apply_rope(q, positions), apply_rope(k, positions), v, state)
