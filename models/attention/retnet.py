"""RetNet: retention, linear attention with one decay rate per head (Sun et al., 2023, arXiv 2307.08621).

    q_t = R^t W_q x_t,  k_t = R^t W_k x_t E^-1/2,  v_t = W_v x_t,  g_t = W_g x_t
    D_ts = gamma_h^(t-s) / sqrt(sum_{r<=t} gamma_h^(t-r)),  s <= t,   gamma_h = 1 - 2^(-5-h),  h = 0 .. H-1
    o_t = sum_{s<=t} D_ts <q_t, k_s> v_s = S_t' q_t,   S_t ~ gamma_h S_{t-1} + k_t v_t'                        (5, 6)
    y_t = W_o ( SiLU(g_t) * RMSNorm(o_t) ),  the norm of each head, without weights                                (8)

R rotates channel pair j by 10000^(-j/(E/2-1)) per token, the last pair by 1 / 10000, which RoPE does not reach. The
scores of row t are also divided by c_t, which has no gradient: max(|their sum|, 1) in the paper; the sum of their
absolute values, clamped to [1, 50,000], in the public parallel form (D-50); 1 in the public step form. Up to its
epsilon of 1e-6, RMSNorm cancels c_t: with random weights y differs by 4e-5. The paper's c_t can be computed from a
state of E numbers; a sum of absolute values cannot be computed from any such state, so no linear form has it. Here c_t
is 1 in training and in decoding; `divide_scores` selects the public parallel form, which takes O(N^2 D) more time and
decodes with all keys. The key of a padded token is zero.

Time O(N (C (E + V) + E V) H), memory O(N D F), decoding state E V numbers per head. No attention weights are formed, so
dropout has no effect.

    B batch, N length, D width, H heads, E head width, F value factor, V = E F value width, C chunk of 64 tokens
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import Recurrent, State
from models.ops.gated_linear import gated_linear_chunk
from models.ops.heads import merge_heads, split_heads
from models.ops.positions import apply_rope
from models.ops.precision import autocast_disabled, upcast
from models.ops.tiles import TileBudget

EPSILON = 1e-6
INPUT_GAIN, OUTPUT_GAIN = 2**-2.5, 0.5  # gains of the initial Xavier-uniform weights, as in torchscale (D-50)
SMALLEST, LARGEST = 1.0, 5e4  # bounds of c_t
TILE = TileBudget(2**19, 2**24)  # scores that exist at once


def log_decays(heads: int, device: torch.device | None = None) -> Tensor:
    """log gamma_h, (H,), float64."""
    return torch.log1p(-(2.0 ** (-5 - torch.arange(heads, dtype=torch.float64, device=device))))


def frequencies(width: int, device: torch.device | None = None) -> Tensor:
    """Angle per token for each of the width / 2 pairs, float64."""
    return 10000.0 ** -torch.linspace(0, 1, width // 2, dtype=torch.float64, device=device)


@torch.no_grad()
def divisors(q: Tensor, k: Tensor, first: int) -> Tensor:
    """c_t from all keys and q (B, H, n, E) of the tokens from `first` on, as divided in `project`: (B, H, n, 1)."""
    batch, heads, count, _ = q.shape
    decay, positions = log_decays(heads, q.device)[:, None, None], torch.arange(k.shape[2], device=q.device)
    rows = TILE.fit(q, batch * heads * len(positions), count)
    out = []
    for part, position in zip(q.split(rows, 2), positions[first:].split(rows), strict=True):
        distance = position[:, None] - positions
        weights = (decay * distance).exp().masked_fill(distance < 0, 0.0).to(q.dtype)  # (H, T, keys)
        out.append((part @ k.mT * weights).abs().sum(-1, keepdim=True))
    return torch.cat(out, 2).clamp(SMALLEST, LARGEST)


class RetNet(Recurrent):
    """(2 + 3 F) D^2 parameters, F `value_factor`; no biases.

    Raises ValueError for an odd head width, and for a value factor below 1.
    """

    unread: ClassVar[tuple[str, ...]] = ("sums",)

    def __init__(self, dim: int, heads: int, *, value_factor: int = 2, divide_scores: bool = False, **options: Any):
        super().__init__(dim, heads, **options)
        if self.head_dim % 2:
            raise ValueError(f"retention turns pairs of channels: the head width {self.head_dim} is odd")
        self.check_sizes(value_factor=value_factor)
        self.value_dim, self.divide_scores = self.head_dim * value_factor, divide_scores
        self.linear = not divide_scores
        wide = dim * value_factor
        self.q_proj, self.k_proj = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.v_proj, self.gate_proj = nn.Linear(dim, wide, bias=False), nn.Linear(dim, wide, bias=False)
        self.out_proj = nn.Linear(wide, dim, bias=False)
        for layer in (self.q_proj, self.k_proj, self.v_proj, self.gate_proj):
            nn.init.xavier_uniform_(layer.weight, gain=INPUT_GAIN)
        nn.init.xavier_uniform_(self.out_proj.weight, gain=OUTPUT_GAIN)

    def project(self, x: Tensor, first: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q and k (B, H, N, E), v (B, H, N, V) and log decays from x (B, N, D), at the positions from `first` on.

        q is divided by the square root of the sum in D_ts, (1 - gamma^(t+1)) / (1 - gamma).
        """
        q, k = (upcast(split_heads(layer(x), self.head_dim)) for layer in (self.q_proj, self.k_proj))
        v = upcast(split_heads(self.v_proj(x), self.value_dim))
        positions, turns = (
            torch.arange(first, first + x.shape[1], device=x.device),
            frequencies(self.head_dim, x.device),
        )
        q, k = (apply_rope(y, positions, turns) for y in (q, k * self.head_dim**-0.5))
        decay = log_decays(self.heads, x.device)[:, None, None]
        total = torch.expm1(decay * (positions[:, None] + 1)) / torch.expm1(decay)  # (H, N, 1)
        return q * total.rsqrt().to(q.dtype), k, v, decay.to(q.dtype).expand(len(x), -1, x.shape[1], -1)

    def write(self, x: Tensor, o: Tensor) -> Tensor:
        """y (B, N, D) from the layer's input and o (B, H, N, V)."""
        gate = F.silu(self.gate_proj(x))
        with autocast_disabled(o):
            o = merge_heads(F.rms_norm(o, o.shape[-1:], eps=EPSILON)).to(gate.dtype)
        return self.out_proj(gate * o)

    def empty_state(self, batch: int) -> State:
        """S (B, H, E, V), the number of tokens seen and, if scores are divided, all keys."""
        new = upcast(self.q_proj.weight.new_zeros(()))
        sums = new.new_zeros(batch, self.heads, self.head_dim, self.value_dim)
        keys = {"k": new.new_zeros(batch, self.heads, 0, self.head_dim)} if self.divide_scores else {}
        return {"sums": sums, "seen": 0, **keys}

    def read(self, x: Tensor, state: State, padding: Tensor | None = None) -> tuple[Tensor, State]:
        q, k, v, decay = self.project(x, state["seen"])
        if padding is not None:
            k = k.masked_fill(padding[:, None, :, None], 0.0)
        o, sums = gated_linear_chunk(q, k, v, decay, state["sums"])
        keys = {}
        if self.divide_scores:
            keys = {"k": torch.cat([state["k"], k], 2)}
            o = o / divisors(q, keys["k"], state["seen"])
        return self.write(x, o), {"sums": sums, "seen": state["seen"] + x.shape[1], **keys}
