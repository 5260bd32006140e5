"""flash-linear-attention's Triton kernels as alternatives to the torch forms of linear recurrences, on CUDA.

They are optional: `resources.kernels=fla` sets LONGHAUL_FLA=1 before anything is built, and requires a GPU and the
package fla-core (github.com/fla-org/flash-linear-attention, 0.6.0). An operation asks `chosen` for its kernels and
computes in torch where there are none: on other devices, in float64 and under torch.compile. Decoding keeps the torch
forms.

The library has tokens before heads, (B, N, H, ..), and scales queries itself; states are (B, H, K, V) in float32. Under
autocast, queries, keys and values are rounded to its type; decays stay in float32.

    B batch, H heads, N length, K and V widths of a key and a value
"""

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

SWITCH = "LONGHAUL_FLA"
DEVICE = "cuda"
WIDEST_KEY = 256  # of the kernels of the delta rule
MODULES = {
    "chunk_gla": "fla.ops.gla",
    "chunk_simple_gla": "fla.ops.simple_gla",
    "chunk_lightnet": "fla.ops.lightnet",
    "chunk_delta_rule": "fla.ops.delta_rule",
    "chunk_gated_delta_rule": "fla.ops.gated_delta_rule",
    "chunk_kda": "fla.ops.kda",
    "chunk_dplr_delta_rule": "fla.ops.generalized_delta_rule",
    "parallel_forgetting_attn": "fla.ops.forgetting_attn",
}


def function(name: str) -> Callable[..., Any]:
    return getattr(import_module(MODULES[name]), name)


class Kernels(NamedTuple):
    """Kernels for queries, keys and values of `dtype`. Tensors are (B, H, N, ..), states (B, H, K, V)."""

    dtype: torch.dtype

    def run(self, name: str, *tensors: Tensor, **options: Any) -> Any:
        """A kernel's result for q, k and v, rounded, and further tensors, tokens before heads; queries are scaled."""
        q, k, v, *others = (x.transpose(1, 2) for x in tensors)
        return function(name)(*(x.to(self.dtype) for x in (q, k, v)), *others, scale=1.0, **options)

    def recurrence(self, name: str, *tensors: Tensor, state: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        y, state = self.run(name, *tensors, initial_state=state, output_final_state=True, **options)
        return y.transpose(1, 2), state

    def gated_linear(
        self, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As `gated_linear_attention`: y and the final state."""
        q, k = (x.expand(-1, v.shape[1], -1, -1) for x in (q, k))
        if log_decay is None:
            return self.recurrence("chunk_simple_gla", q, k, v, state=state)
        if log_decay.shape[-1] == 1:
            return self.recurrence("chunk_simple_gla", q, k, v, log_decay[..., 0], state=state)
        return self.recurrence("chunk_gla", q, k, v, log_decay, state=state)

    def beta_delta_rule(
        self, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor | None, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As the function of this name in models/ops/delta_rule.py: y and the final state."""
        beta = beta[..., 0]
        if log_decay is not None and log_decay.shape[-1] > 1:
            return self.recurrence("chunk_kda", q, k, v, log_decay, beta, state=state)
        if log_decay is None and self.dtype is not torch.float32:  # its kernel takes 16 bits only
            return self.recurrence("chunk_delta_rule", q, k, v, beta, state=state)
        decay = torch.zeros_like(beta) if log_decay is None else log_decay[..., 0]
        return self.recurrence("chunk_gated_delta_rule", q, k, v, decay, beta, state=state)

    def delta_rule(
        self, q: Tensor, k: Tensor, v: Tensor, remove: Tensor, log_decay: Tensor | None, erase: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As `delta_rule`: y and the final state. The kernel removes before the state decays."""
        decay = torch.zeros_like(q) if log_decay is None else log_decay.expand_as(q)
        removed, added = (x.to(self.dtype) for x in (-remove * decay.exp(), erase))
        return self.recurrence("chunk_dplr_delta_rule", q, k, v, removed, added, decay, state=state)

    def forgetting(self, q: Tensor, k: Tensor, v: Tensor, sums: Tensor) -> Tensor:
        """As `forgetting_attention`, from the sums of log gates (B, H, N); only their differences count."""
        gates = sums.diff(dim=-1, prepend=sums[..., :1]).float()
        return self.run("parallel_forgetting_attn", q * q.shape[-1] ** -0.5, k, v, gates).transpose(1, 2)

    def prefix_sums(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q_t sum_{j<=t} k_j' v_j, (B, H, N, V)."""
        return self.run("chunk_simple_gla", q, k, v)[0].transpose(1, 2)

    def running_softmax(self, weights: Tensor, logits: Tensor, v: Tensor, hidden: Tensor | None) -> Tensor:
        """As the function of this name, with hidden keys (B, N). Its log sums are in float32: to some 10^5 tokens."""
        if hidden is not None:  # zero values with a weight of e^-80; a far lower logit would cost its sums their digits
            lowest = logits.detach().amin(2, keepdim=True) - 80.0
            logits = torch.where(hidden[:, None, :, None], lowest, logits)
            v = v.masked_fill(hidden[:, None, :, None], 0.0)
        return self.run("chunk_lightnet", weights, logits, v)[0].transpose(1, 2)


def chosen(v: Tensor, *, key_width: int = 0, dtype: torch.dtype | None = None) -> Kernels | None:
    """The kernels for these values, if they were requested and exist for them. `key_width`: that of a delta rule.

    `dtype`: the type that q, k and v are rounded to, if it is neither that of autocast nor that of v.
    """
    if os.environ.get(SWITCH) != "1" or torch.compiler.is_compiling():
        return None
    if v.device.type != DEVICE or v.dtype is torch.float64 or key_width > WIDEST_KEY:
        return None
    kind = v.device.type
    rounded = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else v.dtype
    return Kernels(dtype or rounded)
