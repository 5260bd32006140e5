"""RWKV-7: a token shift and a delta rule that adds along another key than it removes (Peng et al., 2025, 2503.14456).

    x^i_t = mu_i x_t + (1 - mu_i) x_{t-1} for i in r, w, k, v, a, g                                          (3)
    r = W_r x^r,  k = W_k x^k,  v = W_v x^v,  log w = -e^-1/2 sigmoid(b_w + W_2 tanh(W_1 x^w)),           (5, 9, 11-13)
    a = sigmoid(b_a + A_2 A_1 x^a),  g = G_2 sigmoid(G_1 x^g)                                                (4, 14)
    z = (k * c_k) / |k * c_k| per head,  k~ = k * (1 + (a - 1) * c_a)                                        (6, 7, 15)
    v~ = v in the first layer, else v + (v of the first layer - v) * sigmoid(b_v + V_2 V_1 x^v)              (8, 10)
    S_t = (diag(w_t) - (a_t * z_t) z_t') S_{t-1} + k~_t v~_t',   o_t = S_t' r_t                              (17)
    y_t = W_o ( g_t * (GroupNorm(o_t) + <r_t, c_r * k~_t> v~_t) ),  a group and a product per head           (20-22)

mu is one minus the paper's, S is transposed. In (10) the paper's gate is one minus ours, which is that of the code.
The chunked form in models/ops/delta_rule.py removes behind the decay: its r is z / w, at most e^0.61 times z. Time
O(N (D^2 + D (C + E))) with log2 C exponentials per channel, memory O(N D (1 + E / C)), decoding state D (E + 1)
numbers. No attention weights are formed, so dropout has no effect. RWKV-7's channel mix is not part of the layer: the
backbone's feed-forward network takes its place.

    B batch, N length, D width, H heads, E head width, C chunk of 64 tokens
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import Attention, Pattern, State
from models.attention.rwkv4 import TokenShift, zero_linear
from models.ops.delta_rule import delta_rule, delta_rule_step
from models.ops.heads import merge_heads, split_heads
from models.ops.precision import autocast_disabled, upcast

SLOPE = math.exp(-0.5)  # the fastest log decay per token
EPSILON = 1e-5  # of the norm, per channel of a head
RANK_UNIT, SMALLEST_RANK = 32, 32
OUTER_GAIN = 0.1  # of the initial second matrix of a low-rank map
DECAYED = ("r_proj", "k_proj", "v_proj", "out_proj")  # have the recipe's weight decay


def default_rank(dim: int, factor: float) -> int:
    """The public code's rank: `factor` sqrt(D), rounded to a multiple of 32, at least 32."""
    return max(SMALLEST_RANK, round(factor * dim**0.5 / RANK_UNIT) * RANK_UNIT)


