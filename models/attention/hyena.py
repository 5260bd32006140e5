"""Hyena: gates and long convolutions whose filters a small network computes (Poli et al., 2023, arXiv 2302.10866).

    x_0, .., x_{R-1}, v = conv(W x + b)                   R, the order, is 2; conv is causal, with 3 taps and a bias
    v <- h_r * (x_r v) + d_r x_r v,   r = R-1 .. 1        * is a causal convolution along the sequence
    y = W_o (x_0 v) + b_o
    h(t) = FFN(z(t)) (e^{-|delta| t/(L-1)} + shift),   FFN of width P and frequencies w: sin(w .) after all but the last
    z(t) = [t/(L-1), cos(2 pi f_i t/L), -sin(2 pi f_i t/L)],   f_i evenly spaced from 1e-4 to K - 1

L is `max_length`, and delta is evenly spaced over the channels, so that a filter has decayed to 1 % after 30 % to 150 %
of L. A longer sequence reads the same functions at larger t.

Time O(N log N D + N P (P + D)), memory O(N D). There is no state of constant size: decoding keeps N D (R - 1) inputs of
the convolutions, their filters and the last taps of the short one, and takes O(N D) per token. The layer is therefore
not `linear`, although training is. `heads` is accepted but has no effect. There are no attention weights, so dropout
has no effect. A padded token is a zero in all convolutions.

    B batch, N length, D width, R order, C = D (R - 1) filters, P width of the network, K = (emb_dim - 1) / 2
"""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import ROOM, Attention, Pattern, State
from models.layers.convolution import ShortConvolution
from models.ops.fft_convolution import fft_convolution
from models.ops.precision import autocast_disabled, upcast

LOWEST = 1e-4  # f_1
SMALLEST, FIRST, LAST = 0.01, 0.3, 1.5  # the window falls to 1 % at 0.3 L in the last channel, at 1.5 L in the first
INNER = 2  # layers of the network between its first and its last


class ImplicitFilters(nn.Module):
    """h and d of C channels: P (emb_dim + 1) + 2 P (P + 1) + P C + P + C parameters."""

    def __init__(self, channels: int, length: int, emb_dim: int, width: int, frequency: float, shift: float):
        super().__init__()
        self.channels, self.length, self.bands, self.window_shift = channels, length, (emb_dim - 1) // 2, shift
        sizes = [emb_dim, *[width] * (1 + INNER)]
        self.hidden = nn.ModuleList(nn.Linear(inputs, width) for inputs in sizes[:-1])
        self.out = nn.Linear(width, channels, bias=False)
        self.frequency = nn.Parameter(torch.full((width,), float(frequency)))
        self.skip = nn.Parameter(torch.randn(channels))  # d

    def forward(self, length: int) -> Tensor:
        """Taps for distances 0 .. length - 1, (C, length), with d added to the first; in float32 at least."""
        weight = upcast(self.out.weight)
        t = torch.arange(length, dtype=torch.float64, device=weight.device)
        bands = torch.linspace(LOWEST, self.bands - 1, self.bands, dtype=torch.float64, device=weight.device)
        angle, share = bands[:, None] * (2 * math.pi * t / self.length), t[None] / max(1, self.length - 1)
        decay = torch.linspace(1 / LAST, 1 / FIRST, self.channels, dtype=weight.dtype, device=weight.device)
        window = torch.exp(math.log(SMALLEST) * decay[:, None] * share.to(weight.dtype)) + self.window_shift
        with autocast_disabled(weight):
            z = torch.cat([share, angle.cos(), -angle.sin()]).to(weight.dtype)  # (emb_dim, length)
            for layer in self.hidden:
                scaled = self.frequency[:, None] * upcast(layer.weight), self.frequency * upcast(layer.bias)
                z = torch.addmm(scaled[1][:, None], scaled[0], z).sin()
            taps = (weight @ z) * window
            return torch.cat([taps[:, :1] + self.skip[:, None], taps[:, 1:]], -1)


