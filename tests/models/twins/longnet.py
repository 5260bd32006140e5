"""LongNet."""

import math

import torch

from models.ops.dilated import modular_offsets
from twins.base import Twin, heads_of, per_sequence, projections


def score(model, q, k, distance):
    """<q, k> E^-1/2, rotated and scaled by their distance."""
    if not model.xpos:
        return q @ k / math.sqrt(len(q))
    pair = torch.arange(len(q) // 2, dtype=torch.float64)
    angle = distance * 10000.0 ** (-2 * pair / len(q))
    factor = ((2 * pair / len(q) + 0.4) / 1.4) ** (distance / 512)
    (q0, q1), (k0, k1) = (x.unflatten(0, (-1, 2)).unbind(1) for x in (q, k))
    same, crossed = q0 * k0 + q1 * k1, q1 * k0 - q0 * k1
    return (factor * (same * angle.cos() - crossed * angle.sin())).sum() / math.sqrt(len(q))


@per_sequence
def longnet(model, x, source, padding, causal):
    q, k, v = (heads_of(linear(x), model.heads) for linear in (model.q_proj, model.k_proj, model.v_proj))
    modular = model.offsets is modular_offsets
    out = []
    for h in range(model.heads):
        rows = []
        for i in range(len(x)):
            outputs, sums = [], []
            for w, r, _ in model.branches:
                offset = h % r if modular else h // math.ceil(model.heads / r)
                if i % w % r != offset or padding[i]:
                    continue
                last = i + 1 if causal else min(len(x), i - i % w + w)
                keys = [j for j in range(i - i % w, last) if j % w % r == offset and not padding[j]]
                scores = torch.stack([score(model, q[h][i], k[h][j], i - j) for j in keys])
                outputs.append(sum(p * v[h][j] for p, j in zip(scores.softmax(0), keys, strict=True)))
                sums.append(scores.logsumexp(0))
            if not outputs:
                rows.append(torch.zeros_like(v[h][i]))
                continue
            alpha = torch.stack(sums).softmax(0)
            alpha = alpha.detach() if model.detach_alpha else alpha
            rows.append(sum(a * y for a, y in zip(alpha, outputs, strict=True)))
        out.append(torch.stack(rows))
    y = torch.cat(out, -1)
    return model.out_proj(y if model.inner_norm is None else torch.stack([model.inner_norm(row) for row in y]))


def longnet_parameters(dim, heads, pattern, max_length, hyper):
    return projections(dim) + (2 * dim if hyper["subln"] else 0)


VARIANTS = (
    {"detach_alpha": False},
    {"segments": [4, 8, 16], "ratios": [1, 2, 3], "offsets": "mod"},
    {"segments": [5, 16], "ratios": [2, 3]},
    {"segments": [6, 100], "ratios": [4, 5], "detach_alpha": False},
    {"segments": [8], "ratios": [2]},
    {"subln": True},
)
TWINS = {"longnet": Twin(longnet, longnet_parameters, VARIANTS, ({"xpos": True, "detach_alpha": False},))}
