"""Sliding-window attention over given values: the local half of Latte Macchiato and of RGLRU-SWA.

    o_i = sum_{j in W(i)} softmax_j( <R^i W_q x_i, R^j W_k x_j> / sqrt(E) ) v_j    (Dolga et al., 2024, eq. 16)
    causal: W(i) = { j : i - w < j <= i };  else W(i) = { j : |i - j| <= w / 2 }

R is RoPE's rotation, or the identity in recipes with absolute positions only (X68). The paper prints w + 1 keys and
calls them a window of w tokens; here the window holds w keys (D-8). The noncausal form is ours (D-10).

    B batch, N length, D width, H heads, E head width
"""

import torch
from torch import Tensor, nn

from models.layers.initialisers import lecun_normal_
from models.ops.banded import banded_attention
from models.ops.heads import split_heads
from models.ops.positions import apply_rope, rope_frequencies
from models.ops.ring import Ring, attend_to_ring, empty_ring


def lecun_linear(inputs: int, outputs: int) -> nn.Linear:
    """Linear without bias and with LeCun-normal weights, as in Latte's code."""
    layer = nn.Linear(inputs, outputs, bias=False)
    lecun_normal_(layer.weight, inputs)
    return layer


class SlidingWindow(nn.Module):
    """W_q and W_k, 2 D^2 parameters, and the attention; `rope=False` omits the rotation.

    Raises ValueError for a window below 1 and, with `rope`, for an odd head width.
    """

    def __init__(self, dim: int, heads: int, window: int, *, causal: bool, rope: bool = True):
        super().__init__()
        if window < 1:
            raise ValueError(f"a sliding window has 1 key or more, not {window}")
        self.head_dim, self.window, self.rope = dim // heads, window, rope
        if rope:
            rope_frequencies(self.head_dim)  # refuses an odd width now, not at the first batch
        self.reach = (window - 1, 0) if causal else (window // 2, window // 2)
        self.q_proj, self.k_proj = lecun_linear(dim, dim), lecun_linear(dim, dim)

    def project(self, x: Tensor, first: int) -> tuple[Tensor, Tensor]:
        """Queries and keys (B, H, N, E) from x (B, N, D), at the positions from `first` on."""
        both = torch.stack([split_heads(layer(x), self.head_dim) for layer in (self.q_proj, self.k_proj)])
        if self.rope:
            both = apply_rope(both, torch.arange(first, first + x.shape[1], device=x.device))
        return both.unbind(0)

    def forward(self, x: Tensor, v: Tensor, *, key_padding_mask: Tensor | None = None, dropout: float = 0.0) -> Tensor:
        """x (B, N, D), v (B, H, N, E), mask (B, N) True at padding -> (B, H, N, E)."""
        q, k = self.project(x, 0)
        left, right = self.reach
        return banded_attention(q, k, v, left=left, right=right, key_padding_mask=key_padding_mask, dropout=dropout)

    def empty_state(self, batch: int) -> Ring:
        """Rings of the last `window` keys and values, 2 w D numbers, and the number of tokens seen."""
        heads = self.q_proj.in_features // self.head_dim
        return empty_ring(self.q_proj.weight, batch, heads, self.window, self.head_dim)

    def chunk(self, x: Tensor, v: Tensor, state: Ring) -> tuple[Tensor, Ring]:
        """The next n tokens, x (B, n, D) and v (B, H, n, E) -> (B, H, n, E), equal to rows of the causal `forward`."""
        q, k = self.project(x, state["seen"])
        return attend_to_ring(q, k, v, state)
