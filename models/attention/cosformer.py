"""cosFormer: ReLU features, weighed by the cosine of the distance (Qin et al., 2022, arXiv 2202.08791).

    o_i = sum_j a_ij v_j / max( sum_j a_ij, floor ),   a_ij = ReLU(q_i)' ReLU(k_j) cos( pi/2 (i - j) / M )
    cos(a - b) = cos a cos b + sin a sin b:   phi(x_i) = [ ReLU(x_i) sin(pi i / 2M), ReLU(x_i) cos(pi i / 2M) ]

with positions from 1. Time O(N E D), memory O(N D), decoding state 2 E D + 2 D numbers. floor = 1e-6; no 1 / sqrt(E).
No attention weights are formed, so dropout has no effect.

M is the larger number of queries and keys, per example, counted up to the last real token. In the causal form that
would leak the total length into every row, so M is `max_length` (D-27), and no longer sequence can be read. In the
cross form a query's row depends on its position and, through M, on the number of queries: noncausal only. Padding is
excluded from the sums; CAB includes it (D-20).

    B batch, N query length, M key length (and the span, in equations), H heads, E head width
"""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from models.attention.base import MultiHead, Pattern, State
from models.ops.kernel_attention import empty_sums, kernel_attention, kernel_attention_chunk
from models.ops.padding import real_lengths
from models.ops.precision import upcast

FLOOR = 1e-6


def cosformer(
    q: Tensor, k: Tensor, v: Tensor, span: Tensor, *, causal: bool, key_padding_mask: Tensor | None = None
) -> Tensor:
    """q (B, H, N, E), k and v (B, H, M, E), span (B or 1), mask (B, M) True at padding -> (B, H, N, E)."""
    phi_q, phi_k = (reweighted(x, torch.arange(1, x.shape[2] + 1, device=x.device), span) for x in (q, k))
    return kernel_attention(phi_q, phi_k, v, causal=causal, key_padding_mask=key_padding_mask, floor=FLOOR)


def reweighted(x: Tensor, positions: Tensor, span: Tensor) -> Tensor:
    """phi of x (B, H, N, E) at `positions` (N), for M = `span` (B or 1): (B, H, N, 2 E), in float32 or float64."""
    x = F.relu(upcast(x))
    # tokens beyond M are padding
    share = (positions / span.clamp(min=1)[:, None].to(x.dtype)).clamp(max=1)  # (B or 1, N)
    angle = (math.pi / 2 * share)[:, None, :, None]
    return torch.cat([x * angle.sin(), x * angle.cos()], -1)


class Cosformer(MultiHead):
    """Multi-head cosFormer; no parameters but the projections.

    Raises ValueError for a sequence longer than `max_length` in the causal form.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset(Pattern) - {Pattern.CAUSAL_CROSS}
    has_weights: ClassVar[bool] = False

    def __init__(self, dim: int, heads: int, **options: Any):
        super().__init__(dim, heads, **options)
        self.fixed_length = self.pattern.causal

    def span(self, q: Tensor, key_padding_mask: Tensor | None, keys: int) -> Tensor:
        """M of each example, (B or 1), for q (B, H, N, E)."""
        if self.pattern.causal:
            self.check_length(keys)
            return torch.full((1,), self.max_length, device=q.device)
        if key_padding_mask is None:
            span = torch.full((1,), keys, device=q.device)
        else:
            span = real_lengths(key_padding_mask)
        return span.clamp(min=q.shape[2]) if self.pattern.cross else span

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        span = self.span(q, key_padding_mask, k.shape[2])
        return cosformer(q, k, v, span, causal=self.pattern.causal, key_padding_mask=key_padding_mask)

    def empty_state(self, batch: int) -> State:
        sums = empty_sums(batch, self.heads, 2 * self.head_dim, self.head_dim, self.q_proj.weight)
        return {"sums": sums, "seen": 0}

    def attend_chunk(self, q: Tensor, k: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        end = state["seen"] + q.shape[2]
        self.check_length(end)
        positions = torch.arange(state["seen"] + 1, end + 1, device=q.device)
        span = torch.full((1,), self.max_length, device=q.device)
        phi_q, phi_k = (reweighted(x, positions, span) for x in (q, k))
        y, sums = kernel_attention_chunk(phi_q, phi_k, v, state["sums"], floor=FLOOR)
        return y, {"sums": sums, "seen": end}
