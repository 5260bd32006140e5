"""Griffin: gated linear recurrences and, every third layer, local attention (De et al., 2024, arXiv 2402.19427).

    recurrent   y = W_o ( GELU(W_y x) * RGLRU(conv(W_x x)) ),  conv(u)_t = b + sum_{i<4} w_i u_{t-i}      (§2.3)
    local       o_i = sum_{i-w < j <= i} softmax_j( <R^i q_i, R^j k_j> / sqrt(E) ) v_j                   (§2.2, §2.3)
                one head of k and v for all heads of q; R, RoPE's rotation, turns the first half of the channels

The RG-LRU is in models/layers/rglru.py. Layers cycle through the kinds in `block_types`. Time O(N D W) and
O(N D (D + w)), memory O(N (D + W)), decoding state 4 W and 2 w E numbers. As in the published code, GELU is its tanh
form, RoPE's pairs are (j, j + R/2), W_y, W_x and both W_o have biases, and weights are normal with variance 1 / inputs
(.01 / 4 in the convolution). That code multiplies the variance of W_o by 2 / layers, a number that no single layer
knows. Griffin's MLP is the backbone's feed-forward network. The code's window has w + 1 keys; here it has w (D-8).

    B batch, N length, D width, H heads, E head width, W width of the recurrence, w window, R rotated channels
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import Pattern, State
from models.attention.block_cycle import BlockCycle
from models.layers.convolution import ShortConvolution
from models.layers.rglru import RGLRU
from models.ops.banded import banded_attention
from models.ops.heads import merge_heads, split_heads
from models.ops.positions import apply_rope, rope_frequencies
from models.ops.ring import Ring, attend_to_ring, empty_ring

CONVOLUTION_VARIANCE = 0.01  # divided by the number of taps


def fan_in_linear(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    """Linear with weights of variance 1 / inputs and a zero bias or none."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.normal_(layer.weight, std=inputs**-0.5)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


