"""RWKV-4: a token shift and a gated, decayed mean of values per channel (Peng et al., 2023, arXiv 2305.13048).

    r, k, v = W (mu x_t + (1 - mu) x_{t-1}),  each with its own W and mu                                    (11-13)
    wkv_t = (sum_{s<t} e^{k_s - (t-1-s) w} v_s + e^{u + k_t} v_t) / (the same with v = 1),  w = e^(.)          (16)
    y_t = W_o (sigmoid(r_t) * wkv_t)                                                                           (17)

With `channel_mix` RWKV's own feed-forward network follows, on h = LN(x + y), and the layer adds y' to x:

    r', k' = W (mu h_t + (1 - mu) h_{t-1}),  y'_t = y_t + sigmoid(r'_t) * W_v max(k'_t, 0)^2              (14, 15, 18)

Time O(N D^2), the mean O(N D), memory O(N D), decoding state 3 D numbers, 4 D with the channel mix. There are no heads:
`heads` is accepted but has no effect. No attention weights are formed, so dropout has no effect.

    B batch, N length, D width, F hidden width of the channel mix
"""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from models.attention.base import Attention, Pattern, State
from models.layers.feedforward import SLICE
from models.ops.precision import upcast
from models.ops.running_softmax import HIDDEN
from models.ops.wkv import empty_state, wkv

Rows = tuple[Tensor, ...]


def zero_linear(inputs: int, outputs: int) -> nn.Linear:
    """Linear without bias, initially zero."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.zeros_(layer.weight)
    return layer


def orthogonal_linear(inputs: int, outputs: int) -> nn.Linear:
    """Linear without bias, initially orthogonal with gain max(1, sqrt(outputs / inputs))."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.orthogonal_(layer.weight, math.sqrt(max(1.0, outputs / inputs)))
    return layer


class TokenShift(nn.Module):
    """mu x_t + (1 - mu) x_{t-1} for `count` vectors mu: count D parameters. x_0 and padded tokens are zero.

    Not `active`: `count` times x_t, without parameters and state.
    """

    def __init__(self, dim: int, count: int, *, active: bool = True):
        super().__init__()
        self.count, self.state_dim = count, dim if active else 0
        self.shares = nn.Parameter(torch.empty(count, dim)) if active else None

    def start(self, *exponents: float) -> None:
        """Set mu of channel i to (i / D)^exponent."""
        if self.shares is None:
            return
        channel = torch.arange(self.shares.shape[1]) / self.shares.shape[1]
        with torch.no_grad():
            self.shares.copy_(torch.stack([channel**exponent for exponent in exponents]))

    def forward(self, x: Tensor, last: Tensor, padding: Tensor | None = None) -> tuple[Rows, Tensor]:
        """x (B, N, D), the token before it (B, D), mask (B, N) -> (count times (B, N, D), the last token (B, D))."""
        if padding is not None:
            x = x.masked_fill(padding[..., None], 0.0)
        if self.shares is None:
            return (x,) * self.count, last
        before = last[:, None].to(x.dtype)
        if x.shape[1] > 1:
            before = torch.cat([before, x[:, :-1]], 1)
        change = x - before
        return tuple(before + mu * change for mu in self.shares), x[:, -1].to(last.dtype, copy=True)


