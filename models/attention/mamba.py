"""Mamba: a state-space model with token-dependent coefficients (Gu & Dao, 2023, arXiv 2312.00752, §3 and Figure 3).

    [u, z] = W_in x,  u <- SiLU(conv(u)),  conv(u)_t = b + sum_{i<4} w_i u_{t-i}
    [s, B, C] = W_x u,  d = softplus(W_d s + b_d),  A = -e^(.)
    h_t = e^{d_t A} h_{t-1} + d_t u_t B_t,   y_t = W_out ( (<C_t, h_t> + D u_t) * SiLU(z_t) )

Time O(N I (D + S)), memory O(N I), decoding state I S + 3 I numbers. There are no heads, queries, keys or values:
`heads` is accepted but has no effect. No attention weights are formed, so dropout has no effect. The published language
models have no feed-forward networks and use two of these layers per Transformer layer: in a backbone, set `ffn: none`
and double the layers.

    B batch, N length, D width, I inner width, S state size, R width of s
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import Recurrent, State
from models.layers.convolution import ShortConvolution
from models.layers.initialisers import step_biases
from models.ops.precision import upcast, upcast_linear
from models.ops.selective_scan import selective_scan, selective_step


class Mamba(Recurrent):
    """I (3 D + 2 R + 3 S + taps + 3) parameters with I = `expand` D; R is `dt_rank`, D / 16 rounded up if None.

    `conv` is the number of taps. Initial values are those of the published module: A at -1, .., -S in each channel, D
    at 1, b_d such that d is log-uniform in [0.001, 0.1], W_d uniform within R^-1/2, and torch's defaults otherwise.
    Published language models divide W_out by the square root of the number of layers, which no single layer knows. A
    and D have no weight decay, as there (D-48).

    A padded token counts as zero in the convolution and leaves the state unchanged. Raises ValueError for a size below
    1.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        d_state: int = 16,
        expand: int = 2,
        conv: int = 4,
        dt_rank: int | None = None,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        rank = math.ceil(dim / 16) if dt_rank is None else dt_rank
        self.check_sizes(d_state=d_state, expand=expand, conv=conv, dt_rank=rank)
        inner = expand * dim
        self.sizes = [rank, d_state, d_state]
        self.in_proj = nn.Linear(dim, 2 * inner, bias=False)
        self.convolution, self.convolution_bias = ShortConvolution(inner, conv), nn.Parameter(torch.empty(inner))
        for parameter in (self.convolution.weight, self.convolution_bias):
            nn.init.uniform_(parameter, -(conv**-0.5), conv**-0.5)
        self.x_proj = nn.Linear(inner, sum(self.sizes), bias=False)
        self.dt_proj = nn.Linear(rank, inner)
        nn.init.uniform_(self.dt_proj.weight, -(rank**-0.5), rank**-0.5)
        with torch.no_grad():
            self.dt_proj.bias.copy_(step_biases(inner))
        self.log_decay = nn.Parameter(torch.arange(1.0, d_state + 1).log().repeat(inner, 1))
        self.skip = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, dim, bias=False)

    def optimizer_options(self) -> dict[str, dict[str, float]]:
        return {name: {"weight_decay": 0.0} for name in ("log_decay", "skip")}

    def read(self, x: Tensor, state: State, padding: Tensor | None = None) -> tuple[Tensor, State]:
        u, z = self.in_proj(x).chunk(2, -1)  # (B, n, I)
        if padding is not None:
            u = u.masked_fill(padding[..., None], 0.0)
        u, window = self.convolution.chunk(u, state["window"])
        u = F.silu(u + self.convolution_bias)
        s, b, c = self.x_proj(u).split(self.sizes, -1)
        delta = F.softplus(upcast_linear(self.dt_proj, s))
        if padding is not None:
            delta = delta.masked_fill(padding[..., None], 0.0)
        decay = -upcast(self.log_decay).exp()
        if x.shape[1] == 1:
            y, h = selective_step(u[:, 0], delta[:, 0], decay, b[:, 0], c[:, 0], state["h"])
            y = y[:, None]
        else:
            y, h = selective_scan(u, delta, decay, b, c, state["h"])
        return self.out_proj((y + self.skip * u) * F.silu(z)), {"window": window, "h": h}

    def empty_state(self, batch: int) -> State:
        """The last inputs of the convolution (B, taps - 1, I), and h (B, I, S)."""
        h = upcast(self.log_decay.new_zeros(batch, *self.log_decay.shape))
        return {"window": self.convolution.empty_state(batch), "h": h}
