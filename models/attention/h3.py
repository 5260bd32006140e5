"""H3: a shift and a diagonal state space between gates, run as long convolutions (Fu et al., 2023, arXiv 2212.14052).

    q, k, v = W_q x + b_q, ..;   k' = shift(k) + d_k k,   shift(k)_t = sum_{l<S} K_l k_{t-l},  K_l = sum_m b_m c_{m+l}
    u_t = k'_t v_t,   h_t = a h_{t-1} + u_t,   s_t = 2 Re <c dt b / (1 - dt A / 2), h_t> + d u_t,
    a = (1 + dt A / 2) / (1 - dt A / 2)                                                            (bilinear transform)
    y_t = W_o (q_t s_t) + b_o

The shift is the state space of a register that holds the last S keys and is read by c. In heads of E > 1 channels u_t
is the outer product of k'_t and v_t (E, E), whose entries share one diagonal state space, and q_t reads s_t. The public
code has two channel orders for that output, depending on the code path; here the order is that of v, as in its fast
path.

Time O(N log N D E), memory O(N D), decoding state D (S - 1) + D E S numbers. `heads` is accepted but has no effect: E
is `head_width`. No attention weights are formed, so dropout has no effect. Padded tokens have zero keys and values.
In the published hybrid models a few layers are softmax attention of `heads` heads without positions (`attention_at`).

    B batch, N length, D width, E head width, G = D / E heads, S state size, n = S / 2 modes
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from models.attention.base import Attention, Pattern, State
from models.attention.vanilla import Vanilla
from models.layers.initialisers import log_steps
from models.ops.exponential_kernel import exponential_kernel, exponential_sums
from models.ops.fft_convolution import fft_convolution
from models.ops.precision import autocast_disabled, upcast


class ShiftSSM(nn.Module):
    """shift(x) + d x in each of C channels: C (2 S + 1) parameters.

    b starts as a unit vector, so K initially equals c, which starts like the weights of a torch convolution.
    """

    def __init__(self, channels: int, d_state: int):
        super().__init__()
        self.enter = nn.Parameter(torch.zeros(channels, d_state))  # b
        self.leave = nn.Parameter(torch.empty(channels, d_state).uniform_(-(d_state**-0.5), d_state**-0.5))  # c
        self.skip = nn.Parameter(torch.randn(channels))  # d
        nn.init.ones_(self.enter[:, 0])

    def taps(self) -> Tensor:
        """K, (C, S), with d added to the first tap."""
        kernel = fft_convolution(upcast(self.leave).flip(-1), upcast(self.enter)).flip(-1)
        return torch.cat([kernel[:, :1] + self.skip[:, None], kernel[:, 1:]], -1)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, C, N) -> (B, C, N)."""
        return fft_convolution(x, self.taps())

    def empty_state(self, batch: int) -> Tensor:
        """The last S - 1 inputs, (B, C, S - 1)."""
        return upcast(self.leave.new_zeros(batch, self.leave.shape[0], self.leave.shape[1] - 1))

    def chunk(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The next n tokens x (B, C, n) -> (B, C, n), as columns of `forward`."""
        window, taps = torch.cat([state, x], -1), self.taps()
        if x.shape[-1] == 1:
            y = (window * taps.flip(-1)).sum(-1, keepdim=True)
        else:
            y = fft_convolution(window, taps)[..., state.shape[-1] :]
        return y, window[..., x.shape[-1] :].clone()


class DiagonalSSM(nn.Module):
    """s for G sequences u, each with its own n = S / 2 modes: G (3 S + 2) parameters.

    Initial values: A as in S4D-Lin, -1/2 + i pi n; b ones; c from N(0, 1); dt log-uniform in [0.001, 0.1].
    """

    def __init__(self, channels: int, d_state: int):
        super().__init__()
        modes = d_state // 2
        self.enter = nn.Parameter(torch.view_as_real(torch.ones(channels, modes, dtype=torch.cfloat)).clone())  # b
        self.leave = nn.Parameter(torch.view_as_real(torch.randn(channels, modes, dtype=torch.cfloat)))  # c
        self.log_decay = nn.Parameter(torch.full((channels, modes), math.log(0.5)))
        self.frequency = nn.Parameter(math.pi * torch.arange(float(modes)).repeat(channels, 1))
        self.log_step = nn.Parameter(log_steps(channels))
        self.skip = nn.Parameter(torch.randn(channels))  # d

    def modes(self) -> tuple[Tensor, Tensor]:
        """2 c dt b / (1 - dt A / 2), and log a; both (G, n), complex."""
        step = upcast(self.log_step).exp()[:, None]
        move = torch.complex(-upcast(self.log_decay).exp(), upcast(self.frequency)) * step / 2  # dt A / 2
        enter, leave = (torch.view_as_complex(upcast(y)) for y in (self.enter, self.leave))
        return 2 * step * enter * leave / (1 - move), 2 * move.atanh()

    def kernel(self, length: int) -> Tensor:
        """The response of `length` outputs to one input, (G, length)."""
        kernel = exponential_kernel(*self.modes(), length)
        return torch.cat([kernel[:, :1] + self.skip[:, None], kernel[:, 1:]], -1)

    def empty_state(self, *batch: int) -> Tensor:
        """h (*batch, G, n), complex."""
        return self.modes()[1].new_zeros(*batch, *self.log_decay.shape)

    def chunk(self, u: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """The next N tokens u (.., G, N), h (.., G, n) -> s (.., G, N), h."""
        (coefficients, rates), length = self.modes(), u.shape[-1]
        if length == 1:
            h = rates.exp() * h + u
            return (coefficients * h).sum(-1, keepdim=True).real + self.skip[:, None] * u, h
        left = exponential_kernel(coefficients * rates.exp() * h, rates, length)
        added = exponential_sums(u.flatten(0, -3), rates).unflatten(0, u.shape[:-2])
        return left + fft_convolution(u, self.kernel(length)), (rates * length).exp() * h + added


class H3(Attention):
    """4 D^2 + 4 D for the projections, D (2 S + 1) for the shift, G (3 S + 2) for the diagonal state spaces.

    A, b and dt of the state spaces have no weight decay, as in the public code (D-48).

    In a stack, the layers `attention_at`, counted from 0, are softmax attention: 4 D^2 + 4 D each. The first layer is
    none of them. `shift=False` leaves out the shift: k' = k.

    Raises ValueError for an odd state size, a head width that does not divide the width, and a layer of `attention_at`
    below 1.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.CAUSAL_SELF})
    has_weights: ClassVar[bool] = False

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        d_state: int = 64,
        head_width: int = 1,
        attention_at: Sequence[int] | None = None,
        shift: bool | None = None,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        if d_state < 2 or d_state % 2:
            raise ValueError(f"H3's modes come in conjugate pairs: d_state is even and positive, not {d_state}")
        if head_width < 1 or dim % head_width:
            raise ValueError(f"H3's width {dim} is not a multiple of head_width {head_width}")
        self.index, self.attention_at = 0, frozenset(attention_at or ())
        if any(index < 1 for index in self.attention_at):
            raise ValueError(f"H3's first layer, 0, has no softmax attention: attention_at={sorted(self.attention_at)}")
        self.softmax = None  # in the layers of `attention_at`
        self.head_width = head_width
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(dim, dim) for _ in range(3))
        self.out_proj = nn.Linear(dim, dim)
        self.shift = None if shift is False else ShiftSSM(dim, d_state)
        self.diagonal = DiagonalSSM(dim // head_width, d_state)

    def optimizer_options(self) -> dict[str, dict[str, float]]:
        if self.softmax is not None:
            return {}
        shift = () if self.shift is None else ("shift.enter",)
        names = (*shift, *(f"diagonal.{name}" for name in ("enter", "log_decay", "frequency", "log_step")))
        return {name: {"weight_decay": 0.0} for name in names}

    def set_previous(self, previous: "H3") -> None:
        """Become the layer after `previous`: softmax attention in place of everything else, or H3."""
        self.index = previous.index + 1
        if self.index not in self.attention_at:
            return
        for name in [name for name, _ in self.named_children()]:
            delattr(self, name)
        options = {"pattern": self.pattern, "max_length": self.max_length, "dropout": self.dropout}
        self.softmax = Vanilla(self.dim, self.heads, **options)
        self.linear, self.has_weights = self.softmax.linear, self.softmax.has_weights

    def missing_kinds(self, stack: Sequence["H3"]) -> list[str]:
        return ["softmax"] if self.attention_at and all(layer.softmax is None for layer in stack) else []

    def project(self, x: Tensor) -> list[Tensor]:
        """q, k and v (B, D, N) from x (B, N, D), upcast because products of three exceed the range of 16 bits."""
        return [upcast(layer(x)).mT for layer in (self.q_proj, self.k_proj, self.v_proj)]

    def in_heads(self, *parts: Tensor) -> list[Tensor]:
        """(B, D, N) -> (B, E, G, N) each."""
        return [part.unflatten(1, (-1, self.head_width)).transpose(1, 2) for part in parts]

    def write(self, y: Tensor, like: Tensor) -> Tensor:
        """y (B, E, G, N) -> (B, N, D)."""
        return self.out_proj(y.transpose(1, 2).flatten(1, 2).mT.to(like.dtype))

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        if self.softmax is not None:
            return self.softmax(x, key_padding_mask=key_padding_mask)[0]
        q, k, v = self.project(x)
        if key_padding_mask is not None:
            k, v = (y.masked_fill(key_padding_mask[:, None], 0.0) for y in (k, v))
        kernel = self.diagonal.kernel(x.shape[1])
        q, k, v = self.in_heads(q, k if self.shift is None else self.shift(k), v)

        def read(q: Tensor, k: Tensor) -> Tensor:
            """The contribution of one channel per head, q and k (B, 1, G, N), to y (B, E, G, N)."""
            return q * fft_convolution(k * v, kernel)

        if self.head_width == 1:
            y = read(q, k)
        else:  # one channel at a time: all products together would be E times as large as v
            pairs = zip(q.split(1, 1), k.split(1, 1), strict=True)
            y = sum(checkpoint(read, *pair, use_reentrant=False) for pair in pairs)
        return self.write(y, x)

    def empty_state(self, batch: int) -> State:
        """The last S - 1 keys of each channel, and h for each product (B, E, E, G, n)."""
        if self.softmax is not None:
            return self.softmax.empty_state(batch)
        widths = (self.head_width, self.head_width)
        keys = None if self.shift is None else self.shift.empty_state(batch)
        return {"k": keys, "h": self.diagonal.empty_state(batch, *widths)}

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        if self.softmax is not None:
            return self.softmax.chunk(x, state)
        q, k, v = self.project(x)
        with autocast_disabled(x):
            k, keys = (k, None) if self.shift is None else self.shift.chunk(k, state["k"])
            q, k, v = self.in_heads(q, k, v)
            y, states = torch.zeros_like(v), []
            for channel, h in enumerate(state["h"].unbind(1)):
                row = slice(channel, channel + 1)
                s, h = self.diagonal.chunk(k[:, row] * v, h)
                states.append(h)
                y = y + q[:, row] * s
        return self.write(y, x), {"k": keys, "h": torch.stack(states, 1)}