class ChannelMix(nn.Module):
    """LN and the gated feed-forward network: D^2 + 2 D F + 4 D parameters."""

    def __init__(self, dim: int, hidden_dim: int, *, shift: bool):
        super().__init__()
        self.norm, self.shift = nn.LayerNorm(dim), TokenShift(dim, 2, active=shift)
        self.k_proj, self.v_proj = orthogonal_linear(dim, hidden_dim), zero_linear(hidden_dim, dim)
        self.r_proj = zero_linear(dim, dim)

    def forward(self, x: Tensor, last: Tensor, padding: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x (B, N, D), the normed token before it (B, D), mask (B, N) -> (B, N, D), the last normed token (B, D)."""
        rows, last = self.shift(self.norm(x), last, padding)
        if x.shape[0] * x.shape[1] <= SLICE:
            return self.mix(*rows), last
        # in slices of tokens, which bounds the hidden units, as in the backbone's feed-forward networks
        parts = zip(*(r.split(max(1, SLICE // len(r)), 1) for r in rows), strict=True)
        if torch.is_grad_enabled():
            return torch.cat([checkpoint(self.mix, *part, use_reentrant=False) for part in parts], 1), last
        return torch.cat([self.mix(*part) for part in parts], 1), last

    def mix(self, k: Tensor, r: Tensor) -> Tensor:
        return self.r_proj(r).sigmoid() * self.v_proj(F.relu(self.k_proj(k)).square())


class RWKV4(Attention):
    """4 D^2 + 5 D parameters, plus D^2 + 2 D F + 4 D with `channel_mix`. F is `channel_dim`; None means 4 D.

    The published layer is pre-LN and has the channel mix instead of the feed-forward network: a recipe that compares
    the published layer sets `channel_mix` and `ffn: none`. The layer then takes its `residual` and returns everything
    that is added to it. Without `channel_mix` the backbone's feed-forward network is used, as for the other methods.

    Initial values are those of the published code: the projections of k, r and the output are zero, that of v is
    orthogonal; w and mu depend on the channel and on the layer's index, which `set_previous` determines; u is log 0.3
    plus 0, 1/2 or -1/2. No parameter has weight decay, as there (D-48). `shift=False` leaves out the token shift.

    A padded token counts as zero in the token shift and has no weight; the mean decays over it as over any other token.
    Raises ValueError for a hidden width below 1.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.CAUSAL_SELF})
    has_weights: ClassVar[bool] = False
    gates_residual: ClassVar[bool] = True

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        channel_mix: bool = False,
        channel_dim: int | None = None,
        shift: bool | None = None,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        self.check_sizes(channel_dim=channel_dim)
        self.shift = TokenShift(dim, 3, active=shift is not False)
        self.k_proj, self.v_proj, self.r_proj = (
            zero_linear(dim, dim),
            orthogonal_linear(dim, dim),
            zero_linear(dim, dim),
        )
        self.out_proj = zero_linear(dim, dim)
        self.log_decay = nn.Parameter(torch.empty(dim))
        self.bonus = nn.Parameter(math.log(0.3) + ((torch.arange(dim) + 1) % 3 - 1) / 2)
        self.channel_mix = None
        if channel_mix:
            self.channel_mix = ChannelMix(dim, channel_dim or 4 * dim, shift=shift is not False)
        self.stack = [self]
        self.start(0, 1)

    def set_previous(self, previous: "RWKV4") -> None:
        self.stack = previous.stack
        self.stack.append(self)
        for index, layer in enumerate(self.stack):
            layer.start(index, len(self.stack))

    def optimizer_options(self) -> dict[str, dict[str, float]]:
        return {name: {"weight_decay": 0.0} for name, _ in self.named_parameters()}

    def start(self, index: int, layers: int) -> None:
        """Set the initial w and mu of layer `index` in a stack of `layers`."""
        depth, left = index / max(1, layers - 1), 1 - index / layers
        self.shift.start(left, left, left / 2)
        with torch.no_grad():
            if self.shift.shares is not None:
                self.shift.shares[1] += 0.3 * depth
            channel = torch.arange(self.dim) / max(1, self.dim - 1)
            self.log_decay.copy_(8 * channel ** (0.7 + 1.3 * depth) - 5)
        if self.channel_mix is not None:
            self.channel_mix.shift.start(left, left)

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None, residual: Tensor) -> Tensor:
        return self.read(x, self.empty_state(len(x)), residual, key_padding_mask)[0]

    def read(self, x: Tensor, state: State, residual: Tensor, padding: Tensor | None = None) -> tuple[Tensor, State]:
        """What n tokens x (B, n, D) add to the `residual`, and the state after them; mask (B, n)."""
        (to_k, to_v, to_r), last = self.shift(x, state["last"], padding)
        k = upcast(self.k_proj(to_k))
        if padding is not None:
            k = k.masked_fill(padding[..., None], HIDDEN)
        mean, (log_sum, value) = wkv(k, self.v_proj(to_v), upcast(self.log_decay).exp(), self.bonus, state["wkv"])
        y = self.out_proj(self.r_proj(to_r).sigmoid() * mean)
        state = {**state, "last": last, "wkv": (log_sum, value)}
        if self.channel_mix is not None:
            more, state["channel"] = self.channel_mix(residual + y, state["channel"], padding)
            y = y + more
        return y, state

    def empty_state(self, batch: int) -> State:
        """The last token, z and m of the mean and, with the channel mix, its last token; (B, D) each."""
        last = self.bonus.new_zeros(batch, self.shift.state_dim)
        state = {"last": last, "wkv": empty_state(self.bonus, batch)}
        return state if self.channel_mix is None else {**state, "channel": last.clone()}

    def chunk(self, x: Tensor, state: State, residual: Tensor | None = None) -> tuple[Tensor, State]:
        return self.read(x, state, x if residual is None else residual)
