"""Linear Transformer: attention with the kernel elu(q) + 1 times elu(k) + 1 (Katharopoulos et al., 2020, 2006.16236).

    phi(x) = elu(x) + 1                                                                                             (7)
    o_i = phi(q_i)' S / ( phi(q_i)' z + eps ),   S = sum_j phi(k_j) v_j',   z = sum_j phi(k_j)                      (5)
    causal: the sums run over j <= i                                                                            (8-12)

Time O(N E D), memory O(N D), decoding state E D + D numbers. eps = 1e-6, as in LRA's code; queries are not scaled.
Padding is excluded from the sums. No attention weights are formed, so dropout has no effect.

    B batch, N query length, M key length, H heads, E head width
"""

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from models.attention.base import MultiHead, Pattern, State
from models.ops.kernel_attention import empty_sums, kernel_attention, kernel_attention_chunk, kernel_sums, read_sums
from models.ops.precision import upcast

EPSILON = 1e-6


def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, key_padding_mask: Tensor | None = None, eps: float = EPSILON
) -> Tensor:
    """q (B, H, N, E), k and v (B, H, M, E), mask (B, M) True at padding -> (B, H, N, E)."""
    return kernel_attention(phi(q), phi(k), v, causal=causal, key_padding_mask=key_padding_mask, eps=eps)


def phi(x: Tensor) -> Tensor:
    return F.elu(upcast(x)) + 1


class LinearTransformer(MultiHead):
    """Multi-head linear attention; no parameters but the projections."""

    patterns: ClassVar[frozenset[Pattern]] = frozenset(Pattern)
    has_weights: ClassVar[bool] = False

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        causal = self.pattern is Pattern.CAUSAL_SELF
        return linear_attention(q, k, v, causal=causal, key_padding_mask=key_padding_mask)

    def empty_state(self, batch: int) -> State:
        return {"sums": empty_sums(batch, self.heads, self.head_dim, self.head_dim, self.q_proj.weight)}

    def attend_chunk(self, q: Tensor, k: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        y, sums = kernel_attention_chunk(phi(q), phi(k), v, state["sums"], eps=EPSILON)
        return y, {"sums": sums}

    def keep_context(self, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> State:
        return {"sums": kernel_sums(phi(k), v, key_padding_mask)}

    def attend_context(self, q: Tensor, state: State) -> Tensor:
        return read_sums(phi(q), state["sums"], eps=EPSILON).to(q.dtype)
