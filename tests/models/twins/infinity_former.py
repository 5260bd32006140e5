"""The infinity-former, segment by segment and token by token."""

import math

import torch

from twins.base import Twin, attend, heads_of, per_sequence, projections
from twins.latte import turn

# from the yaml, because a model keeps only maps derived from them
TAU, SAMPLES, RIDGE = 0.5, 512, 0.5


def gaussian(at, centre, variance):
    return torch.exp(-((at - centre) ** 2) / (2 * variance)) / torch.sqrt(2 * math.pi * variance)


def basis(model, times):
    """(T, N)"""
    return gaussian(torch.tensor(times, dtype=torch.float64)[:, None], model.signal.centres, model.signal.widths**2)


def fitted(model, tokens, times, zeros):
    """B, the ridge regression of tokens (L, D) on the bases at these times, with zeros at others."""
    rows = basis(model, times + zeros)
    targets = torch.cat([tokens, tokens.new_zeros(len(zeros), tokens.shape[1])])
    return torch.linalg.inv(rows.T @ rows + RIDGE * torch.eye(model.bases, dtype=torch.float64)) @ rows.T @ targets


def weighed(model, segment):
    """The tokens (S, D) of a segment, each times its share, from itself and its neighbours."""
    if model.mask is None:
        return segment
    zero, rows = torch.zeros_like(segment[0]), []
    for before, token, after in zip([zero, *segment[:-1]], segment, [*segment[1:], zero], strict=True):
        score = model.mask.bias
        for tap, neighbour in enumerate((before, token, after)):
            score = score + model.mask.weight[:, :, tap] @ neighbour
        rows.append(token * torch.sigmoid(score))
    return torch.stack(rows)


def memories(model, x, padding, padded_fit):
    """B before each segment, None before the first."""
    tokens = torch.where(padding[:, None], 0.0, x)
    if model.detach_memory:
        tokens = tokens.detach()
    size, memories_so_far = model.segment, [None]
    new = [(i + 1) / size for i in range(size)]
    old = [(m + 1) / SAMPLES for m in range(SAMPLES)]
    times = [TAU * t for t in old] + [TAU + (1 - TAU) * t for t in new]
    first, first_zeros, zeros = new, [], []
    if padded_fit:
        first, half = [(i + 0.5) / size for i in range(size)], size // 2
        first_zeros = [(i + 0.5) / size for i in [*range(-half, 0), *range(size, size + half)]]
        start, count = -0.5 + 1 / (2 * size + SAMPLES), 2 * len(times)
        grid = [start + i * (1 - 2 * start) / (count - 1) for i in range(count)]
        zeros = [t for t in grid if t < 0 or t > 1]
    for begin in range(0, len(x) - size, size):
        segment, before = weighed(model, tokens[begin : begin + size]), memories_so_far[-1]
        if before is None:
            memories_so_far.append(fitted(model, segment, first, first_zeros))
            continue
        if model.detach_memory:
            before = before.detach()
        past = torch.cat([basis(model, old) @ before, segment])
        memories_so_far.append(fitted(model, past, times, zeros))
    return memories_so_far


def recalled(model, q, b):
    """z of one token's query (D) and B (N, D)."""
    z = []
    heads = zip(*(heads_of(rows, model.heads) for rows in (q, model.ltm_k(b), model.ltm_v(b))), strict=True)
    for query, keys, values in heads:
        scores = keys @ query / math.sqrt(len(query))
        mean, variance = torch.sigmoid(model.to_mean(scores)), torch.log1p(torch.exp(model.to_variance(scores)))
        variance = torch.clamp(variance, min=1e-4) + model.signal.widths**2
        z.append(gaussian(mean, model.signal.centres, variance) @ values)
    return torch.cat(z)


@per_sequence
def infinity_former(model, x, source, padding, causal):
    remembered, window = memories(model, x, padding, model.signal.padded), model.window
    near = []
    for q, k, v in zip(*(heads_of(p(x), model.heads) for p in (model.q_proj, model.k_proj, model.v_proj)), strict=True):
        k, rows = torch.stack([turn(row, j) for j, row in enumerate(k)]), []
        for i in range(len(x)):
            rows.append(
                attend(turn(q[i], i), k, v, [j for j in range(max(0, i - window + 1), i + 1) if not padding[j]])
            )
        near.append(torch.stack(rows))
    y = [model.out_proj(row) for row in torch.cat(near, dim=-1)]
    for i in range(len(x)):
        b = remembered[i // model.segment]
        if b is not None:
            y[i] = y[i] + model.ltm_out(recalled(model, model.q_proj(x[i]), b))
    return torch.stack(y)


def infinity_former_parameters(dim, heads, pattern, max_length, hyper):
    mask = (3 * dim * dim + dim) * hyper["mask"]
    return projections(dim) + 3 * dim * dim + mask + 2 * hyper["bases"]


BROAD = {"widths": [0.1, 0.2, 0.3], "bases": 6, "segment": 4}
TWINS = {
    "infinity_former": Twin(
        infinity_former,
        infinity_former_parameters,
        (
            BROAD,
            BROAD | {"segment": 1, "window": 1},
            BROAD | {"segment": 3, "window": 100},
            BROAD | {"detach_memory": False},
            BROAD | {"mask": False, "padded_fit": False, "detach_memory": False},
        ),
    )
}
