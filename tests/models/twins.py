"""The specification of every model: its equations, position by position, in float64, and its parameter count.

Nothing here is fast, and nothing is shared with the models but the parameters' names. A model without an entry in TWINS
fails `test_contract.py`.

A twin is `f(model, x, context, padding) -> y`: x (B, N, D), context (B, M, D) or None, padding (B, N or M), True at
padding, or None. A count is `f(dim, heads, pattern, max_length, hyper) -> int`, buffers left out.
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
    variants: tuple[dict[str, Any], ...] = ()  # other hyper-parameters than the yaml's that change what is computed


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

    def one(model: Any, x: Tensor, source: Tensor, padding: Tensor, causal: bool) -> Tensor:
        q = heads_of(model.q_proj(x), model.heads)
        k, v = model.k_proj(source), model.v_proj(source)
        one_kv_head = k.shape[-1] < x.shape[-1]
        k = [k] * model.heads if one_kv_head else heads_of(k, model.heads)
        v = [v] * model.heads if one_kv_head else heads_of(v, model.heads)
        out = [mix(model, h, q[h], k[h], v[h], padding, causal) for h in range(model.heads)]
        return model.out_proj(torch.cat(out, dim=-1))

    return per_sequence(one)


def attend(q: Tensor, k: Tensor, v: Tensor, keys: list[int], bias: dict[int, Tensor] | None = None) -> Tensor:
    """Softmax attention of one query q (E) to the rows `keys` of k and v; nothing seen gives zeros."""
    if not keys:
        return torch.zeros_like(q)
    scores = torch.stack([q @ k[j] / math.sqrt(len(q)) + (bias[j] if bias else 0.0) for j in keys])
    weights = scores.softmax(0)
    return sum(w * v[j] for w, j in zip(weights, keys, strict=True))


def projections(dim: int) -> int:
    return 4 * dim * dim + 4 * dim


@per_head
def vanilla(model, h, q, k, v, padding, causal):
    rows = []
    for i in range(len(q)):
        keys = [j for j in range(len(k)) if not padding[j] and (j <= i or not causal)]
        rows.append(attend(q[i], k, v, keys))
    return torch.stack(rows)


@per_head
def local(model, h, q, k, v, padding, causal):
    w, rows = model.window, []
    for i in range(len(q)):
        keys = [j for j in range(len(k)) if (i - w < j <= i if causal else abs(i - j) <= w) and not padding[j]]
        rows.append(attend(q[i], k, v, keys))
    return torch.stack(rows)


@per_head
def linformer(model, h, q, k, v, padding, causal):
    key_map = model.key_map[h if len(model.key_map) > 1 else 0]
    value_map = key_map
    if model.value_map is not None:
        value_map = model.value_map[h if len(model.value_map) > 1 else 0]
    slots = range(key_map.shape[1])
    tokens = [j for j in range(len(k)) if not padding[j]]
    short_k = torch.stack([sum(key_map[j, s] * k[j] for j in tokens) for s in slots])
    short_v = torch.stack([sum(value_map[j, s] * v[j] for j in tokens) for s in slots])
    return torch.stack([attend(row, short_k, short_v, list(slots)) for row in q])


def linformer_parameters(dim, heads, pattern, max_length, hyper):
    maps = (1 if hyper["share"] else 2) * (heads if hyper["per_head"] else 1) * max_length * hyper["rank"]
    saved = 2 * (dim + 1) * (dim - dim // heads) if hyper["one_kv_head"] else 0
    return projections(dim) + maps - saved


@per_head
def performer(model, h, q, k, v, padding, causal):
    directions, head_dim = model.directions[h], q.shape[-1]
    tokens = [j for j in range(len(k)) if not padding[j]]

    def along(x):
        return directions @ x * head_dim**-0.25

    def phi(x, c):
        return (torch.exp(along(x) - x @ x * head_dim**-0.5 / 2 - c) + 1e-4) / math.sqrt(len(directions))

    key_max = torch.stack([along(k[j]) for j in tokens]).max()
    phi_k = {j: phi(k[j], key_max) for j in tokens}
    rows = []
    for x in q:
        phi_q = phi(x, along(x).max())
        scores = {j: phi_q @ phi_k[j] for j in tokens}
        rows.append(sum(scores[j] * v[j] for j in tokens) / sum(scores.values()).clamp(min=model.floor))
    return torch.stack(rows)


@per_sequence
def lavo(model, x, source, padding, causal):
    q = heads_of(model.q_proj(x), model.heads)
    cross = model.pattern.cross
    v = heads_of(source if model.v_proj is None else model.v_proj(source), model.heads)
    k = v if cross else heads_of(model.k_proj(source), model.heads)
    raw = heads_of(x, model.heads)
    w, out = model.window, []
    tokens = [j for j in range(len(source)) if not padding[j]]
    for h in range(model.heads):
        bases = model.bases[h]  # (R, E)

        def visible(i):
            return [j for j in tokens if (i - w < j <= i if causal else abs(j - i) < w)]

        def bias(i, h=h):
            return (
                None if model.position_bias is None else {j: model.position_bias[h, j - i + w - 1] for j in visible(i)}
            )

        local = [] if cross else [attend(q[h][i], k[h], v[h], visible(i), bias(i)) for i in range(len(x))]
        remembered = v[h] if cross else local if model.dissection else raw[h]
        rows = []
        for i in range(len(x)):
            if not causal:
                past = tokens
            elif model.dissection:
                past = [j for j in tokens if j < i // w * w]
            else:
                past = [j for j in tokens if j <= i]
            memory = sum((bases @ remembered[j] for j in past), bases.new_zeros(len(bases))) / max(len(past), 1)
            rows_of_memory = bases * memory[:, None]  # X~ of eq. 3 and 4, (R, E)
            weights = (rows_of_memory @ q[h][i] * model.global_scale).softmax(0)
            glob = weights @ rows_of_memory
            rows.append(glob if cross else (local[i] + glob) / 2)
        out.append(torch.stack(rows))
    return model.out_proj(torch.cat(out, dim=-1))


def lavo_parameters(dim, heads, pattern, max_length, hyper):
    linears = (2 if hyper["cross_source"] == "raw" else 3) if pattern.cross else 4
    bias = heads * (2 * hyper["window"] - 1) if hyper["epe"] and not pattern.cross else 0
    return linears * (dim * dim + dim) + hyper["bases"] * dim + bias


def only_projections(dim, heads, pattern, max_length, hyper):
    return projections(dim)


TWINS: dict[str, Twin] = {
    "vanilla": Twin(vanilla, only_projections),
    "local": Twin(local, only_projections, ({"window": 1}, {"window": 100})),
    "linformer": Twin(
        linformer,
        linformer_parameters,
        ({"per_head": True}, {"share": False}, {"per_head": True, "share": False}, {"one_kv_head": True}),
    ),
    "performer": Twin(performer, only_projections, ({"cab_compat": True}, {"features": 21})),
    "lavo": Twin(
        lavo,
        lavo_parameters,
        (
            {"epe": False},
            {"dissection": False},
            {"epe": False, "dissection": False},
            {"global_scale": False},
            {"cross_source": "value"},
            {"window": 1},
        ),
    ),
}


def trainable(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