class LowRank(nn.Module):
    """b + W_2 f(W_1 x): 2 D R parameters, and D of b. W_1 starts at zero, W_2 orthogonal."""

    def __init__(self, dim: int, rank: int, activation: Callable[[Tensor], Tensor] | None, *, bias: bool = True):
        super().__init__()
        self.activation = activation
        self.inner, self.outer = zero_linear(dim, rank), nn.Linear(rank, dim, bias=bias)
        nn.init.orthogonal_(self.outer.weight, OUTER_GAIN * max(1.0, rank / dim) ** 0.5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.inner(x)
        return self.outer(hidden if self.activation is None else self.activation(hidden))


def uniform_linear(dim: int, gain: float) -> nn.Linear:
    """Linear(D, D) without bias, uniform within gain / sqrt(D)."""
    layer = nn.Linear(dim, dim, bias=False)
    nn.init.uniform_(layer.weight, -gain * dim**-0.5, gain * dim**-0.5)
    return layer


class RWKV7(Attention):
    """4 D^2 + 2 D (R_w + R_a + R_g) + 13 D parameters; D (2 R_v + 1) more in all layers but the first.

    The ranks R_w, R_a, R_v and R_g are `decay_rank`, `rate_rank`, `value_rank` and `gate_rank`; None means the public
    code's 2.5, 2.5, 1.7 and 5 sqrt(D), rounded to a multiple of 32, at least 32. The carry is v of the first layer;
    `set_previous` adds to a later layer what mixes it in.

    Initial values are those of the public code (D-59); mu, b_w and the norm's weights depend on the layer's index. Only
    W_r, W_k, W_v and W_o have weight decay, as there. A padded token counts as zero in the token shift and leaves the
    state unchanged. `shift=False` leaves out the token shift. Raises ValueError for a rank below 1.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.CAUSAL_SELF})
    has_weights: ClassVar[bool] = False

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        decay_rank: int | None = None,
        rate_rank: int | None = None,
        value_rank: int | None = None,
        gate_rank: int | None = None,
        shift: bool | None = None,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        self.check_sizes(decay_rank=decay_rank, rate_rank=rate_rank, value_rank=value_rank, gate_rank=gate_rank)
        self.value_rank = default_rank(dim, 1.7) if value_rank is None else value_rank
        self.shift = TokenShift(dim, 6, active=shift is not False)
        self.r_proj, self.k_proj, self.v_proj = (uniform_linear(dim, gain) for gain in (0.5, 0.05, 0.5))
        self.out_proj = zero_linear(dim, dim)
        self.decay_map = LowRank(dim, default_rank(dim, 2.5) if decay_rank is None else decay_rank, torch.tanh)
        self.rate_map = LowRank(dim, default_rank(dim, 2.5) if rate_rank is None else rate_rank, None)
        self.gate_map = LowRank(
            dim, default_rank(dim, 5.0) if gate_rank is None else gate_rank, torch.sigmoid, bias=False
        )
        self.value_map: LowRank | None = None
        ramp, curve = self.ramp() - 0.5, self.curve()
        with torch.no_grad():
            self.rate_map.outer.bias.copy_(0.3 * curve + 0.4 * ramp - 0.19)
        self.removal_weight = nn.Parameter(0.71 - 0.1 * ramp)  # c_k
        self.rate_weight = nn.Parameter(torch.full((dim,), 1.02))  # c_a
        self.bonus = nn.Parameter(torch.full((heads, self.head_dim), -0.04))  # c_r
        self.norm_weight, self.norm_bias = nn.Parameter(torch.empty(dim)), nn.Parameter(torch.zeros(dim))
        self.stack = [self]
        self.start(0, 1)

    def ramp(self) -> Tensor:
        """From 0 in the first channel to 1 in the last one, (D,)."""
        return torch.arange(self.dim) / max(1, self.dim - 1)

    def curve(self) -> Tensor:
        """From -1 to 1 over the channels of each head, flat in the middle, (D,)."""
        middle = (self.head_dim - 1) / 2
        line = (torch.arange(self.dim) % self.head_dim - middle) / max(middle, 0.5)
        return line * line.abs()

    def set_previous(self, previous: "RWKV7") -> None:
        self.value_map = LowRank(self.dim, self.value_rank, None)
        with torch.no_grad():
            self.value_map.outer.bias.copy_(0.73 - 0.4 * (self.ramp() - 0.5))
        self.stack = previous.stack
        self.stack.append(self)
        for index, layer in enumerate(self.stack):
            layer.start(index, len(self.stack))

    def start(self, index: int, layers: int) -> None:
        """Set the initial mu, b_w and norm weights of layer `index` in a stack of `layers`."""
        depth, left = index / max(1, layers - 1), 1 - index / layers
        self.shift.start(*(share * left for share in (0.2, 0.9, 0.7, 0.7, 0.9, 0.2)))
        with torch.no_grad():
            self.decay_map.outer.bias.copy_(6 * self.ramp() ** (1 + depth**0.3) - 5.5 + 2.5 * self.curve())
            self.norm_weight.fill_(((index + 1) / layers) ** 0.7)

    def optimizer_options(self) -> dict[str, dict[str, float]]:
        names = (name for name, _ in self.named_parameters() if name.partition(".")[0] not in DECAYED)
        return {name: {"weight_decay": 0.0} for name in names}

    def forward(
        self, x: Tensor, context: Tensor | None = None, *, key_padding_mask: Tensor | None = None, carry: Any = None
    ) -> tuple[Tensor, Any]:
        x = self.source(x, context)
        state = self.empty_state(len(x))
        if x.shape[1] > 1:
            state |= {"sums": None}  # zero, and the state after the tokens is not read
        y, _, first_v = self.read(x, state, carry, key_padding_mask)
        return y, first_v

    def read(
        self, x: Tensor, state: State, first_v: Tensor | None, padding: Tensor | None = None
    ) -> tuple[Tensor, State, Tensor]:
        """n tokens x (B, n, D), mask (B, n) -> (B, n, D), the state after them, v of the first layer (B, n, D).

        `first_v` is that v in later layers; the first one does not read it.
        """
        (to_r, to_w, to_k, to_v, to_a, to_g), last = self.shift(x, state["last"], padding)
        r, k, v = self.r_proj(to_r), self.k_proj(to_k), self.v_proj(to_v)
        if self.value_map is None:
            first_v = v
        else:
            v = torch.lerp(v, first_v.to(v.dtype), self.value_map(to_v).sigmoid())
        decay = -SLOPE * upcast(self.decay_map(to_w)).sigmoid()
        with autocast_disabled(x):
            rate, removal = upcast(self.rate_map(to_a)).sigmoid(), upcast(k) * upcast(self.removal_weight)
            k = upcast(k) * (1 + (rate - 1) * upcast(self.rate_weight))
            r, k, v, decay, rate, removal = (
                split_heads(upcast(y), self.head_dim) for y in (r, k, v, decay, rate, removal)
            )
            removal = F.normalize(removal, dim=-1)
            tokens, erase = (r, k, v, removal * (-decay).exp()), rate * removal
            if x.shape[1] == 1 and padding is None:
                tokens, sums = (y[:, :, 0] for y in tokens), state["sums"]
                o, sums = delta_rule_step(*tokens, sums, decay[:, :, 0], erase=erase[:, :, 0])
                o = o[:, :, None]
            else:
                sums = state["sums"]
                options = {"initial_state": sums, "final_state": sums is not None, "key_padding_mask": padding}
                options |= {"kernel_dtype": first_v.dtype}
                o, sums = delta_rule(*tokens, decay, erase=erase, **options)
            o = merge_heads(F.layer_norm(o, o.shape[-1:], eps=EPSILON * self.head_dim))
            o = o * upcast(self.norm_weight) + upcast(self.norm_bias)
            o = o + merge_heads((r * k * upcast(self.bonus)[:, None]).sum(-1, keepdim=True) * v)
        gate = self.gate_map(to_g)
        return self.out_proj(o.to(gate.dtype) * gate), {"last": last, "sums": sums}, first_v

    def empty_state(self, batch: int) -> State:
        """The last token (B, D) and S (B, H, E, E)."""
        sums = upcast(self.bonus.new_zeros(batch, self.heads, self.head_dim, self.head_dim))
        return {"last": self.bonus.new_zeros(batch, self.shift.state_dim), "sums": sums}

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        y, after, first_v = self.read(x, state, state.get("carry"))
        return y, after if len(self.stack) == 1 else {**after, "carry": first_v}
