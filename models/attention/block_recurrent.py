"""Block-Recurrent Transformer: a window, and states updated once per window (Hutchins et al., 2022, 2203.07852).

    o_i = W_o sum_{i-w < j <= i} softmax_j( <q_i, k_j> E^-1/2 + b[i - j] ) v_j                      every layer
    U = LN(C_g) + I,   (K', V') = U W'_kv,   (Q', Q'') = U W'_qq                                    the recurrent layer:
    o_i += W'_o softmax( W'_q x_i K'^T E^-1/2 ) V',   i in window g, [g w, g w + w)
    h = [ softmax( Q' K'^T E^-1/2 ) V' ; softmax( Q'' K_g^T E^-1/2 ) V_g ],   K_g, V_g of the tokens of window g
    C_{g+1} = C_g * s + (W_z h + b_z) * (1 - s),   s = sigmoid(b_s)                                 gate "bias"
    C_{g+1} = C_g * sigmoid(W_f h + b_f + 1) + tanh(W_z h + b_z) * sigmoid(W_i h + b_i - 1)         gate "lstm"

C_0 = 0. Tokens and states each have queries for both tokens and states; keys and values are shared. The learned ids I
distinguish the states; b is T5's relative bias (Raffel et al., 2020) with 32 ranges of distances up to 128. The states
have no feed-forward network, the paper's best variant ("skip"); tokens use that of the backbone.

Windows are sequential and parallel inside: O(N (w + S + S^2 / w) D) time, O(N (1 + S / w) D) memory with torch's fused
kernels. Decoding keeps the window's keys and values, the states and their keys and values: 2 w D + 3 S D numbers.

    B batch, N length, D width, H heads, E head width, w window, S states
"""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import (
    INPUT_GAIN,
    Attention,
    MultiHead,
    Pattern,
    State,
    check_choice,
    projection,
    without_biases,
)
from models.layers.initialisers import lecun_normal_
from models.ops.banded import banded_attention
from models.ops.heads import merge_heads, split_heads
from models.ops.precision import upcast
from models.ops.ring import after_latest, attend_to_ring

RANGES, FURTHEST = 32, 128  # T5's buckets of distances; half of them hold a single distance
GATE_STD = 0.1  # initial standard deviation of the gate's biases


def distance_ranges(distances: Tensor) -> Tensor:
    """T5's bucket, 0 to 31, for each distance to an earlier token."""
    single = RANGES // 2
    share = (distances.clamp(min=single).double() / single).log() / math.log(FURTHEST / single)
    wide = (single + (share * (RANGES - single)).long()).clamp(max=RANGES - 1)
    return torch.where(distances < single, distances, wide)


class BiasGate(nn.Module):
    """A moving average with a learned rate per channel: 2 D^2 + 2 D parameters."""

    def __init__(self, dim: int):
        super().__init__()
        self.linear = gate_linear(2 * dim, dim)
        self.rate = nn.Parameter(GATE_STD * torch.randn(dim))

    def forward(self, states: Tensor, h: Tensor) -> Tensor:
        keep = upcast(self.rate).sigmoid()
        return states * keep + upcast(self.linear(h)) * (1 - keep)


class LSTMGate(nn.Module):
    """The gates of an LSTM, without its output gate: 6 D^2 + 3 D parameters."""

    def __init__(self, dim: int):
        super().__init__()
        self.linear = gate_linear(2 * dim, 3 * dim)

    def forward(self, states: Tensor, h: Tensor) -> Tensor:
        new, enter, forget = upcast(self.linear(h)).chunk(3, -1)
        return states * (forget + 1).sigmoid() + new.tanh() * (enter - 1).sigmoid()


def gate_linear(inputs: int, outputs: int) -> nn.Linear:
    """Small initial values, as in the paper, but not zero, from which training would learn to ignore the states."""
    layer = nn.Linear(inputs, outputs)
    lecun_normal_(layer.weight, inputs)
    nn.init.normal_(layer.bias, std=GATE_STD)
    return layer


