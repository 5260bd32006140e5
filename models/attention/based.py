"""Based: Taylor linear attention, small windows and gated short convolutions (Arora et al., 2024, arXiv 2402.18668).

    linear   o_t = sum_{s<=t} A_ts v_s / sum_{s<=t} A_ts,   A_ts = 1 + a + a^2 / 2,   a = <q_t, k_s> / sqrt(F)
    window   o_i = sum_{i-w < j <= i} softmax_j( <R^i q_i, R^j k_j> / sqrt(E) ) v_j,   R is RoPE's rotation
    conv     y = W_o ( SiLU(conv(u)) * g ),   [u, g] = W_i x + b,   conv with 3 taps and no bias

Linear and window layers have heads and end with W_o o. Queries and keys of the linear layer have F = 16 channels per
head, of which m = 1 + F + F (F + 1) / 2 features follow (models/ops/taylor.py). Layers cycle through the kinds in
`block_types`; the published stack of 27 starts and ends with one more convolution (D-60). The published code keeps F^2
products where x_i x_j and x_j x_i are one feature here.

Time O(N D (D + m)), O(N D (D + w)) and O(N D W), memory O(N (D + W)). The decoding states have m (D + H), 2 w D and
2 W numbers; `feature_dim` scales the first, `window` the second.

    B batch, N length, D width, H heads, E head width, F feature dimension, w window, W inner width of the convolution
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import Pattern, State
from models.attention.block_cycle import BlockCycle
from models.layers.convolution import torch_convolution
from models.layers.initialisers import bert_linears_
from models.layers.sliding_window import SlidingWindow
from models.ops.heads import merge_heads, split_heads
from models.ops.kernel_attention import empty_sums, kernel_attention_chunk, normalise, with_ones
from models.ops.ring import Ring
from models.ops.taylor import feature_count, taylor_attention, taylor_features

FLOOR = 0.25  # a query's sum of weights is 1/2 or more, unless it sees nothing but padding


class LinearBlock(nn.Module):
    """2 D H F + 2 D^2 parameters."""

    has_weights = False

    def __init__(self, dim: int, heads: int, feature_dim: int):
        super().__init__()
        self.heads, self.head_dim, self.feature_dim = heads, dim // heads, feature_dim
        self.q_proj, self.k_proj = (nn.Linear(dim, heads * feature_dim, bias=False) for _ in range(2))
        self.v_proj, self.out_proj = (nn.Linear(dim, dim, bias=False) for _ in range(2))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q and k (B, H, N, F) and v (B, H, N, E) from x (B, N, D)."""
        q, k = (split_heads(layer(x), self.feature_dim) for layer in (self.q_proj, self.k_proj))
        return q, k, split_heads(self.v_proj(x), self.head_dim)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, sums: Tensor, key_padding_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """o (B, H, N, E) and the sums after N tokens."""
        values = with_ones(v)
        if key_padding_mask is not None:
            values = values.masked_fill(key_padding_mask[:, None, :, None], 0.0)
        y, sums = taylor_attention(q, k, values, sums)
        return normalise(y, 0.0, FLOOR).to(v.dtype), sums

    def forward(self, x: Tensor, *, key_padding_mask: Tensor | None = None, dropout: float = 0.0) -> Tensor:
        """x (B, N, D), mask (B, N) True at padding -> (B, N, D). `dropout` has no effect: there are no weights."""
        q, k, v = self.project(x)
        return self.out_proj(merge_heads(self.attend(q, k, v, self.empty_state(len(x))["sums"], key_padding_mask)[0]))

    def empty_state(self, batch: int) -> State:
        """Sums of phi(k) [v 1]', (B, H, m, E + 1)."""
        features = feature_count(self.feature_dim)
        return {"sums": empty_sums(batch, self.heads, features, self.head_dim, self.q_proj.weight)}

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The next n tokens x (B, n, D) -> (B, n, D), equal to the same rows of `forward`."""
        q, k, v = self.project(x)
        if x.shape[1] == 1:
            y, sums = kernel_attention_chunk(taylor_features(q), taylor_features(k), v, state["sums"], floor=FLOOR)
        else:
            y, sums = self.attend(q, k, v, state["sums"])
        return self.out_proj(merge_heads(y)), {"sums": sums}


class WindowBlock(nn.Module):
    """4 D^2 parameters. Raises ValueError for a window below 1, and for an odd head width."""

    has_weights = True

    def __init__(self, dim: int, heads: int, window: int):
        super().__init__()
        self.attention = SlidingWindow(dim, heads, window, causal=True)
        self.v_proj, self.out_proj = (nn.Linear(dim, dim, bias=False) for _ in range(2))

    def values(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, H, N, E)."""
        return split_heads(self.v_proj(x), self.attention.head_dim)

    def forward(self, x: Tensor, *, key_padding_mask: Tensor | None = None, dropout: float = 0.0) -> Tensor:
        """x (B, N, D), mask (B, N) True at padding -> (B, N, D)."""
        y = self.attention(x, self.values(x), key_padding_mask=key_padding_mask, dropout=dropout)
        return self.out_proj(merge_heads(y))

    def empty_state(self, batch: int) -> Ring:
        return self.attention.empty_state(batch)

    def chunk(self, x: Tensor, state: Ring) -> tuple[Tensor, Ring]:
        """The next n tokens x (B, n, D) -> (B, n, D), equal to the same rows of `forward`. The ring is written to."""
        y, state = self.attention.chunk(x, self.values(x), state)
        return self.out_proj(merge_heads(y)), state


