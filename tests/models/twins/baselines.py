"""Baselines."""

import math

import torch

from twins.base import Twin, attend, only_projections, per_head, per_sequence, projections


def softmax_head(model, h, q, k, v, padding, causal):
    rows = []
    for i in range(len(q)):
        keys = [j for j in range(len(k)) if not padding[j] and (j <= i or not causal)]
        rows.append(attend(q[i], k, v, keys))
    return torch.stack(rows)


@per_sequence
def no_mixing(model, x, source, padding, causal):
    return torch.stack([model.out_proj(model.v_proj(row)) for row in source])


def turned(x, t):
    """x (E) with its channel pairs (2i, 2i + 1) rotated by the angles t 10000^(-2i/E)."""
    angle = t * 10000.0 ** (-torch.arange(0, len(x), 2, dtype=torch.float64) / len(x))
    pairs = torch.view_as_complex(x.reshape(-1, 2).contiguous()) * torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(pairs).reshape(-1)


def rotary_head(model, h, q, k, v, padding, causal):
    q, k = (torch.stack([turned(row, t) for t, row in enumerate(x)]) for x in (q, k))
    return softmax_head(model, h, q, k, v, padding, causal)


@per_head
def local(model, h, q, k, v, padding, causal):
    w, rows = model.window, []
    for i in range(len(q)):
        keys = [j for j in range(len(k)) if (i - w < j <= i if causal else abs(i - j) <= w) and not padding[j]]
        bias, first = model.position_bias, i - w + 1 if causal else i - w
        rows.append(attend(q[i], k, v, keys, None if bias is None else {j: bias[h, j - first] for j in keys}))
    return torch.stack(rows)


def biased_local_parameters(dim, heads, pattern, max_length, hyper):
    return projections(dim) + heads * (hyper["window"] if "noncausal" not in pattern else 2 * hyper["window"] + 1)


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
    saved = 2 * (dim + 1) * (dim - dim // heads) if hyper.get("one_kv_head") else 0
    return projections(dim) + maps * (not hyper.get("freeze_maps")) - saved


@per_head
def performer(model, h, q, k, v, padding, causal):
    directions, head_dim = model.directions[h], q.shape[-1]
    if model.skyformer_compat:
        real = (~padding).to(k.dtype)[:, None]
        q, k, v = q / head_dim**0.25, real * k / head_dim**0.25, real * v
        padding = torch.zeros_like(padding)
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
        scores = torch.stack([phi_q @ phi_k[j] for j in tokens])
        rows.append(scores @ v[tokens] / scores.sum().clamp(min=model.floor))
    return torch.stack(rows)


TWINS = {
    "vanilla": Twin(per_head(softmax_head), only_projections),
    "vanilla_math": Twin(per_head(softmax_head), only_projections),
    "vanilla_rope": Twin(per_head(rotary_head), only_projections),
    "no_mixing": Twin(no_mixing, lambda dim, *_: projections(dim) // 2),
    "local": Twin(local, only_projections, ({"window": 1}, {"window": 100})),
    "local_bias": Twin(local, biased_local_parameters, ({"window": 1}, {"window": 100})),
    "linformer": Twin(
        linformer,
        linformer_parameters,
        ({"per_head": True}, {"share": False}, {"per_head": True, "share": False}, {"one_kv_head": True}),
    ),
    "linformer_skyformer": Twin(linformer, linformer_parameters, ({"share": False},)),
    "performer": Twin(performer, only_projections, ({"cab_compat": True}, {"features": 21})),
    "performer_skyformer": Twin(performer, only_projections, ({"features": 21},)),
}