GATES = {"bias": BiasGate, "lstm": LSTMGate}


class Recurrence(nn.Module):
    """The states, how tokens read them, and their update: 6 D^2 + (S + 2) D parameters plus those of the gate."""

    def __init__(self, dim: int, heads: int, window: int, slots: int, gate: str):
        super().__init__()
        self.head_dim, self.window = dim // heads, window
        self.ids = nn.Parameter(dim**-0.5 * torch.randn(slots, dim))
        self.norm = nn.LayerNorm(dim)
        self.token_q, self.token_out = projection(dim, dim, INPUT_GAIN), projection(dim, dim, 1.0)
        self.state_q = projection(dim, 2 * dim, INPUT_GAIN)  # queries to states, then to tokens
        self.state_kv = projection(dim, 2 * dim, INPUT_GAIN)
        without_biases(self.token_q, self.token_out, self.state_q, self.state_kv)
        self.gate = GATES[gate](dim)

    def start(self, like: Tensor) -> State:
        """C_0 with its keys and values, for the batch of `like` (B, ..)."""
        return self.with_keys(upcast(like.new_zeros(len(like), *self.ids.shape)))

    def numbered(self, states: Tensor) -> Tensor:
        """U from the states (B, S, D)."""
        return self.norm(states.to(self.ids.dtype)) + self.ids

    def with_keys(self, states: Tensor) -> State:
        """C (B, S, D), K' and V' (B, H, S, E)."""
        k, v = (split_heads(x, self.head_dim) for x in self.state_kv(self.numbered(states)).chunk(2, -1))
        return {"states": states, "k": k, "v": v}

    def update(self, memory: State, k: Tensor, v: Tensor, hidden: Tensor | None, dropout: float) -> State:
        """`memory` after a window of tokens, k and v (B, H, w, E), hidden (B, w) True at padding."""
        q = self.state_q(self.numbered(memory["states"])).chunk(2, -1)
        to_states, to_tokens = (split_heads(x, self.head_dim) for x in q)
        from_states = F.scaled_dot_product_attention(to_states, memory["k"], memory["v"], dropout_p=dropout)
        seen, nothing = None, None
        if hidden is not None:
            nothing = hidden.all(1)[:, None]
            seen = ~(hidden & ~nothing)[:, None, None]  # not every kernel survives a row that sees nothing
        from_tokens = F.scaled_dot_product_attention(to_tokens, k, v, attn_mask=seen, dropout_p=dropout)
        if nothing is not None:
            from_tokens = from_tokens.masked_fill(nothing[..., None, None], 0.0)
        return self.with_keys(
            self.gate(memory["states"], torch.cat([merge_heads(from_states), merge_heads(from_tokens)], -1))
        )

    def walk(
        self,
        x: Tensor,
        k: Tensor,
        v: Tensor,
        memory: State,
        before: int = 0,
        *,
        key_padding_mask: Tensor | None = None,
        dropout: float = 0.0,
    ) -> tuple[Tensor, State]:
        """What the tokens x (B, n, D) read, (B, n, D), and the memory that the last token read.

        k and v (B, H, before + n, E) begin with the `before` <= w tokens since the memory's last update; these may be
        missing if before + n <= w.
        """
        q, rows = split_heads(self.token_q(x), self.head_dim), []
        first, here, end = 0, before, before + x.shape[1]  # of the window, of the reading tokens, of all tokens
        while here < end:
            if here - first == self.window:
                now = slice(first, here)
                hidden = None if key_padding_mask is None else key_padding_mask[:, now]
                memory = self.update(memory, k[:, :, now], v[:, :, now], hidden, dropout)
                first = here
            stop = min(first + self.window, end)
            part = q[:, :, here - before : stop - before]
            rows.append(F.scaled_dot_product_attention(part, memory["k"], memory["v"], dropout_p=dropout))
            here = stop
        return self.token_out(merge_heads(torch.cat(rows, 2))), memory