class ConvBlock(nn.Module):
    """3 D W + 2 W + D parameters, plus W per tap. Raises ValueError for fewer than one tap."""

    has_weights = False

    def __init__(self, dim: int, width: int, taps: int):
        super().__init__()
        self.in_proj, self.out_proj = nn.Linear(dim, 2 * width), nn.Linear(width, dim)
        self.convolution = torch_convolution(width, taps)

    def forward(self, x: Tensor, *, key_padding_mask: Tensor | None = None, dropout: float = 0.0) -> Tensor:
        """x (B, N, D), mask (B, N) True at padding -> (B, N, D). `dropout` has no effect: there are no weights."""
        u, gate = self.in_proj(x).chunk(2, -1)
        return self.out_proj(F.silu(self.convolution(u, key_padding_mask=key_padding_mask)) * gate)

    def empty_state(self, batch: int) -> State:
        """The last taps - 1 inputs of the convolution, (B, taps - 1, W)."""
        return {"convolution": self.convolution.empty_state(batch)}

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The next n tokens x (B, n, D) -> (B, n, D), equal to the same rows of `forward`."""
        u, gate = self.in_proj(x).chunk(2, -1)
        u, convolution = self.convolution.chunk(u, state["convolution"])
        return self.out_proj(F.silu(u) * gate), {"convolution": convolution}


class Based(BlockCycle):
    """Layer l of a stack has the kind `block_types[l mod their number]` and its parameters.

    `feature_dim` is F, `window` w, `expand` W / D and `conv` the number of taps.

    Raises ValueError for an empty list or an unknown kind of block, for sizes below 1 and, if a layer may be a window,
    for an odd head width.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.CAUSAL_SELF})
    kinds: ClassVar[tuple[str, ...]] = ("linear", "window", "conv")

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        block_types: Sequence[str] = ("linear", "window", "conv", "conv", "conv"),
        feature_dim: int = 16,
        window: int = 64,
        expand: int = 2,
        conv: int = 3,
        **options: Any,
    ):
        super().__init__(dim, heads, block_types=block_types, **options)
        self.check_sizes(feature_dim=feature_dim, window=window, expand=expand, conv=conv)
        self.feature_dim, self.window, self.expand, self.conv = feature_dim, window, expand, conv
        self.build_block()

    def make_block(self, kind: str) -> LinearBlock | WindowBlock | ConvBlock:
        if kind == "linear":
            block = LinearBlock(self.dim, self.heads, self.feature_dim)
        elif kind == "window":
            block = WindowBlock(self.dim, self.heads, self.window)
        else:
            block = ConvBlock(self.dim, self.expand * self.dim, self.conv)
        bert_linears_(block)  # N(0, 0.02^2) and zero biases are the published initial values, too
        return block
