"""Fixed patterns: visibility pair by pair."""

import math

import torch

from twins.base import Twin, attend, only_projections, per_head


def last_real(padding):
    """Tokens up to the last real token."""
    return max((i + 1 for i in range(len(padding)) if not padding[i]), default=0)


def bigbird_sees(model, h, count, g):
    """The blocks that block g of `count` sees, by head h's draws."""
    r = model.draws.shape[-1]
    if g in (0, count - 1) or count <= 5 + 2 * r:
        return set(range(count))
    window = {g - 1, g, g + 1}
    candidates = [c for c in range(1, count - 1) if c not in window]
    chosen = set()
    for t in range(r):
        newest = len(candidates) - r + t
        pick = int(model.draws[h, g, t]) % (newest + 1)
        chosen.add(newest if pick in chosen else pick)
    return window | {0, count - 1} | {candidates[c] for c in chosen}


@per_head
def bigbird(model, h, q, k, v, padding, causal):
    b, rows = model.block, []
    count = math.ceil(last_real(padding) / b)
    for i in range(len(q)):
        seen = bigbird_sees(model, h, count, i // b) if i // b < count else ()
        rows.append(attend(q[i], k, v, [j for j in range(len(k)) if j // b in seen and not padding[j]]))
    return torch.stack(rows)


@per_head
def longformer(model, h, q, k, v, padding, causal):
    w, g, n = model.window, model.global_tokens, len(k)
    seen = [[j for j in range(n) if abs(i - j) <= w // 2 or min(i, j) < g] for i in range(n)]
    return torch.stack([attend(q[i], k, v, [j for j in seen[i] if not padding[j]]) for i in range(n)])


@per_head
def lra_strided(model, h, q, k, v, padding, causal):
    stride, n = last_real(padding) // model.block + 1, len(k)
    seen = [[j for j in range(n) if j % stride == i % stride] for i in range(n)]
    return torch.stack([attend(q[i], k, v, [j for j in seen[i] if not padding[j]]) for i in range(n)])


@per_head
def sparse_transformer(model, h, q, k, v, padding, causal):
    b, c, rows = model.block, model.columns, []
    for i in range(len(q)):
        first = int(model.open_first)
        keys = [
            j
            for j in range(len(k))
            if (j - first) // b == (i - first) // b or (j - first) % b == 0 or (j - first) % b >= b - c
        ]
        keys = [j for j in keys if j <= i or not model.triangular]
        if model.open_first:
            keys = sorted({0, *keys}) if i else range(len(k))
        rows.append(attend(q[i], k, v, [j for j in keys if not padding[j]]))
    return torch.stack(rows)


TWINS = {
    "sparse_transformer": Twin(
        sparse_transformer,
        only_projections,
        (
            {"lra_compat": True},
            {"block": 5, "columns": 3},
            {"block": 4, "columns": 4},
            {"block": 50},
            {"open_first": True},
            {"open_first": True, "lra_compat": True},
            {"open_first": True, "lra_compat": True, "block": 5, "columns": 3},
        ),
    ),
    "longformer": Twin(
        longformer,
        only_projections,
        (
            {"window": 1},
            {"window": 100},
            {"global_tokens": 2},
            {"global_tokens": 50},
            {"window": 0, "global_tokens": 1},
        ),
    ),
    "lra_strided": Twin(lra_strided, only_projections, ({"block": 1}, {"block": 13}, {"block": 100})),
    "bigbird": Twin(
        bigbird,
        only_projections,
        ({"block": 1, "random_blocks": 2}, {"block": 1, "random_blocks": 0}, {"block": 2, "random_blocks": 0}),
    ),
}