class BlockRecurrent(MultiHead):
    """4 D^2 + 32 H parameters; in the recurrent layer 12 D^2 + (S + 4) D + 32 H, with gate "lstm" 4 D^2 + D more.

    Layer number `recurrent_layer` of a stack, counted from 1, is recurrent, or the last layer of a shorter stack; the
    others consist of the window. A single layer counts as the last of a stack of one. 0 makes no layer recurrent.
    `slots` is S. Only the gate's projection has a bias. A query sees w keys, including its own.

    Each example starts from C_0, and gradients pass through all of its windows; the published code passes states from
    one segment of a book to the next. An all-padding window also updates the states.

    Raises ValueError for a window or a number of slots below 1, a negative `recurrent_layer`, and an unknown gate.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.CAUSAL_SELF})

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        window: int = 512,
        slots: int = 512,
        gate: str = "bias",
        recurrent_layer: int = 10,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        if min(window, slots) < 1 or recurrent_layer < 0:
            raise ValueError(f"window and slots >= 1, recurrent_layer >= 0, not {window}, {slots}, {recurrent_layer}")
        check_choice("gate", gate, GATES)
        self.window, self.recurrent_layer, self.index = window, recurrent_layer, 1
        self.drop_biases()
        self.position_bias = nn.Parameter(torch.zeros(heads, RANGES))
        self.recurrence = Recurrence(dim, heads, window, slots, gate) if recurrent_layer else None

    def set_previous(self, previous: Attention) -> None:
        """Become the layer after `previous`: the recurrence stays in the top layer, at most in `recurrent_layer`."""
        self.index = previous.index + 1
        below = previous if self.index <= self.recurrent_layer else self
        below.recurrence = None

    def bias(self) -> Tensor:
        """(H, w), for the distances from w - 1 to 0."""
        distances = torch.arange(self.window - 1, -1, -1, device=self.position_bias.device)
        return self.position_bias[:, distance_ranges(distances)]

    def forward(
        self, x: Tensor, context: Tensor | None = None, *, key_padding_mask: Tensor | None = None, carry: Any = None
    ) -> tuple[Tensor, Any]:
        x = self.source(x, context)
        q, k, v = (self.project(linear, x) for linear in (self.q_proj, self.k_proj, self.v_proj))
        options = {"key_padding_mask": key_padding_mask, "dropout": self.active_dropout}
        y = banded_attention(q, k, v, left=self.window - 1, right=0, bias=self.bias(), **options)
        y = self.out_proj(merge_heads(y))
        if self.recurrence is not None:
            y = y + self.recurrence.walk(x, k, v, self.recurrence.start(x), **options)[0]
        return y, carry

    def empty_state(self, batch: int) -> State:
        """Rings of the window's keys and values; in the recurrent layer, also the states with their keys and values."""
        memory = None if self.recurrence is None else self.recurrence.start(self.q_proj.weight.new_empty(batch, 0))
        return {"window": self.empty_cache(batch, self.window), "memory": memory}

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        q, k, v = (self.project(linear, x) for linear in (self.q_proj, self.k_proj, self.v_proj))
        seen, ring, memory = state["window"]["seen"], state["window"], state["memory"]
        before, keys, values = 0, k, v
        if self.recurrence is not None and seen:
            before = (seen - 1) % self.window + 1  # tokens that the states have not read yet
            if before + x.shape[1] > self.window:  # they will now: copy these before the ring is overwritten
                keys, values = (after_latest(ring[name], x, seen, before) for name, x in (("k", k), ("v", v)))
        y, ring = attend_to_ring(q, k, v, ring, bias=self.bias())
        y = self.out_proj(merge_heads(y))
        if self.recurrence is not None:
            read, memory = self.recurrence.walk(x, keys, values, memory, before)
            y = y + read
        return y, {"window": ring, "memory": memory}
