"""Mamba-2: a selective state-space model with one decay per head, as attention (Dao & Gu, 2024, arXiv 2405.21060, §7).

    z = W_z x,   [u, B, C, s] = W_in x,   [u, B, C] <- SiLU(conv([u, B, C])),   conv(u)_t = b + sum_{i<4} w_i u_{t-i}
    d = softplus(s + b_d),  A = -e^(.) < 0,   S_t = e^{d_t A} S_{t-1} + B_t (d_t u_t)',   o_t = S_t' C_t + D u_t
    y_t = W_out RMSNorm( o_t * SiLU(z_t) )

B and C, the keys and queries, are shared by all heads; d, A and D are numbers per head; RMSNorm is over all heads.

Time O(N (C (S + P) + S P) H), memory O(N (I + S I / C)), decoding state S I + 3 (I + 2 S) numbers: `d_state` scales it.
No attention weights are formed, so dropout has no effect. The published language models have no feed-forward networks
and use two of these layers per Transformer layer: in a backbone, set `ffn: none` and double the layers. D-54 lists the
differences from the published module, in which W_z and W_in are one matrix.

    B batch, N length, D width, I inner width, H heads, P = I / H head width, S state size, C chunk of 64 tokens
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import Recurrent, State
from models.layers.convolution import ShortConvolution
from models.layers.initialisers import step_biases
from models.layers.norms import upcast_rms_norm
from models.ops.gated_linear import gated_linear_chunk
from models.ops.heads import merge_heads, split_heads
from models.ops.precision import upcast

EPSILON = 1e-5
SLOWEST, FASTEST = 1.0, 16.0  # bounds of the initial -A


class Mamba2(Recurrent):
    """D (3 I + 2 S + H) + (taps + 1) (I + 2 S) + 3 H + I parameters with I = `expand` D.

    `conv` is the number of taps, `head_dim` is P; None means the recipe's number of heads. Initial values are those of
    the published module: -A uniform in [1, 16], D at 1, b_d such that d is log-uniform in [0.001, 0.1], and torch's
    defaults otherwise. A, D and b_d have no weight decay, as there (D-48).

    A padded token counts as zero in the convolution and leaves the state unchanged. Raises ValueError for a size below
    1, and for a `head_dim` that does not divide I.
    """

    unread: ClassVar[tuple[str, ...]] = ("sums",)

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        d_state: int = 128,
        expand: int = 2,
        conv: int = 4,
        head_dim: int | None = None,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        self.check_sizes(d_state=d_state, expand=expand, conv=conv, head_dim=head_dim)
        inner = expand * dim
        self.inner_head = inner // heads if head_dim is None else head_dim  # P
        if inner % self.inner_head:
            raise ValueError(f"Mamba-2's inner width {inner} is not a multiple of heads of {self.inner_head} channels")
        count, self.d_state = inner // self.inner_head, d_state
        mixed = inner + 2 * d_state
        self.sizes = [inner, d_state, d_state]  # of u, B and C
        # one matrix in the published module; two are faster, because no gradients of their outputs are joined
        self.gate_proj = nn.Linear(dim, inner, bias=False)
        self.in_proj = nn.Linear(dim, mixed + count, bias=False)
        self.convolution, self.convolution_bias = ShortConvolution(mixed, conv), nn.Parameter(torch.empty(mixed))
        for parameter in (self.convolution.weight, self.convolution_bias):
            nn.init.uniform_(parameter, -(conv**-0.5), conv**-0.5)
        self.step_bias = nn.Parameter(step_biases(count))
        self.log_decay = nn.Parameter(torch.empty(count).uniform_(SLOWEST, FASTEST).log())
        self.skip = nn.Parameter(torch.ones(count))
        self.norm = nn.RMSNorm(inner, eps=EPSILON)
        self.out_proj = nn.Linear(inner, dim, bias=False)

    def optimizer_options(self) -> dict[str, dict[str, float]]:
        return {name: {"weight_decay": 0.0} for name in ("step_bias", "log_decay", "skip")}

    def read(self, x: Tensor, state: State, padding: Tensor | None = None) -> tuple[Tensor, State]:
        u, s = self.in_proj(x).tensor_split([sum(self.sizes)], -1)
        if padding is not None:
            u = u.masked_fill(padding[..., None], 0.0)
        u, window = self.convolution.chunk(u, state["window"])
        u = F.silu(u + self.convolution_bias)
        u, b, c = u.split(self.sizes, -1)
        u = upcast(split_heads(u, self.inner_head))  # (B, H, n, P)
        delta = split_heads(F.softplus(upcast(s) + upcast(self.step_bias)), 1)  # (B, H, n, 1)
        decay = -upcast(self.log_decay).exp()[:, None, None] * delta
        q, k, v = c[:, None], b[:, None], delta * u  # queries and keys (B, 1, n, S)
        o, sums = gated_linear_chunk(q, k, v, decay, state["sums"], key_padding_mask=padding)
        o = merge_heads(o + upcast(self.skip)[:, None, None] * u)  # (B, n, I)
        z = self.gate_proj(x)
        y = upcast_rms_norm(self.norm, o * F.silu(upcast(z))).to(z.dtype)
        return self.out_proj(y), {"window": window, "sums": sums}

    def empty_state(self, batch: int) -> State:
        """The last inputs of the convolution (B, taps - 1, I + 2 S), and S_t (B, H, S, P)."""
        sums = self.skip.new_zeros(batch, len(self.skip), self.d_state, self.inner_head)
        return {"window": self.convolution.empty_state(batch), "sums": upcast(sums)}
