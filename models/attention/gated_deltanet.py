"""Gated DeltaNet: DeltaNet with one decay per head and token, and a gate on its output (Yang et al., 2024, 2412.06464).

    S_t = alpha_t (I - beta_t k_t k_t') S_{t-1} + beta_t k_t v_t',   alpha_t = exp(-a softplus(W_alpha x_t + b))  (10)
    y_t = W_o ( RMSNorm(S_t' q_t) * SiLU(W_g x_t) )

q, k, v, beta and the norm are those of models/attention/deltanet.py, and so are time, memory and decoding state. a > 0
and b are one number per head. Heads of flash-linear-attention have a key width of 3/4 D / H and twice as wide values,
which makes 6 D^2 parameters. a starts uniform in (0, 16) and softplus(b) log-uniform in [0.001, 0.1]; both have no
weight decay. The map to beta has no bias, as there; that of the authors' release, NVlabs/GatedDeltaNet, has one (D-57).

    B batch, N length, D width, H heads, K key width, V value width
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.deltanet import DeltaNet
from models.layers.initialisers import step_biases
from models.ops.heads import split_heads
from models.ops.precision import upcast, upcast_linear

FASTEST_RATE = 16.0  # upper bound of the initial a


class GatedDeltaNet(DeltaNet):
    """H ((D + taps) (2 K + V) + D (2 V + 2) + 2) + V parameters; options and errors are those of DeltaNet."""

    def __init__(self, dim: int, heads: int, *, expand_k: float = 0.75, expand_v: float = 2.0, **options: Any):
        super().__init__(dim, heads, expand_k=expand_k, expand_v=expand_v, **options)
        self.decay_proj = nn.Linear(dim, heads, bias=False)
        self.log_rate = nn.Parameter(torch.empty(heads).uniform_(0, FASTEST_RATE).log())
        self.decay_bias = nn.Parameter(step_biases(heads))
        self.gate_proj = nn.Linear(dim, heads * self.value_dim, bias=False)

    def optimizer_options(self) -> dict[str, dict[str, float]]:
        return {name: {"weight_decay": 0.0} for name in ("log_rate", "decay_bias")}

    def log_decay(self, x: Tensor) -> Tensor:
        steps = F.softplus(upcast_linear(self.decay_proj, x) + upcast(self.decay_bias))
        return -(upcast(self.log_rate).exp() * steps).mT[..., None]

    def gate(self, x: Tensor) -> Tensor:
        return F.silu(split_heads(self.gate_proj(x), self.value_dim))
