"""Block-Recurrent Transformer: a window, and states updated once per window (Hutchins et al., 2022, 2203.07852).

    o_i = W_o sum_{i-w <= j < i} softmax_j( a (<q_i, k_j> + b[i - j]) ) v_j                         every layer
    U = RMSNorm(C_g) + I,   (K', V') = U W'_kv,   (Q', Q'') = U W'_qq                               the recurrent layer:
    o_i += W'_o softmax( a' W'_q x_i K'^T ) V',   i in window g, [g w, g w + w)
    h = [ softmax( c' Q' K'^T ) V' ; softmax( c'' Q'' K_g^T ) V_g ],   K_g, V_g of the tokens of windows g - 1 and g
    C_{g+1} = C_g * r + W_z h * (1 - r),   r = sigmoid(b_r)                                         gate "bias"
    C_{g+1} = C_g * sigmoid(W_f h + b_f + 1) + W_z h * sigmoid(W_i h + b_i - 1)                     gate "lstm"

A token sees the w tokens before it, not itself; w keys and values of zeros precede the first token. All queries and
keys are divided by their norms; a, a', c' and c'' are learned, one of each per head. C_0 and the ids I, which
distinguish the states, are learned. Tokens and states each have queries for both; keys and values are shared. b is T5's
relative bias (Raffel et al., 2020) with 32 ranges of distances up to 128. The states have no feed-forward network, the
paper's best variant ("skip"); tokens use that of the backbone. All of this, including initial values, is as in the
published code (D-51); the paper prints a tanh and a bias for W_z h (`printed_gates`).

Windows are sequential and parallel inside: O(N (w + S + S^2 / w) D) time, O(N (1 + S / w) D) memory with torch's fused
kernels. Decoding keeps the keys and values of two windows, the states and their keys and values: 4 w D + 3 S D numbers.

    B batch, N length, D width, H heads, E head width, w window, S states
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import Attention, MultiHead, Pattern, State, check_choice
from models.layers.initialisers import lecun_normal_, truncated_normal_
from models.ops.heads import merge_heads, split_heads
from models.ops.precision import upcast
from models.ops.ring import after_latest, attend_before, attend_before_in_ring

RANGES, FURTHEST = 32, 128  # T5's buckets of distances; half of them hold a single distance
GATE_STD = 0.1  # initial standard deviation of the gate's biases, and of C_0
GATE_VARIANCE = 0.1  # initial variance of a gate's output; that of other projections is 1
EPS = 1e-6  # of norms


def distance_ranges(distances: Tensor) -> Tensor:
    """T5's bucket, 0 to 31, for each distance to an earlier token."""
    single = RANGES // 2
    share = (distances.clamp(min=single).double() / single).log() / math.log(FURTHEST / single)
    wide = (single + (share * (RANGES - single)).long()).clamp(max=RANGES - 1)
    return torch.where(distances < single, distances, wide)


def normalised(x: Tensor, factor: Tensor | None = None) -> Tensor:
    """Queries or keys x (B, H, .., E) divided by their norms, times a factor (H,)."""
    scale = (upcast(x).square().sum(-1, keepdim=True) + EPS).rsqrt()
    return x * (scale if factor is None else scale * factor[:, None, None]).to(x.dtype)


