"""RFA: softmax of unit vectors by random Fourier features (Peng et al., 2021, arXiv 2103.02143).

    phi(x) = m^-1/2 [ sin(W x^), cos(W x^) ],   x^ = x / |x|,   W = sigma * N,   N Gaussian, m x E
    o_i = phi(q_i)' S_i / max( phi(q_i)' z_i, floor ),   S_i = sum_j phi(k_j) v_j',   z_i = sum_j phi(k_j)
    causal: the sums run over j <= i; with `gate` S_t = g_t S_{t-1} + (1 - g_t) phi(k_t) v_t', z alike,
    g_t = sigmoid( w_g' x_t + b_g )

Time O(N m D), memory O(N D), decoding state 2 m D + 2 H m numbers. sigma is learned, E numbers per head, initially 1;
N is drawn once and saved with the weights. The published code draws from a bank of N at each training step, which is
not reproduced; its floor of 1 for features scaled by 0.1 corresponds to 100 / m here and would leave short sums
unnormalised. The floor of 0.1 is below e^-2, the smallest kernel of two unit vectors at sigma = 1, and guards against
random deviations. There is one gate per head. Padding is excluded from the sums. No attention weights are formed, so
dropout has no effect.

    B batch, N query length, M key length, H heads, E head width, m random directions
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import INPUT_GAIN, MultiHead, Pattern, State, projection
from models.ops.heads import merge_heads, split_heads
from models.ops.kernel_attention import (
    empty_sums,
    kernel_attention_chunk,
    kernel_sums,
    read_sums,
    segmented_kernel_attention,
)
from models.ops.precision import autocast_disabled, upcast


def rfa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    directions: Tensor,
    *,
    causal: bool,
    gate: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    floor: float,
) -> Tensor:
    """q (B, H, N, E), k and v (B, H, M, E), directions W (H, m, E), mask (B, M) True at padding -> (B, H, N, E).

    `gate` (B, H, N, 1), causal only, is the logit of g.
    """
    return segmented_kernel_attention(
        q,
        k,
        v,
        lambda x: fourier(x, directions),
        2 * directions.shape[1],
        causal=causal,
        key_padding_mask=key_padding_mask,
        gate=gate,
        floor=floor,
    )


def fourier(x: Tensor, directions: Tensor) -> Tensor:
    """phi of x (B, H, N, E) along W (H, m, E): (B, H, N, 2 m), in float32 or float64."""
    with autocast_disabled(x):
        angle = F.normalize(upcast(x), dim=-1) @ upcast(directions).mT
        return torch.cat([angle.sin(), angle.cos()], -1) * directions.shape[1] ** -0.5


class RFA(MultiHead):
    """Multi-head random feature attention: the projections plus D parameters, with `gate` D H + H more.

    Raises ValueError for fewer than one feature, a floor that is not positive, and a gate outside causal_self.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset(Pattern)
    has_weights: ClassVar[bool] = False

    def __init__(
        self, dim: int, heads: int, *, features: int = 64, gate: bool = False, floor: float = 0.1, **options: Any
    ):
        super().__init__(dim, heads, **options)
        self.check_sizes(features=features)
        if not floor > 0:
            raise ValueError(f"RFA requires floor > 0, not {floor}: sums of its features may be zero")
        if gate and self.pattern is not Pattern.CAUSAL_SELF:
            raise ValueError(f"RFA's gate is for pattern causal_self, not {self.pattern}: set gate=false")
        self.floor = floor
        self.sigma = nn.Parameter(torch.ones(heads, 1, self.head_dim))
        self.register_buffer("normals", torch.randn(heads, features, self.head_dim))  # (H, m, E)
        self.gate_proj = projection(dim, heads, INPUT_GAIN) if gate else None

    @property
    def directions(self) -> Tensor:
        return self.sigma * self.normals  # (H, m, E)

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        q, k, v = self.project(self.q_proj, x), self.project(self.k_proj, source), self.project(self.v_proj, source)
        return self.out_proj(merge_heads(self.attend(q, k, v, key_padding_mask, self.gate(x))))

    def gate(self, x: Tensor) -> Tensor | None:
        """The logit of g, (B, H, N, 1), of x (B, N, D)."""
        return None if self.gate_proj is None else split_heads(self.gate_proj(x), 1)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None, gate: Tensor | None = None
    ) -> Tensor:
        return rfa(
            q,
            k,
            v,
            self.directions,
            causal=self.pattern is Pattern.CAUSAL_SELF,
            gate=gate,
            key_padding_mask=key_padding_mask,
            floor=self.floor,
        )

    def empty_state(self, batch: int) -> State:
        return {"sums": empty_sums(batch, self.heads, 2 * self.normals.shape[1], self.head_dim, self.sigma)}

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        if self.pattern.cross:
            return super().chunk(x, state)
        q, k, v = (self.project(linear, x) for linear in (self.q_proj, self.k_proj, self.v_proj))
        phi_q, phi_k = (fourier(y, self.directions) for y in (q, k))
        y, sums = kernel_attention_chunk(phi_q, phi_k, v, state["sums"], gate=self.gate(x), floor=self.floor)
        return self.out_proj(merge_heads(y)), {"sums": sums}

    def keep_context(self, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> State:
        return {"sums": kernel_sums(fourier(k, self.directions), v, key_padding_mask)}

    def attend_context(self, q: Tensor, state: State) -> Tensor:
        return read_sums(fourier(q, self.directions), state["sums"], floor=self.floor).to(q.dtype)
