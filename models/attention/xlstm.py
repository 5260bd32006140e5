"""xLSTM[7:1]: LSTMs with exponential gates, seven of eight with a matrix memory (Beck et al., 2024, arXiv 2405.04517).

    mLSTM   [u, g] = W_up x,  c = SiLU(conv(u)),  q = W_q c,  k = W_k c,  v = W_v u,  [i~, f~] = W [q, k, v] + b
            y = W_down ( (LN(h) + s * c) * SiLU(g) ),  h of (q, k, v, i~, f~): models/ops/mlstm.py       (eqs. 19-27)
    sLSTM   c = SiLU(conv(x)),  i~, f~ = W c + b,  z~, o~ = W x + b
            y = LN(h),  h of (i~, f~, z~, o~): models/ops/slstm.py                                        (eqs. 8-17)

LN is per head. conv is causal, with 4 taps and a bias. The mLSTM's W_q, W_k and W_v have blocks of 4 channels, the
sLSTM's matrices one block per head. With `ffn` the sLSTM's own network follows, and the layer adds y' to the residual
r:

    y' = y + W_3 (GELU(W_1 l) * W_2 l),  l = LN(r + y)

The mLSTM has the head width E = W / H, time O(N W (D + E)), memory O(N W (1 + E / 64)) and a decoding state of
W (E + taps) + H numbers. The sLSTM has E = D / H, sequential time O(N D E), memory O(N D) and a decoding state of
D (3 + taps) numbers. There are no attention weights, so dropout has no effect.

    B batch, N length, D width, W inner width of the mLSTM, H heads, E head width
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import Attention, Pattern, State
from models.layers.convolution import ShortConvolution
from models.layers.feedforward import SLICE, GatedFeedForward, in_slices
from models.layers.rglru import BlockLinear
from models.ops import mlstm as matrix
from models.ops import slstm as scalar
from models.ops.heads import split_heads
from models.ops.precision import autocast_disabled, upcast

ROUND = 64  # the hidden width of the sLSTM's network is a multiple of this many


def small_std(dim: int) -> float:
    """Initial standard deviation of weights (Nguyen & Salazar, 2019, arXiv 1910.05895)."""
    return math.sqrt(2 / (5 * dim))


def normal_linear(inputs: int, outputs: int, std: float) -> nn.Linear:
    """Linear without bias and with normal weights."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=std)
    return layer


def block_linear(dim: int, blocks: int, std: float, *, bias: bool) -> BlockLinear:
    layer = BlockLinear(dim, blocks, bias=bias)
    nn.init.normal_(layer.weight, std=std)
    return layer


class HeadNorm(nn.Module):
    """LayerNorm per head with a weight and no bias: H E parameters. In float32 at least."""

    def __init__(self, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, h: Tensor) -> Tensor:
        """h (.., H, E) -> (.., H E), in the type of the weight."""
        y = F.layer_norm(upcast(h), h.shape[-1:]).flatten(-2)
        return (y * upcast(self.weight)).to(self.weight.dtype)


