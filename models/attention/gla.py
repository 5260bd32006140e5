"""Gated linear attention: a matrix state whose rows decay by a gate of the token (Yang et al., 2024, arXiv 2312.06635).

    q_t = W_q x_t K^-1/2,  k_t = W_k x_t,  v_t = W_v x_t,   a_t = sigmoid(W_2 W_1 x_t + b)^(1/tau)               (§4.4)
    S_t = diag(a_t) S_{t-1} + k_t v_t',   o_t = S_t' q_t                                                         (3)
    y_t = W_o ( SiLU(W_g x_t) * RMSNorm(o_t) ),  the norm of each head, with one weight per channel for all heads

Time O(N (C (K + V) + K V) H), memory O(N (D + K V H / C)). The decoding state has K V numbers per head, `expand_k`
`expand_v` D^2 / H in all: `expand_k` scales it. Norm, scale and initial values are those of flash-linear-attention; the
paper writes a layer norm (D-53). With `conv` taps, q, k and v are SiLU(conv(W x)), conv causal and per channel:
`use_short_conv` of flash-linear-attention, off there by default as here. No attention weights are formed, so dropout
has no effect.

    B batch, N length, D width, H heads, K and V widths of a key and a value, R rank of the gate, C chunk of 64 tokens
"""

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import Recurrent, State
from models.layers.convolution import convolved, torch_convolution
from models.layers.norms import upcast_rms_norm
from models.ops.gated_linear import gated_linear_chunk
from models.ops.heads import merge_heads, split_heads
from models.ops.precision import upcast, upcast_linear

EPSILON = 1e-5


class GatedLinear(Recurrent):
    """What GLA and HGRN2 share. They `project` tokens to queries, keys, values and decays, and `write` their output.

    `state_sizes`: the heads, and the widths of a key and a value.
    """

    unread: ClassVar[tuple[str, ...]] = ("sums",)
    state_sizes: tuple[int, int, int]

    def empty_state(self, batch: int) -> State:
        """S (B, H, K, V), and the last inputs of the convolution."""
        sums = upcast(self.out_proj.weight.new_zeros(batch, *self.state_sizes))
        return {"sums": sums, "window": None if self.convolution is None else self.convolution.empty_state(batch)}

    def read(self, x: Tensor, state: State, padding: Tensor | None = None) -> tuple[Tensor, State]:
        parts, window = self.project(x, state["window"], padding)
        o, sums = gated_linear_chunk(*parts, state["sums"], key_padding_mask=padding)
        return self.write(x, o), {"sums": sums, "window": window}


class GatedLinearAttention(GatedLinear):
    """D (2 k + 3 v + R) + R k + k + v / H parameters with k = `expand_k` D and v = `expand_v` D channels in all heads.

    `conv` taps have (2 k + v) `conv` more. `gate_rank` is R, `temperature` tau. Initial values are torch's. A padded
    token is zero in the convolution and leaves the state unchanged. Raises ValueError for a temperature that is not
    positive, a rank or taps below 1, and a k or v that is not a positive multiple of the heads.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        expand_k: float = 0.5,
        expand_v: float = 1.0,
        gate_rank: int = 16,
        temperature: float = 16.0,
        conv: int | None = None,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        self.check_sizes(gate_rank=gate_rank, conv=conv)
        if temperature <= 0:
            raise ValueError(f"the temperature of GLA's gate is {temperature}, not positive")
        widths = {name: int(dim * share) for name, share in (("expand_k", expand_k), ("expand_v", expand_v))}
        for name, width in widths.items():
            if width < 1 or width % heads:
                raise ValueError(f"GLA's {name} gives {width} channels at width {dim}, not a multiple of {heads} heads")
        k, v = widths.values()
        self.temperature, self.key_dim, self.value_dim = temperature, k // heads, v // heads
        self.state_sizes = heads, self.key_dim, self.value_dim
        self.q_proj, self.k_proj = nn.Linear(dim, k, bias=False), nn.Linear(dim, k, bias=False)
        self.v_proj, self.gate_proj = nn.Linear(dim, v, bias=False), nn.Linear(dim, v, bias=False)
        self.decay_in, self.decay_out = nn.Linear(dim, gate_rank, bias=False), nn.Linear(gate_rank, k)
        self.norm = nn.RMSNorm(self.value_dim, eps=EPSILON)
        self.out_proj = nn.Linear(v, dim, bias=False)
        self.conv = conv or 1
        self.convolution = None if conv is None else torch_convolution(2 * k + v, conv)

    def project(
        self, x: Tensor, window: Tensor | None = None, padding: Tensor | None = None
    ) -> tuple[list[Tensor], Tensor | None]:
        """q, k (B, H, N, K), v (B, H, N, V) and log decay like k of x (B, N, D), in float32 at least, and `window`.

        `window` (B, taps - 1, 2 k + v) holds the last inputs of the convolution, None of none; mask (B, N).
        """
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if self.convolution is not None:
            parts, window = convolved(self.convolution, (q, k, v), window, padding)
            q, k, v = map(F.silu, parts)
        decay = F.logsigmoid(upcast_linear(self.decay_out, self.decay_in(x))) / self.temperature
        q, k, decay = (upcast(split_heads(y, self.key_dim)) for y in (q, k, decay))
        return [q * self.key_dim**-0.5, k, upcast(split_heads(v, self.value_dim)), decay], window

    def write(self, x: Tensor, o: Tensor) -> Tensor:
        """y (B, N, D) from the layer's input and o (B, H, N, V)."""
        gate = F.silu(self.gate_proj(x))
        return self.out_proj(gate * merge_heads(upcast_rms_norm(self.norm, o)).to(gate.dtype))
