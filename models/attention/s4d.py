"""S4D: one diagonal state-space model per channel, run as a long convolution (Gu et al., 2022, arXiv 2206.11893).

    h_t = e^{dt w} h_{t-1} + (e^{dt w} - 1) / w x_t,   y_t = 2 Re <c, h_t> + d x_t    (zero-order hold)
    K_l = 2 Re sum_n c_n (e^{dt w_n} - 1) / w_n e^{dt w_n l},   y = K * x + d x
    o   = W_o GELU(y),   y of all C channels per input channel, concatenated

Time O(C N log N D), memory O(C N D), decoding state D S / 2 complex numbers. There are no heads, queries, keys or
values: `heads` is accepted but has no effect. No attention weights are formed, so dropout has no effect.

    B batch, N length, D width, C channels, S state size, n = S / 2 modes
"""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import Attention, Pattern, State
from models.layers.initialisers import log_steps
from models.ops.exponential_kernel import exponential_kernel, exponential_sums
from models.ops.fft_convolution import fft_convolution
from models.ops.precision import autocast_disabled, upcast


class S4D(Attention):
    """C D^2 + K D S + (C + 2) D + S parameters with K = C kernels, or 2 C if it reads the future.

    All channels share the S / 2 modes w_n = -e^(.) + i f_n, which start as S4D-Inv, -1/2 + i S / pi (S / (2n + 1) - 1).
    dt, one per channel, starts log-uniform in [0.001, 0.1]. As in the CAB benchmark's module, c includes the state
    equation's B; the initial values are those of that module.

    In the noncausal pattern a second set of c forms a kernel over the future, from the next token on. By default, CAB's
    module reads only the past, and the sizes printed for its rows (LAVO Table 5) exclude the second kernel;
    `bidirectional=False` reproduces that. CAB also lets the second kernel read padding; here padding counts as zero and
    is expected on the right (D-20). In the authors' training w and dt have a learning rate of 0.001 and no weight
    decay; `slow_lr` sets that rate.

    Raises ValueError for an odd state size, and for fewer than one channel.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF, Pattern.CAUSAL_SELF})
    has_weights: ClassVar[bool] = False

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        d_state: int = 64,
        channels: int = 1,
        bidirectional: bool = True,
        slow_lr: float | None = None,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        if d_state < 2 or d_state % 2:
            raise ValueError(f"S4D's modes come in conjugate pairs: d_state is even and positive, not {d_state}")
        self.check_sizes(channels=channels)
        self.channels, self.bidirectional = channels, bidirectional and not self.pattern.causal
        self.slow_lr = slow_lr
        kernels = 2 * channels if self.bidirectional else channels
        mode = torch.arange(d_state // 2)
        frequency = d_state / math.pi * (d_state / (2 * mode + 1) - 1)
        w = torch.complex(torch.full_like(frequency, -0.5), frequency)
        b = torch.randn(d_state // 2, dtype=w.dtype)
        b = b / (2 * (b / w).abs().square().sum()).sqrt()  # unit variance of y for a constant x
        self.readout = nn.Parameter(torch.view_as_real(torch.randn(kernels, dim, d_state // 2, dtype=w.dtype) * b))
        self.log_decay = nn.Parameter(w.real.neg().log())  # (n,)
        self.frequency = nn.Parameter(frequency)  # (n,)
        self.log_step = nn.Parameter(log_steps(dim))
        self.skip = nn.Parameter(torch.randn(channels, dim))
        self.out_proj = nn.Linear(channels * dim, dim)

    @property
    def looks_ahead(self) -> bool:
        return self.bidirectional

    def optimizer_options(self) -> dict[str, dict[str, float]]:
        slow = () if self.slow_lr is None else ("log_decay", "frequency", "log_step")
        return {name: {"lr": self.slow_lr, "weight_decay": 0.0} for name in slow}

    def modes(self) -> tuple[Tensor, Tensor]:
        """c_n (e^{dt w_n} - 1) / w_n (kernels, D, n), and dt w_n (D, n); complex."""
        w = torch.complex(-upcast(self.log_decay).exp(), upcast(self.frequency))  # (n,)
        rates = w * upcast(self.log_step).exp()[:, None]
        return torch.view_as_complex(upcast(self.readout)) * (rates.exp() - 1) / w, rates

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        if key_padding_mask is not None:
            x = x.masked_fill(key_padding_mask[..., None], 0.0)
        u = x.mT[:, None]  # (B, 1, D, N)
        coefficients, rates = self.modes()
        kernels = 2 * exponential_kernel(coefficients, rates, x.shape[1])  # (kernels, D, N)
        past, *future = kernels.split(self.channels)
        y = fft_convolution(u, past, *future) + self.skip[..., None] * u  # (B, C, D, N)
        return self.out_proj(F.gelu(y).flatten(1, 2).mT)

    def empty_state(self, batch: int) -> State:
        """h for each mode, (B, D, n), complex."""
        return {"h": self.modes()[1].new_zeros(batch, *self.readout.shape[1:3])}

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        coefficients, rates = self.modes()
        with autocast_disabled(x_t):
            h = rates.exp() * state["h"] + upcast(x_t)[..., None]
            y = 2 * torch.einsum("cdn,bdn->bcd", coefficients, h).real.to(x_t.dtype) + self.skip * x_t[:, None]
        return self.out_proj(F.gelu(y).flatten(1)), {"h": h}

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        u, length = x.mT, x.shape[1]  # (B, D, n)
        coefficients, rates = self.modes()
        with autocast_disabled(x):
            kernels = 2 * exponential_kernel(coefficients, rates, length)  # (C, D, n)
            left = 2 * exponential_kernel(coefficients * (rates.exp() * state["h"])[:, None], rates, length)
            y = fft_convolution(u[:, None], kernels) + left.to(x.dtype) + self.skip[..., None] * u[:, None]
            h = (rates * length).exp() * state["h"] + exponential_sums(upcast(u), rates)
        return self.out_proj(F.gelu(y).flatten(1, 2).mT), {"h": h}
