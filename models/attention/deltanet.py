"""DeltaNet: linear attention that removes a key's old value from the state before it adds the new one.

    [q~, k~, v] = SiLU(conv(W x)),  q = q~ / |q~| K^-1/2,  k = k~ / |k~|,  beta = sigmoid(W_beta x)
    S_t = (I - beta_t k_t k_t') S_{t-1} + beta_t k_t v_t',   o_t = S_t' q_t
    y_t = W_o RMSNorm(o_t),  the norm of each head, with one vector of weights for all heads

Yang et al., 2024, arXiv 2406.06484; the rule is that of Schlag et al., 2021, arXiv 2102.11174. conv is causal, per
channel, with 4 taps. There are no biases. Initial values are torch's, as in flash-linear-attention (D-56). The chunked
form is in models/ops/delta_rule.py: time O(N (D^2 + D (C + K))), memory O(N D (1 + K / C)), decoding state
H (K V + (taps - 1) (2 K + V)) numbers. No attention weights are formed, so dropout has no effect.

    B batch, N length, D width, H heads, K key width, V value width, C chunk of 64 tokens
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import Recurrent, State
from models.layers.convolution import torch_convolution
from models.ops.delta_rule import beta_delta_rule, delta_rule_step
from models.ops.heads import merge_heads, split_heads
from models.ops.precision import autocast_disabled, upcast
from models.ops.tiles import in_few_kernels

EPSILON = 1e-5  # of the norm before the output projection
UNIT_EPSILON = 1e-6  # added to |q~|^2 and |k~|^2


def unit(x: Tensor, length: float = 1.0) -> Tensor:
    """`length` x / |x| along the last dimension, in float32 or float64."""
    x, width = upcast(x), x.shape[-1]
    if in_few_kernels(x):  # one kernel, on a CPU slower
        return F.rms_norm(x, (width,), eps=UNIT_EPSILON / width) * (length * width**-0.5)
    return x * ((x.square().sum(-1, keepdim=True) + UNIT_EPSILON).rsqrt() * length)


def scaled(width: int, factor: float) -> int:
    """`factor` times `width`, rounded, at least 1. Raises ValueError for a factor of 0 or less."""
    if factor <= 0:
        raise ValueError(f"the width of keys or values is a positive multiple of another, not {factor} times {width}")
    return max(1, round(factor * width))


class DeltaNet(Recurrent):
    """H ((D + taps) (2 K + V) + D (V + 1)) + V parameters; K = `expand_k` D / H, V = `expand_v` K, both rounded.

    `conv` is the number of taps. With `negative_eigenvalues` beta lies in (0, 2), which lets the sign of a stored value
    change (Grazzi et al., 2024, arXiv 2411.12537). A padded token counts as zero in the convolution, leaves the state
    unchanged and reads nothing: its row is zero. Raises ValueError for a factor of 0 or less, or below 1 tap.
    """

    unread: ClassVar[tuple[str, ...]] = ("sums",)

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        expand_k: float = 1.0,
        expand_v: float = 1.0,
        conv: int = 4,
        negative_eigenvalues: bool = False,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        self.key_dim = scaled(self.head_dim, expand_k)
        self.value_dim = scaled(self.key_dim, expand_v)
        self.negative_eigenvalues = negative_eigenvalues
        wide = self.heads * self.value_dim
        self.widths = [heads * self.key_dim] * 2 + [wide]
        self.qkv_proj = nn.Linear(dim, sum(self.widths), bias=False)
        self.convolution = torch_convolution(sum(self.widths), conv)
        self.beta_proj = nn.Linear(dim, heads, bias=False)
        self.norm_weight = nn.Parameter(torch.ones(self.value_dim))
        self.out_proj = nn.Linear(wide, dim, bias=False)

    def log_decay(self, x: Tensor) -> Tensor | None:
        """Log decays (B, H, N, K or 1) of the state from x (B, N, D); None without decay."""
        return None

    def gate(self, x: Tensor) -> Tensor | None:
        """Factors (B, H, N, V) of the normed output from x (B, N, D); None without a gate."""
        return None

    def read(self, x: Tensor, state: State, padding: Tensor | None = None) -> tuple[Tensor, State]:
        qkv = self.qkv_proj(x)
        if padding is not None:
            qkv = qkv.masked_fill(padding[..., None], 0.0)
        qkv, window = self.convolution.chunk(qkv, state["window"])
        q, k, v = (split_heads(part, part.shape[-1] // self.heads) for part in F.silu(qkv).split(self.widths, -1))
        beta = upcast(self.beta_proj(x)).sigmoid().mT[..., None]  # (B, H, n, 1)
        if self.negative_eigenvalues:
            beta = 2 * beta
        with autocast_disabled(x):
            q, k = unit(q, self.key_dim**-0.5), unit(k)
            decay, sums = self.log_decay(x), state["sums"]
            if x.shape[1] == 1 and sums is not None:
                decay = None if decay is None else decay[:, :, 0]
                o, sums = delta_rule_step(*(part[:, :, 0] for part in (q, k, beta * v, beta * k)), sums, decay)
                o = o[:, :, None]
            else:
                o, sums = beta_delta_rule(q, k, v, beta, decay, sums, key_padding_mask=padding)
                if padding is not None:
                    # q of a padded token may be zero, where the gradients of |q| and of the norm exceed float16
                    o = o.masked_fill(padding[:, None, :, None], 0.0)
            o = F.rms_norm(o, o.shape[-1:], upcast(self.norm_weight), EPSILON)
        gate = self.gate(x)
        o = o.to(qkv.dtype) if gate is None else o.to(qkv.dtype) * gate
        return self.out_proj(merge_heads(o)), {"window": window, "sums": sums}

    def empty_state(self, batch: int) -> State:
        """The last inputs of the convolution (B, taps - 1, H (2 K + V)), and S (B, H, K, V)."""
        sums = upcast(self.norm_weight.new_zeros(batch, self.heads, self.key_dim, self.value_dim))
        return {"window": self.convolution.empty_state(batch), "sums": sums}