class RecurrentBlock(nn.Module):
    """3 D W + 2 W + D parameters, plus 2 W^2 / H + 3 W of the RG-LRU in H blocks, plus (taps + 1) W.

    Raises ValueError for fewer than one tap, and for a width W that is not a multiple of the heads.
    """

    has_weights = False

    def __init__(self, dim: int, heads: int, width: int, taps: int):
        super().__init__()
        self.y_proj, self.x_proj = fan_in_linear(dim, width), fan_in_linear(dim, width)
        self.convolution = ShortConvolution(width, taps)
        nn.init.normal_(self.convolution.weight, std=(CONVOLUTION_VARIANCE / taps) ** 0.5)
        self.convolution_bias = nn.Parameter(torch.zeros(width))
        self.recurrence = RGLRU(width, heads)
        self.out_proj = fan_in_linear(width, dim)

    def forward(self, x: Tensor, *, key_padding_mask: Tensor | None = None, dropout: float = 0.0) -> Tensor:
        """x (B, N, D), mask (B, N) True at padding -> (B, N, D). `dropout` has no effect: there are no weights."""
        u = self.convolution(self.x_proj(x), key_padding_mask=key_padding_mask) + self.convolution_bias
        return self.gate(x, self.recurrence(u, key_padding_mask=key_padding_mask))

    def gate(self, x: Tensor, h: Tensor) -> Tensor:
        """y (B, N, D) from x (B, N, D) and the recurrence's output h (B, N, W)."""
        return self.out_proj(F.gelu(self.y_proj(x), approximate="tanh") * h)

    def empty_state(self, batch: int) -> State:
        """States of the convolution and the recurrence, (taps - 1) W and W numbers."""
        return {"convolution": self.convolution.empty_state(batch), "recurrence": self.recurrence.empty_state(batch)}

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The next n tokens x (B, n, D) -> (B, n, D), equal to the same rows of `forward`."""
        u, convolution = self.convolution.chunk(self.x_proj(x), state["convolution"])
        h, recurrence = self.recurrence.chunk(u + self.convolution_bias, state["recurrence"])
        return self.gate(x, h), {"convolution": convolution, "recurrence": recurrence}


class LocalBlock(nn.Module):
    """Multi-query attention to a window: 2 D^2 + 2 D E + D parameters.

    Raises ValueError for a head width that is not a multiple of 4.
    """

    has_weights = True

    def __init__(self, dim: int, heads: int, window: int):
        super().__init__()
        self.heads, self.head_dim, self.window = heads, dim // heads, window
        if self.head_dim % 4:
            raise ValueError(f"Griffin rotates half a head's channels in pairs: {self.head_dim} is not a multiple of 4")
        self.q_proj = fan_in_linear(dim, dim, bias=False)
        self.k_proj, self.v_proj = (fan_in_linear(dim, self.head_dim, bias=False) for _ in range(2))
        self.out_proj = fan_in_linear(dim, dim)

    def project(self, x: Tensor, first: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, H, N, E), keys and values (B, 1, N, E) from x (B, N, D), at the positions from `first` on."""
        q, k, v = (split_heads(layer(x), self.head_dim) for layer in (self.q_proj, self.k_proj, self.v_proj))
        positions = torch.arange(first, first + x.shape[1], device=x.device)
        frequencies = rope_frequencies(self.head_dim // 2, device=x.device)
        q, k = (apply_rope(y, positions, frequencies, interleaved=False) for y in (q, k))
        return q, k, v

    def forward(self, x: Tensor, *, key_padding_mask: Tensor | None = None, dropout: float = 0.0) -> Tensor:
        """x (B, N, D), mask (B, N) True at padding -> (B, N, D)."""
        q, k, v = (y.expand(-1, self.heads, -1, -1) for y in self.project(x, 0))
        options = {"left": self.window - 1, "right": 0, "key_padding_mask": key_padding_mask, "dropout": dropout}
        return self.out_proj(merge_heads(banded_attention(q, k, v, **options)))

    def empty_state(self, batch: int) -> Ring:
        """Rings of the last `window` keys and values of the single head, and the number of tokens seen."""
        return empty_ring(self.k_proj.weight, batch, 1, self.window, self.head_dim)

    def chunk(self, x: Tensor, state: Ring) -> tuple[Tensor, Ring]:
        """The next n tokens x (B, n, D) -> (B, n, D), equal to the same rows of `forward`. The ring is written to."""
        y, state = attend_to_ring(*self.project(x, state["seen"]), state)
        return self.out_proj(merge_heads(y)), state


class Griffin(BlockCycle):
    """Layer l of a stack has the kind `block_types[l mod their number]`, recurrent or local, and its parameters.

    A single layer is the first one. `rnn_dim` is W; None means 4 D / 3, rounded up to a multiple of the heads, so that
    the paper's blocks have as many parameters as multi-head attention. The RG-LRU's gates have one block per head, as
    in the published code. `window` is w, `conv` the number of taps.

    Raises ValueError for an empty list or an unknown kind of block, a window, width W or number of taps below 1, a
    width W that is not a multiple of the heads and, if a layer may be local, a head width that is not a multiple of 4.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.CAUSAL_SELF})
    kinds: ClassVar[tuple[str, ...]] = ("recurrent", "local")

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        block_types: Sequence[str] = ("recurrent", "recurrent", "local"),
        rnn_dim: int | None = None,
        window: int = 1024,
        conv: int = 4,
        **options: Any,
    ):
        super().__init__(dim, heads, block_types=block_types, **options)
        self.check_sizes(window=window, rnn_dim=rnn_dim)
        self.window, self.conv = window, conv
        self.rnn_dim = heads * -(-4 * dim // (3 * heads)) if rnn_dim is None else rnn_dim
        self.build_block()

    def make_block(self, kind: str) -> RecurrentBlock | LocalBlock:
        if kind == "local":
            return LocalBlock(self.dim, self.heads, self.window)
        return RecurrentBlock(self.dim, self.heads, self.rnn_dim, self.conv)