def dense(inputs: int, outputs: int, *, bias: bool = False, variance: float = 1.0) -> nn.Linear:
    """Linear whose outputs start with this variance if its inputs have variance 1."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    truncated_normal_(layer.weight, (variance / inputs) ** 0.5)
    if bias:
        nn.init.normal_(layer.bias, std=GATE_STD)
    return layer


class BiasGate(nn.Module):
    """A moving average with a learned rate per channel: 2 D^2 + D parameters, D more if printed."""

    def __init__(self, dim: int, printed: bool):
        super().__init__()
        self.new = dense(2 * dim, dim, bias=printed)
        self.rate = nn.Parameter(GATE_STD * torch.randn(dim))

    def forward(self, states: Tensor, h: Tensor) -> Tensor:
        keep = upcast(self.rate).sigmoid()
        return states * keep + upcast(self.new(h)) * (1 - keep)


class LSTMGate(nn.Module):
    """The gates of an LSTM, without its output gate: 6 D^2 + 2 D parameters, D more if printed."""

    def __init__(self, dim: int, printed: bool):
        super().__init__()
        self.printed = printed
        self.new = dense(2 * dim, dim, bias=printed)
        self.gates = dense(2 * dim, 2 * dim, bias=True, variance=GATE_VARIANCE)

    def forward(self, states: Tensor, h: Tensor) -> Tensor:
        new = upcast(self.new(h))
        enter, forget = upcast(self.gates(h)).chunk(2, -1)
        return states * (forget + 1).sigmoid() + (new.tanh() if self.printed else new) * (enter - 1).sigmoid()


GATES = {"bias": BiasGate, "lstm": LSTMGate}


class Recurrence(nn.Module):
    """The states, how tokens read them, and their update: 6 D^2 + (2 S + 1) D + 3 H parameters plus the gate's."""

    def __init__(self, dim: int, heads: int, window: int, slots: int, gate: str, printed_gates: bool):
        super().__init__()
        self.head_dim, self.window = dim // heads, window
        self.first_states = nn.Parameter(GATE_STD * torch.randn(slots, dim))
        self.ids = nn.Parameter(torch.randn(slots, dim))
        self.norm = nn.RMSNorm(dim, eps=EPS)
        self.token_q, self.token_out = dense(dim, dim), dense(dim, dim, variance=0.5)
        self.state_q = dense(dim, 2 * dim)  # queries to states, then to tokens
        self.state_kv = dense(dim, 2 * dim)
        self.token_factor = nn.Parameter(torch.ones(heads))
        self.state_factors = nn.Parameter(torch.ones(2, heads))  # to states, then to tokens
        self.gate = GATES[gate](dim, printed_gates)

    def start(self, like: Tensor) -> State:
        """C_0 with its keys and values, for the batch of `like` (B, ..)."""
        return self.with_keys(upcast(self.first_states).expand(len(like), -1, -1))

    def numbered(self, states: Tensor) -> Tensor:
        """U from the states (B, S, D)."""
        return self.norm(states.to(self.ids.dtype)) + self.ids

    def with_keys(self, states: Tensor) -> State:
        """C (B, S, D), K' and V' (B, H, S, E)."""
        k, v = (split_heads(x, self.head_dim) for x in self.state_kv(self.numbered(states)).chunk(2, -1))
        return {"states": states, "k": normalised(k), "v": v}

    def update(self, memory: State, k: Tensor, v: Tensor, hidden: Tensor | None) -> State:
        """`memory` after a window, from k and v (B, H, 2 w, E) of the window before and of this one.

        `hidden` (B, 2 w) is True at padding.
        """
        q = (split_heads(x, self.head_dim) for x in self.state_q(self.numbered(memory["states"])).chunk(2, -1))
        to_states, to_tokens = (normalised(x, factor) for x, factor in zip(q, self.state_factors, strict=True))
        from_states = F.scaled_dot_product_attention(to_states, memory["k"], memory["v"], scale=1.0)
        seen, nothing = None, None
        if hidden is not None:
            nothing = hidden.all(1)[:, None]
            seen = ~(hidden & ~nothing)[:, None, None]  # not every kernel survives a row that sees nothing
        from_tokens = F.scaled_dot_product_attention(to_tokens, k, v, attn_mask=seen, scale=1.0)
        if nothing is not None:
            from_tokens = from_tokens.masked_fill(nothing[..., None, None], 0.0)
        return self.with_keys(
            self.gate(memory["states"], torch.cat([merge_heads(from_states), merge_heads(from_tokens)], -1))
        )

    def walk(
        self, x: Tensor, k: Tensor, v: Tensor, memory: State, before: int = 0, *, hidden: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """What the tokens x (B, n, D) read, (B, n, D), and the memory that the last token read.

        k and v (B, H, w + before + n, E) and `hidden`, True at padding, begin with the window that the states have
        read last, then the `before` <= w tokens that they have not read yet. No state reads them if before + n <= w.
        """
        q, rows = normalised(split_heads(self.token_q(x), self.head_dim), self.token_factor), []
        first, here, end = 0, before, before + x.shape[1]  # of the window, of the reading tokens, of all tokens
        while here < end:
            if here - first == self.window:
                pair = slice(first, first + 2 * self.window)
                memory = self.update(memory, k[:, :, pair], v[:, :, pair], None if hidden is None else hidden[:, pair])
                first = here
            stop = min(first + self.window, end)
            part = q[:, :, here - before : stop - before]
            rows.append(F.scaled_dot_product_attention(part, memory["k"], memory["v"], scale=1.0))
            here = stop
        return self.token_out(merge_heads(torch.cat(rows, 2))), memory


class BlockRecurrent(MultiHead):
    """4 D^2 + 33 H parameters; in a recurrent layer 12 D^2 + (2 S + 2) D + 36 H, with gate "lstm" 4 D^2 + D more.

    The layers `recurrent_layers` of a stack, counted from 1, are recurrent, or the last layer of a stack that ends
    before the first of them; the others consist of the window. A single layer counts as the last of a stack of one. An
    empty list makes no layer recurrent. `slots` is S. Only gates have biases. Dropout drops weights of the window.

    Each example starts from C_0, and gradients pass through all of its windows; the published code passes states from
    one segment of a book to the next. An all-padding window also updates the states.

    Raises ValueError for a window or a number of slots below 1, a recurrent layer below 1, and an unknown gate.
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
        printed_gates: bool = False,
        recurrent_layers: Sequence[int] = (10,),
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        if min(window, slots, *recurrent_layers) < 1:
            sizes = f"{window}, {slots}, {list(recurrent_layers)}"
            raise ValueError(f"window, slots and recurrent_layers >= 1, not {sizes}")
        check_choice("gate", gate, GATES)
        self.window, self.recurrent_layers, self.index = window, frozenset(recurrent_layers), 1
        self.drop_biases()
        for layer in (self.q_proj, self.k_proj, self.v_proj):
            lecun_normal_(layer.weight, dim)
        self.factor = nn.Parameter(torch.ones(heads))
        self.position_bias = nn.Parameter(RANGES**-0.5 * torch.randn(heads, RANGES))
        self.recurrence = Recurrence(dim, heads, window, slots, gate, printed_gates) if recurrent_layers else None
        # with what tokens read from the states, the outputs of a recurrent layer are sums over 2 D numbers
        lecun_normal_(self.out_proj.weight, 2 * dim if recurrent_layers else dim)

    def set_previous(self, previous: Attention) -> None:
        """Become the layer after `previous`, which is then not the last one."""
        self.index = previous.index + 1
        if previous.index not in self.recurrent_layers:
            previous.drop_recurrence()
        if self.index > min(self.recurrent_layers, default=0) and self.index not in self.recurrent_layers:
            self.drop_recurrence()

    def drop_recurrence(self) -> None:
        """Become a layer that consists of the window."""
        if self.recurrence is not None:
            self.recurrence = None
            lecun_normal_(self.out_proj.weight, self.dim)

    def bias(self) -> Tensor:
        """a b, (H, w), for the distances from w to 1."""
        distances = torch.arange(self.window, 0, -1, device=self.position_bias.device)
        return self.factor[:, None] * self.position_bias[:, distance_ranges(distances)]

    def project_tokens(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """a q, k and v of the tokens x (B, n, D), (B, H, n, E)."""
        q, k, v = (self.project(linear, x) for linear in (self.q_proj, self.k_proj, self.v_proj))
        return normalised(q, self.factor), normalised(k), v

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        q, k, v = self.project_tokens(x)
        k, v = (F.pad(y, (0, 0, self.window, 0)) for y in (k, v))  # zeros precede the first token and are seen
        hidden = None if key_padding_mask is None else F.pad(key_padding_mask, (self.window, 0))
        y = attend_before(q, k, v, bias=self.bias(), scale=1.0, key_padding_mask=hidden, dropout=self.active_dropout)
        y = self.out_proj(merge_heads(y))
        if self.recurrence is not None:
            y = y + self.recurrence.walk(x, k, v, self.recurrence.start(x), hidden=hidden)[0]
        return y

    def empty_state(self, batch: int) -> State:
        """Rings of the window's keys and values.

        In a recurrent layer, also the states with their keys and values, and the window that they have read last.
        """
        if self.recurrence is None:
            return {"window": self.empty_cache(batch, self.window), "memory": None}
        memory = self.recurrence.start(self.q_proj.weight.new_empty(batch, 0))
        last = self.empty_cache(batch, self.window)
        return {"window": self.empty_cache(batch, self.window), "memory": memory, "last": [last["k"], last["v"]]}

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        q, k, v = self.project_tokens(x)
        seen, ring, memory, keys, values = state["window"]["seen"], state["window"], state["memory"], k, v
        before, updates = 0, 0  # tokens that the states have not read yet, and updates to come
        if self.recurrence is not None:
            before = (seen - 1) % self.window + 1 if seen else 0
            updates = (before + x.shape[1] - 1) // self.window
            if updates:  # copy these before the ring is overwritten
                keys, values = (
                    torch.cat([last.to(y.dtype), after_latest(ring[name], y, seen, before)], 2)
                    for last, name, y in zip(state["last"], "kv", (k, v), strict=True)
                )
        y, ring = attend_before_in_ring(q, k, v, ring, bias=self.bias(), scale=1.0)
        y = self.out_proj(merge_heads(y))
        state = {**state, "window": ring}
        if self.recurrence is not None:
            read, state["memory"] = self.recurrence.walk(x, keys, values, memory, before)
            y = y + read
            if updates:
                last = slice(updates * self.window, (updates + 1) * self.window)
                state["last"] = [keys[:, :, last].clone(), values[:, :, last].clone()]
        return y, state