class Hyena(Attention):
    """(R + 1) (D^2 + D (taps + 2)) + D^2 + D parameters, and those of the filters.

    `order` is R, `conv` the number of taps, `emb_dim` the width of z, `filter_width` P, `frequency` the initial w and
    `shift` the window's. The network's weights and frequencies have no weight decay, as in the public code (D-48).

    Raises ValueError for an order below 2, an even `emb_dim` or one below 3, and other sizes below 1.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.CAUSAL_SELF})
    linear: bool = False
    has_weights: ClassVar[bool] = False

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        order: int = 2,
        conv: int = 3,
        emb_dim: int = 33,
        filter_width: int = 64,
        frequency: float = 14.0,
        shift: float = 0.0,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        self.check_sizes(conv=conv, filter_width=filter_width)
        if order < 2:
            raise ValueError(f"Hyena's order is 2 or more, not {order}")
        if emb_dim < 3 or emb_dim % 2 == 0:
            raise ValueError(f"Hyena's emb_dim is odd and at least 3 (time, cosines and sines), not {emb_dim}")
        self.order = order
        self.in_proj, self.out_proj = nn.Linear(dim, (order + 1) * dim), nn.Linear(dim, dim)
        self.convolution = ShortConvolution((order + 1) * dim, conv)
        bound = conv**-0.5  # as torch's convolutions start
        nn.init.uniform_(self.convolution.weight, -bound, bound)
        self.convolution_bias = nn.Parameter(torch.empty((order + 1) * dim).uniform_(-bound, bound))
        filters = (order - 1) * dim
        self.filters = ImplicitFilters(filters, self.max_length, emb_dim, filter_width, frequency, shift)

    def optimizer_options(self) -> dict[str, dict[str, float]]:
        names = (name for name, _ in self.filters.named_parameters() if name != "skip")
        return {f"filters.{name}": {"weight_decay": 0.0} for name in names}

    def project(self, x: Tensor) -> Tensor:
        """W x + b (B, N, (R + 1) D) of x (B, N, D), with the tokens of a channel adjacent in memory."""
        return (self.in_proj.weight @ x.mT).mT + self.in_proj.bias

    def gates(self, u: Tensor) -> tuple[Tensor, ...]:
        """x_0 .. x_{R-1} and v, (B, D, N) each, from u (B, N, (R + 1) D), upcast for the products of three."""
        return upcast(u + self.convolution_bias).mT.chunk(self.order + 1, 1)

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        first, *others, v = self.gates(self.convolution(self.project(x), key_padding_mask=key_padding_mask))
        taps = self.filters(x.shape[1]).chunk(self.order - 1)
        for gate, kernel in zip(reversed(others), taps, strict=True):
            v = gate * v
            if key_padding_mask is not None:
                v = v.masked_fill(key_padding_mask[:, None], 0.0)
            v = fft_convolution(v, kernel)
        return self.out_proj((first * v).mT.to(x.dtype))

    def empty_state(self, batch: int) -> State:
        """The last inputs of the short convolution; for each long one its inputs (B, R - 1, D, length) and its taps."""
        inputs = upcast(self.in_proj.weight.new_zeros(batch, self.order - 1, self.dim, ROOM))
        short = self.convolution.empty_state(batch)
        return {"convolution": short, "inputs": inputs, "taps": self.room_for(inputs), "seen": 0}

    def room_for(self, inputs: Tensor) -> Tensor:
        """The taps for as many distances as `inputs` has room for, the largest first: the same for all examples."""
        taps = self.filters(inputs.shape[-1]).unflatten(0, inputs.shape[1:3])  # (R - 1, D, length)
        return taps.flip(-1).expand(len(inputs), -1, -1, -1)

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        u, convolution = self.convolution.chunk(self.project(x), state["convolution"])
        first, *others, v = self.gates(u)
        inputs, taps, seen = state["inputs"], state["taps"], state["seen"]
        end, room = seen + x.shape[1], inputs.shape[-1]
        if end > room:
            inputs = F.pad(inputs, (0, max(room, end + ROOM - room)))
            taps = self.room_for(inputs)
        for number, gate in enumerate(reversed(others)):
            inputs[:, number, :, seen:end] = gate * v
            past, kernel = inputs[:, number, :, :end], taps[0, number, :, inputs.shape[-1] - end :]
            if x.shape[1] == 1:
                v = (past * kernel).sum(-1, keepdim=True)
            else:
                v = fft_convolution(past, kernel.flip(-1))[..., seen:]
        state = {"convolution": convolution, "inputs": inputs, "taps": taps, "seen": end}
        return self.out_proj((first * v).mT.to(x.dtype)), state