class Convolution(ShortConvolution):
    """SiLU(b + conv(x)): (taps + 1) D parameters, initially uniform within 1 / sqrt(taps), torch's default."""

    def __init__(self, dim: int, taps: int):
        super().__init__(dim, taps)
        bound = taps**-0.5
        nn.init.uniform_(self.weight, -bound, bound)
        self.bias = nn.Parameter(torch.empty(dim).uniform_(-bound, bound))

    def chunk(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, state = super().chunk(x, state)
        return F.silu(y + self.bias), state


class MLSTM(nn.Module):
    """3 D W + 3 W c + (taps + 3) W + 6 W H + 2 H parameters with blocks of c channels, W = `expand` D."""

    def __init__(self, dim: int, heads: int, expand: int, taps: int, block: int):
        super().__init__()
        width, std = expand * dim, small_std(dim)
        self.heads, self.head_dim = heads, width // heads
        self.up_proj = normal_linear(dim, 2 * width, std)
        self.convolution = Convolution(width, taps)
        self.q_proj, self.k_proj, self.v_proj = (block_linear(width, width // block, std, bias=False) for _ in range(3))
        self.gate_proj = nn.Linear(3 * width, 2 * heads)  # i~, then f~
        nn.init.zeros_(self.gate_proj.weight)
        with torch.no_grad():
            self.gate_proj.bias[:heads].normal_(std=0.1)
            self.gate_proj.bias[heads:] = torch.linspace(3.0, 6.0, heads)
        self.norm, self.skip = HeadNorm(width), nn.Parameter(torch.ones(width))
        self.out_proj = normal_linear(width, dim, 2 * dim**-0.5)

    def start(self, depth: float) -> None:
        """No initial value depends on the layer's relative depth, from 0 to 1."""

    def rescale(self, factor: float) -> None:
        """Multiply the output weights."""
        with torch.no_grad():
            self.out_proj.weight *= factor

    def empty_state(self, batch: int) -> State:
        """The last inputs of the convolution, (taps - 1) W numbers, and the memory, W (E + 1) + H."""
        memory = matrix.empty_state(self.skip, batch, self.heads, self.head_dim)
        return {"convolution": self.convolution.empty_state(batch), "memory": memory}

    @staticmethod
    def unread(state: State) -> State:
        """An empty state for tokens after which no state is read."""
        return state | {"memory": (None, state["memory"][1])}

    def read(self, x: Tensor, state: State, residual: Tensor, padding: Tensor | None) -> tuple[Tensor, State]:
        """x (B, n, D), mask (B, n) True at padding -> (B, n, D), the state after it. The residual is not used."""
        u, gate = self.up_proj(x).chunk(2, -1)
        if padding is not None:
            u = u.masked_fill(padding[..., None], 0.0)
        # the memory is float32, and 16-bit products of so few channels add error without saving time
        with autocast_disabled(x):
            c, convolution = self.convolution.chunk(u.to(self.skip.dtype), state["convolution"])
            q, k, v = self.q_proj(c), self.k_proj(c), self.v_proj(u.to(self.skip.dtype))
            gates = self.gates(q, k, v).transpose(1, 2).chunk(2, 1)  # (B, H, n) each
            q, k, v = (split_heads(y, self.head_dim) for y in (q, k, v))
            h, memory = matrix.mlstm(q, k, v, *gates, state["memory"], padding)
        return self.write(h, c, gate), {"convolution": convolution, "memory": memory}

    def gates(self, *rows: Tensor) -> Tensor:
        """i~ and f~ (B, n, 2 H) from q, k and v (B, n, W); in float32 at least, because they are exponents."""
        weights = upcast(self.gate_proj.weight).chunk(3, 1)
        sums = (F.linear(upcast(y), weight) for y, weight in zip(rows, weights, strict=True))
        return sum(sums, start=upcast(self.gate_proj.bias))

    def write(self, h: Tensor, c: Tensor, gate: Tensor) -> Tensor:
        """y (B, n, D) from h (B, H, n, E), c and g (B, n, W)."""
        return self.out_proj((self.norm(h.transpose(1, 2)) + self.skip * c) * F.silu(gate))


class SLSTM(nn.Module):
    """8 D^2 / H + (taps + 6) D parameters, plus 3 D F + D with its own network of F > 0 hidden units."""

    def __init__(self, dim: int, heads: int, taps: int, hidden_dim: int):
        super().__init__()
        self.heads, self.head_dim, std = heads, dim // heads, small_std(dim)
        self.convolution = Convolution(dim, taps)
        self.i_proj, self.f_proj, self.z_proj, self.o_proj = (
            block_linear(dim, heads, std, bias=True) for _ in range(4)
        )
        self.recurrent = nn.Parameter(torch.zeros(heads, self.head_dim, 4, self.head_dim))
        self.norm, self.ffn = HeadNorm(dim), None
        if hidden_dim:
            self.ffn_norm = nn.LayerNorm(dim, bias=False)
            self.ffn = GatedFeedForward(dim, hidden_dim, activation="gelu")
            for layer in (self.ffn.gate, self.ffn.value):
                nn.init.normal_(layer.weight, std=std)
            nn.init.normal_(self.ffn.out.weight, std=2 * dim**-0.5)
        self.start(0.0)

    def start(self, depth: float) -> None:
        """Set b of f~ from 5 to -7 along a head, by a power that grows with the depth, from 0 to 1."""
        channel = torch.arange(self.head_dim) / max(1, self.head_dim - 1)
        with torch.no_grad():
            self.f_proj.bias.copy_((5 - 12 * channel ** (0.3 + 1.3 * depth)).repeat(self.heads))

    def rescale(self, factor: float) -> None:
        """Multiply the output weights of its own network."""
        if self.ffn is not None:
            with torch.no_grad():
                self.ffn.out.weight *= factor

    def empty_state(self, batch: int) -> State:
        """The last inputs of the convolution, (taps - 1) D numbers, and h, c, n and m, 4 D."""
        cells = scalar.empty_state(self.recurrent, batch, self.heads, self.head_dim)
        return {"convolution": self.convolution.empty_state(batch), "cells": cells}

    @staticmethod
    def unread(state: State) -> State:
        """An empty state for tokens after which no state is read."""
        return state

    def read(self, x: Tensor, state: State, residual: Tensor, padding: Tensor | None) -> tuple[Tensor, State]:
        """x and the residual (B, n, D), mask (B, n) True at padding -> (B, n, D), the state after it."""
        if padding is not None:
            x = x.masked_fill(padding[..., None], 0.0)
        c, convolution = self.convolution.chunk(x, state["convolution"])
        gates = self.i_proj(c), self.f_proj(c), self.z_proj(x), self.o_proj(x)
        gates = torch.stack([y.unflatten(-1, (self.heads, self.head_dim)) for y in gates], 2)  # (B, n, 4, H, E)
        h, cells = scalar.slstm(gates, self.recurrent, state["cells"], padding)
        y = self.norm(h)
        if self.ffn is not None:
            y = y + in_slices(self.network, residual + y)
        return y, {"convolution": convolution, "cells": cells}

    def network(self, x: Tensor) -> Tensor:
        """The norm and the network, (B, n, D) -> (B, n, D)."""
        return self.ffn(self.ffn_norm(x))


class XLSTM(Attention):
    """Every `slstm_every`-th layer is an sLSTM, or those in `slstm_at`, counted from 0; the others are mLSTMs.

    The parameters are those of the layer's kind. A single layer is the first one. `expand` is W / D, `conv` the number
    of taps, `qkv_block` the size of the mLSTM's blocks.

    The published layers are pre-LN. An mLSTM has no feed-forward network, an sLSTM has its own: a recipe that compares
    the published xLSTM sets `ffn` here and `ffn: none` in the backbone. `ffn_dim` is F; None means 1.3 D rounded up to
    a multiple of 64, as in the published code. The layer then takes its `residual` and returns everything that is added
    to it. Without `ffn` the backbone's feed-forward network is used, as for the other methods.

    Initial values are those of the published code: normal with variance 2 / (5 D); output weights with 4 / (D L^2) for
    L layers, which `set_previous` counts; the mLSTM's gate weights and R are zero. Biases, the weights of norms, s and
    R have no weight decay, as there (D-48).

    A padded token counts as zero in the convolution and leaves the memory unchanged. Raises ValueError for an `expand`,
    `conv`, `qkv_block`, `slstm_every` or `ffn_dim` below 1, a layer in `slstm_at` below 0, and an inner width that is
    not a multiple of `qkv_block`.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.CAUSAL_SELF})
    has_weights: ClassVar[bool] = False
    gates_residual: ClassVar[bool] = True

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        slstm_every: int = 8,
        slstm_at: Sequence[int] | None = None,
        expand: int = 2,
        conv: int = 4,
        qkv_block: int = 4,
        ffn: bool = False,
        ffn_dim: int | None = None,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        self.check_sizes(slstm_every=slstm_every, expand=expand, conv=conv, qkv_block=qkv_block, ffn_dim=ffn_dim)
        if slstm_at is not None and any(index < 0 for index in slstm_at):
            raise ValueError(f"xLSTM counts the layers of slstm_at from 0, not {list(slstm_at)}")
        self.slstm_every, self.slstm_at = slstm_every, None if slstm_at is None else frozenset(slstm_at)
        if expand * dim % qkv_block:
            raise ValueError(f"xLSTM's inner width {expand * dim} is not a multiple of blocks of {qkv_block} channels")
        hidden_dim = (ffn_dim or ROUND * math.ceil(1.3 * dim / ROUND)) if ffn else 0
        self.sizes = {MLSTM: (expand, conv, qkv_block), SLSTM: (conv, hidden_dim)}
        self.stack = [self]
        self.block = self.make_block(self.kind(0))

    def optimizer_options(self) -> dict[str, dict[str, float]]:
        names = [name for name, _ in self.named_parameters()]
        return {name: {"weight_decay": 0.0} for name in names if "norm" in name or not name.endswith("weight")}

    def kind(self, index: int) -> type[MLSTM] | type[SLSTM]:
        """The kind of layer `index`."""
        if self.slstm_at is None:
            return MLSTM if (index + 1) % self.slstm_every else SLSTM
        return SLSTM if index in self.slstm_at else MLSTM

    def missing_kinds(self, stack: Sequence["XLSTM"]) -> list[str]:
        named = self.slstm_at is None or bool(self.slstm_at)
        return ["sLSTM"] if named and not any(isinstance(layer.block, SLSTM) for layer in stack) else []

    def make_block(self, kind: type[MLSTM] | type[SLSTM]) -> MLSTM | SLSTM:
        return kind(self.dim, self.heads, *self.sizes[kind])

    def set_previous(self, previous: "XLSTM") -> None:
        """Become the layer after `previous`, and reset the initial values of all layers to the longer stack."""
        self.stack = previous.stack
        self.stack.append(self)
        last, kind = len(self.stack) - 1, self.kind(len(self.stack) - 1)
        if not isinstance(self.block, kind):
            self.block = self.make_block(kind)
        for index, layer in enumerate(self.stack):
            layer.block.rescale((last if index < last else 1) / (last + 1))
            layer.block.start(index / last)

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None, residual: Tensor) -> Tensor:
        state = self.empty_state(len(x))
        size = x.shape[1] if torch.is_grad_enabled() else max(1, SLICE // len(x))
        if x.shape[1] <= size:
            return self.block.read(x, self.block.unread(state), residual, key_padding_mask)[0]
        rows = []  # without gradients only the state is kept between slices of tokens
        for start in range(0, x.shape[1], size):
            part = slice(start, start + size)
            mask = None if key_padding_mask is None else key_padding_mask[:, part]
            y, state = self.block.read(x[:, part], state, residual[:, part], mask)
            rows.append(y)
        return torch.cat(rows, 1)

    def empty_state(self, batch: int) -> State:
        """The state of the layer's block."""
        return self.block.empty_state(batch)

    def chunk(self, x: Tensor, state: State, residual: Tensor | None = None) -> tuple[Tensor, State]:
        return self.block.read(x, state, x if residual is None else residual, None)
