"""HGRN2: gated linear recurrence whose outer products expand the state (Qin et al., 2024, arXiv 2404.07904).

    q_t = SiLU(W_q x_t) E^-1/2,   f_t = g + (1 - g) sigmoid(W_f x_t),   v_t = W_v x_t
    S_t = diag(f_t) S_{t-1} + (1 - f_t) v_t',   o_t = S_t' q_t,   y_t = W_o RMSNorm(o_t)
    g = P_1 + .. + P_l in layer l = 0 .. L-1,   P = softmax over layers of L learned rows of D channels

The key of a token is 1 - f_t, so that the gate needs no weights of its own. The lower bound g of the gate grows from
layer to layer and is zero in the first. The paper's output gate is the query; RMSNorm is over all heads and cancels
E^-1/2 up to its epsilon (D-55).

Time O(N (C + E) D), memory O(N (D + D E / C)), decoding state E^2 numbers per head, D E in all: `expand_ratio` scales
it. With `conv` taps, W_q x, W_f x and W_v x pass a causal convolution per channel: `use_short_conv` of
flash-linear-attention, off there by default as here. No attention weights are formed, so dropout has no effect.

    B batch, N length, D width, H heads, E head width, L layers, C chunk of 64 tokens
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.gla import GatedLinear
from models.layers.convolution import convolved, torch_convolution
from models.layers.norms import upcast_rms_norm
from models.ops.heads import merge_heads, split_heads
from models.ops.precision import upcast

EPSILON = 1e-5


class HGRN2(GatedLinear):
    """4 D^2 + D parameters, 3 D `conv` of the taps, and L D of the rows that all layers of a stack share; no biases.

    `expand_ratio` is E and sets the number of heads to D / E; None means the head width of the recipe. Initial weights
    are torch's; the rows start at zero, so that layer l starts with g = l / L. A single layer is the first of one. A
    padded token is zero in the convolution and leaves the state unchanged. Raises ValueError for an `expand_ratio` or
    taps below 1, and for an `expand_ratio` that does not divide the width.
    """

    def __init__(
        self, dim: int, heads: int, *, expand_ratio: int | None = None, conv: int | None = None, **options: Any
    ):
        super().__init__(dim, heads, **options)
        self.check_sizes(expand_ratio=expand_ratio, conv=conv)
        self.expand_ratio = self.head_dim if expand_ratio is None else expand_ratio
        if dim % self.expand_ratio:
            raise ValueError(f"HGRN2's width {dim} is not a multiple of heads of {self.expand_ratio} channels")
        self.state_sizes = dim // self.expand_ratio, self.expand_ratio, self.expand_ratio
        self.q_proj, self.f_proj, self.v_proj, self.out_proj = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.norm = nn.RMSNorm(dim, eps=EPSILON)
        self.conv = conv or 1
        self.convolution = None if conv is None else torch_convolution(3 * dim, conv)
        self.stack = [self]
        self.rows = nn.Parameter(torch.zeros(1, dim))  # P before the softmax, (L, D)
        self.index = 0

    def set_previous(self, previous: "HGRN2") -> None:
        """Become the layer after `previous`, and add a row for it in all layers."""
        self.stack, self.index = previous.stack, previous.index + 1
        self.stack.append(self)
        rows = nn.Parameter(self.rows.new_zeros(len(self.stack), self.dim))
        for layer in self.stack:
            layer.rows = rows

    def set_last(self) -> None:
        if len(self.stack) == 1:  # the first layer's g is zero
            self.rows.requires_grad_(False)

    def lower_bound(self) -> tuple[Tensor, Tensor]:
        """log g and log(1 - g), (D,), in float32 at least. Not for the first layer, whose g is zero."""
        shares = upcast(self.rows).log_softmax(0)
        below, above = shares[1 : self.index + 1], torch.cat([shares[:1], shares[self.index + 1 :]])
        return below.logsumexp(0), above.logsumexp(0)

    def project(
        self, x: Tensor, window: Tensor | None = None, padding: Tensor | None = None
    ) -> tuple[list[Tensor], Tensor | None]:
        """q, k = 1 - f, v and log f, (B, H, N, E) each, of x (B, N, D), in float32 at least, and `window`.

        `window` (B, taps - 1, 3 D) holds the last inputs of the convolution, None of none; mask (B, N).
        """
        parts = self.q_proj(x), self.v_proj(x), self.f_proj(x)
        if self.convolution is not None:
            parts, window = convolved(self.convolution, parts, window, padding)
        q, v, gate = map(upcast, parts)
        q, k, decay = F.silu(q), torch.sigmoid(-gate), F.logsigmoid(gate)
        if self.index:
            bound, rest = self.lower_bound()
            k, decay = rest.exp() * k, torch.logaddexp(bound, rest + decay)
        q, k, v, decay = (split_heads(y, self.expand_ratio) for y in (q, k, v, decay))
        return [q * self.expand_ratio**-0.5, k, v, decay], window

    def write(self, x: Tensor, o: Tensor) -> Tensor:
        """y (B, N, D) in the type of x from o (B, H, N, E)."""
        return self.out_proj(upcast_rms_norm(self.norm, merge_heads(o)).to(x.dtype))
