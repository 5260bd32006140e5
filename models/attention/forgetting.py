"""Forgetting Transformer, FoX: softmax attention with forget gates (Lin et al., 2025, arXiv 2503.02130).

    o_i = sum_{j<=i} softmax_j( <q_i, k_j> E^-1/2 + c_i - c_j ) v_j,   c_i = sum_{t<=i} log sigmoid(w_f' x_t + b_f)
    y_i = W_o o_i

There are no positions besides c. The Pro block has four more parts:

    kv_shift      k_t = a_t W_k x_{t-1} + (1 - a_t) W_k x_t,   a_t = sigmoid(w_a' x_t);   v_t likewise, with its own a_t
    qk_norm       queries and keys are RMSNorm(.) per head, keys after the shift
    output_norm   RMSNorm(o_i) per head
    output_gate   y_i = W_o ( sigmoid(W_g x_i) * o_i ), o_i after its norm

Time O(N^2 D), memory O(N D): models/ops/forgetting.py. Decoding keeps N (2 D + H) numbers, and 2 D for the shift. An
example's real tokens are read as if there were no padding between them.

    B batch, N length, D width, H heads, E head width
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import MultiHead, Pattern, State
from models.layers.initialisers import bert_linears_
from models.ops.forgetting import forgetting_attention
from models.ops.heads import merge_heads
from models.ops.padding import real_first
from models.ops.precision import autocast_disabled, upcast

QK_EPSILON, OUTPUT_EPSILON = 1e-5, 1e-6  # as in the authors' code


class HeadRMSNorm(nn.Module):
    """RMSNorm per head with a weight per channel: D parameters. In float32 at least."""

    def __init__(self, heads: int, head_dim: int, eps: float):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(heads, 1, head_dim))

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, N, E) -> (B, H, N, E)."""
        return (F.rms_norm(upcast(x), x.shape[-1:], eps=self.eps) * upcast(self.weight)).to(x.dtype)


class ForgettingAttention(MultiHead):
    """4 D^2 + D H + H parameters; with `output_gate` D^2 more, `kv_shift` 2 D H, `qk_norm` 2 D, `output_norm` D.

    Raises ValueError on decoding past `max_length`.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.CAUSAL_SELF})
    linear: bool = False

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        qk_norm: bool = False,
        kv_shift: bool = False,
        output_norm: bool = False,
        output_gate: bool = False,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        self.drop_biases()
        self.forget_proj = nn.Linear(dim, heads)
        self.k_shift_proj = self.v_shift_proj = self.gate_proj = None
        if kv_shift:
            self.k_shift_proj, self.v_shift_proj = (nn.Linear(dim, heads, bias=False) for _ in range(2))
        if output_gate:
            self.gate_proj = nn.Linear(dim, dim, bias=False)
        self.q_norm = self.k_norm = self.output_norm = None
        if qk_norm:
            self.q_norm, self.k_norm = (HeadRMSNorm(heads, self.head_dim, QK_EPSILON) for _ in range(2))
        if output_norm:
            self.output_norm = HeadRMSNorm(heads, self.head_dim, OUTPUT_EPSILON)
        bert_linears_(self)  # N(0, 0.02^2) and zero biases are the authors' initial values, too

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        if key_padding_mask is None:
            return self.mix_all(x)
        order = real_first(key_padding_mask)  # no query sees the padding after it
        y = self.mix_all(x.gather(1, order[..., None].expand_as(x)))
        return y.gather(1, order.argsort(1)[..., None].expand_as(y))

    def mix_all(self, x: Tensor) -> Tensor:
        """(B, N, D) without padding -> (B, N, D)."""
        q, k, v, sums, _ = self.read(x, self.last_of_none(len(x)))
        return self.write(x, forgetting_attention(q, k, v, sums, dropout=self.active_dropout))

    def last_of_none(self, batch: int) -> State:
        """What the first token reads of the one before it: c (B, H, 1), and W_k x and W_v x (B, H, 1, E) or None."""
        weight = self.q_proj.weight
        nothing = weight.new_zeros(2, batch, self.heads, 1, self.head_dim)
        last_k, last_v = (None, None) if self.k_shift_proj is None else nothing
        return {"sum": weight.new_zeros(batch, self.heads, 1, dtype=torch.float64), "k": last_k, "v": last_v}

    def read(self, x: Tensor, last: State) -> tuple[Tensor, Tensor, Tensor, Tensor, State]:
        """q, k, v (B, H, N, E) and c (B, H, N) of x (B, N, D), and what the next token reads of the last one."""
        q, k, v = (self.project(layer, x) for layer in (self.q_proj, self.k_proj, self.v_proj))
        following = dict(last)
        if self.k_shift_proj is not None:
            following |= {"k": k[:, :, -1:].clone(), "v": v[:, :, -1:].clone()}
            k, v = shifted(k, last["k"], self.k_shift_proj(x)), shifted(v, last["v"], self.v_shift_proj(x))
        if self.q_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        # float64, because near keys differ by little in sums of many gates
        log_forget = F.logsigmoid(upcast(self.forget_proj(x))).double().mT
        sums = last["sum"] + log_forget.cumsum(-1)
        return q, k, v, sums, following | {"sum": sums[..., -1:].clone()}

    def write(self, x: Tensor, o: Tensor) -> Tensor:
        """y (B, N, D) from the layer's input x (B, N, D) and o (B, H, N, E)."""
        if self.output_norm is not None:
            o = self.output_norm(o)
        o = merge_heads(o)
        if self.gate_proj is not None:
            o = torch.sigmoid(self.gate_proj(x)) * o
        return self.out_proj(o)

    def empty_state(self, batch: int) -> State:
        """A growing cache of keys and values, their c (B, H, length), and what the next token reads of the last one."""
        cache = self.growing_cache(batch)
        sums = cache["k"].new_zeros(cache["k"].shape[:3], dtype=torch.float64)
        return {**cache, "log_gates": sums, "last": self.last_of_none(batch)}

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        q, k, v, sums, last = self.read(x, state["last"])
        seen, state = state["seen"], self.remember(k, v, state)
        end, kept, dtype = state["seen"], state["log_gates"], q.dtype
        if kept.shape[2] < state["k"].shape[2]:
            kept = F.pad(kept, (0, state["k"].shape[2] - kept.shape[2]))
        kept[:, :, seen:end] = sums
        if seen == 0:
            o = forgetting_attention(q, k, v, sums)
        else:
            bias = sums[..., None] - kept[:, :, None, :end]  # (B, H, n, end)
            later = torch.ones(end - seen, end, dtype=torch.bool, device=x.device).triu(seen + 1)
            with autocast_disabled(x):  # 16 bits are too few for the bias
                q, k, v = (upcast(y) for y in (q, state["k"][:, :, :end], state["v"][:, :, :end]))
                bias = bias.to(q.dtype).masked_fill(later, float("-inf"))
                o = F.scaled_dot_product_attention(q, k, v, attn_mask=bias).to(dtype)
        return self.write(x, o), {**state, "log_gates": kept, "last": last}


def shifted(y: Tensor, last: Tensor, logits: Tensor) -> Tensor:
    """a_t y_{t-1} + (1 - a_t) y_t of y (B, H, N, E) with the logits of a (B, N, H); `last` (B, H, 1, E) is y_0."""
    previous = torch.cat([last.to(y.dtype), y[:, :, :-1]], 2)
    return torch.lerp(y, previous, torch.sigmoid(logits).mT[..., None].to(y.dtype))
