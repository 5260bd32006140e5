"""The specification of every model: its equations, position by position, in float64, and its parameter count.

Twins are slow and share nothing with the models but parameter names. Each module of this package has a table TWINS with
the yaml's name as key; a model without an entry fails `test_contract.py`.

A twin is `f(model, x, context, padding) -> y`: x (B, N, D), context (B, M, D) or None, padding (B, N or M), True at
padding, or None. A count is `f(dim, heads, pattern, max_length, hyper) -> int`, without buffers.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from models.attention.base import Pattern


class Twin(NamedTuple):
    forward: Callable[[Any, Tensor, Tensor | None, Tensor | None], Tensor]
    parameters: Callable[[int, int, Pattern, int, dict[str, Any]], int]
    variants: tuple[dict[str, Any], ...] = ()  # variants: hyper-parameters that change the computation
    causal_variants: tuple[dict[str, Any], ...] = ()  # variants that only causal_self supports

    def variants_of(self, pattern: Pattern) -> tuple[dict[str, Any], ...]:
        return self.variants + (self.causal_variants if pattern is Pattern.CAUSAL_SELF else ())


def heads_of(x: Tensor, heads: int) -> list[Tensor]:
    """(N, D) -> heads times (N, E)."""
    return list(x.chunk(heads, dim=-1))


def per_sequence(mix: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A twin from a function of one sequence: mix(model, x (N, D), source (M, D), padding (M,), causal) -> (N, D)."""

    def forward(model: Any, x: Tensor, context: Tensor | None, padding: Tensor | None) -> Tensor:
        source = x if context is None else context
        if padding is None:
            padding = torch.zeros(source.shape[:2], dtype=torch.bool)
        causal = model.pattern is Pattern.CAUSAL_SELF
        return torch.stack([mix(model, x[b], source[b], padding[b], causal) for b in range(len(x))])

    return forward


def per_head(mix: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The projections around one head: mix(model, h, q (N, E), k, v (M, E), padding, causal) -> (N, E)."""

    def mix_heads(model: Any, x: Tensor, source: Tensor, padding: Tensor, causal: bool) -> Tensor:
        q = heads_of(model.q_proj(x), model.heads)
        k, v = model.k_proj(source), model.v_proj(source)
        one_kv_head = k.shape[-1] < x.shape[-1]
        k = [k] * model.heads if one_kv_head else heads_of(k, model.heads)
        v = [v] * model.heads if one_kv_head else heads_of(v, model.heads)
        out = [mix(model, h, q[h], k[h], v[h], padding, causal) for h in range(model.heads)]
        return model.out_proj(torch.cat(out, dim=-1))

    return per_sequence(mix_heads)


def attend(q: Tensor, k: Tensor, v: Tensor, keys: list[int], bias: dict[int, Tensor] | None = None) -> Tensor:
    """Softmax attention of one query q (E) to the rows `keys` of k and v; zeros without visible keys."""
    if not keys:
        return torch.zeros_like(q)
    scores = k[keys] @ q / math.sqrt(len(q))
    if bias:
        scores = scores + torch.stack([bias[j] for j in keys])
    return scores.softmax(0) @ v[keys]


def silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def unit(x: Tensor) -> Tensor:
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def centred(x: Tensor, eps: float) -> Tensor:
    """LayerNorm without weights."""
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + eps).sqrt()


def sinusoid(distance: int, dim: int) -> Tensor:
    angle = distance * 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    return torch.cat([angle.sin(), angle.cos()])


def projections(dim: int) -> int:
    return 4 * dim * dim + 4 * dim


def only_projections(dim, heads, pattern, max_length, hyper):
    return projections(dim)


def trainable(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
