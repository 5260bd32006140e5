"""Kimi Delta Attention: Gated DeltaNet with a decay for each key channel (Kimi Team, 2025, arXiv 2510.26692).

    S_t = (I - beta_t k_t k_t') diag(alpha_t) S_{t-1} + beta_t k_t v_t'                                     (1)
    alpha_t = exp(-a softplus(W_2 W_1 x_t + b))
    y_t = W_o ( RMSNorm(S_t' q_t) * sigmoid(W_4 W_3 x_t + c) )

q, k, v, beta and the norm are those of models/attention/deltanet.py, and so are memory and decoding state. Time is
O(N (D^2 + D (C + K))) with log2 C exponentials per key channel. a > 0 is one number per head, b one per key channel;
W_1 and W_3 have R outputs. a starts uniform in (1, 16) and softplus(b) log-uniform in [0.001, 0.1]; both have no weight
decay. The gate has a bias c, as in flash-linear-attention; in the model that Moonshot released it has none (D-58).

    B batch, N length, D width, H heads, K key width, V value width, R rank
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.deltanet import DeltaNet
from models.attention.gated_deltanet import FASTEST_RATE
from models.layers.initialisers import step_biases
from models.ops.heads import split_heads
from models.ops.precision import upcast, upcast_linear

SLOWEST_RATE = 1.0  # lower bound of the initial a


class KimiDeltaAttention(DeltaNet):
    """H ((D + taps) (2 K + V) + D (V + 1) + (R + 1) (K + V) + 1) + V + 2 D R parameters; R = V if `rank` is None.

    The other options are those of DeltaNet. Raises ValueError for a rank below 1.
    """

    def __init__(self, dim: int, heads: int, *, rank: int | None = None, **options: Any):
        super().__init__(dim, heads, **options)
        self.check_sizes(rank=rank)
        rank = self.value_dim if rank is None else rank
        self.decay_proj = nn.Sequential(
            nn.Linear(dim, rank, bias=False), nn.Linear(rank, heads * self.key_dim, bias=False)
        )
        self.log_rate = nn.Parameter(torch.empty(heads).uniform_(SLOWEST_RATE, FASTEST_RATE).log())
        self.decay_bias = nn.Parameter(step_biases(heads * self.key_dim))
        self.gate_proj = nn.Sequential(nn.Linear(dim, rank, bias=False), nn.Linear(rank, heads * self.value_dim))

    def optimizer_options(self) -> dict[str, dict[str, float]]:
        return {name: {"weight_decay": 0.0} for name in ("log_rate", "decay_bias")}

    def log_decay(self, x: Tensor) -> Tensor:
        inner, outer = self.decay_proj
        steps = F.softplus(upcast_linear(outer, inner(x)) + upcast(self.decay_bias))
        return -upcast(self.log_rate).exp()[:, None, None] * split_heads(steps, self.key_dim)

    def gate(self, x: Tensor) -> Tensor:
        return split_heads(self.gate_proj(x), self.value_dim).sigmoid()
