"""Baselines that select keys by sampled scores, by hashes, or by sorted blocks."""

import math

import torch

from twins.base import Twin, attend, heads_of, only_projections, per_head, per_sequence


@per_head
def probsparse(model, h, q, k, v, padding, causal):
    tokens = [j for j in range(len(k)) if not padding[j]]
    n = len(tokens)
    budget = min(max(model.factor * math.ceil(math.log(n)), 1), n)

    def measure(i):
        draws = model.draws[tokens.index(i), :budget].tolist()
        scores = [float((q[i] @ k[tokens[draw * n // model.max_length]]).detach()) for draw in draws]
        return max(scores) - sum(scores) / n

    chosen = sorted(tokens, key=measure, reverse=True)[:budget]
    mean = sum(v[j] for j in tokens) / n
    return torch.stack([attend(q[i], k, v, tokens) if i in chosen else mean for i in range(len(q))])


def half_buckets(model, n):
    """Sizes of the first and the second hash; an unnecessary second hash has none."""
    if model.buckets is not None:
        return model.buckets // 2, 0
    bits = (2 * math.ceil(n / model.chunk_size)).bit_length() - 1
    if 2**bits > 2 * max(model.chunk_size, math.isqrt(model.max_length // model.chunk_size)):
        return 2 ** (bits // 2) // 2, 2 ** (bits - bits // 2) // 2
    return 2**bits // 2, 0


def bucket(x, rotations, halves):
    """Rotations (1 or 2, E, C): the bucket of x by the second hash, then by the first."""
    rows_so_far = []
    for matrix, half in zip(rotations, halves, strict=False):
        turned = x @ matrix[:, :half]
        rows_so_far.append(int(torch.cat([turned, -turned]).argmax()) if half else 0)
    return tuple(reversed(rows_so_far))


def neighbours(model, h, q, tokens):
    """For each real token, its visible keys over all rounds; only itself if there is no other."""
    met = {i: [] for i in tokens}
    for rotations in model.rotations[:, :, h].unbind(1):
        order = sorted(tokens, key=lambda i: (bucket(q[i].detach(), rotations, half_buckets(model, len(tokens))), i))
        for i in tokens:
            chunk = order.index(i) // model.chunk_size
            first, last = chunk - model.before, chunk + model.after
            met[i] += [j for g, j in enumerate(order) if first <= g // model.chunk_size <= last and j != i]
    return {i: keys or [i] for i, keys in met.items()}


@per_sequence
def reformer(model, x, source, padding, causal):
    tokens = [i for i in range(len(x)) if not padding[i]]
    out = []
    for h, (q, v) in enumerate(
        zip(heads_of(model.qk_proj(x), model.heads), heads_of(model.v_proj(x), model.heads), strict=True)
    ):
        # attend divides by sqrt(E) once more
        k = torch.stack([row / (row @ row / len(row) + 1e-6).sqrt() for row in q])
        met = neighbours(model, h, q, tokens)
        rows = [attend(q[i], k, v, met[i]) if i in met else torch.zeros_like(v[i]) for i in range(len(x))]
        out.append(torch.stack(rows))
    return model.out_proj(torch.cat(out, dim=-1))


def reformer_parameters(dim, heads, pattern, max_length, hyper):
    return 3 * dim * dim + 3 * dim


@per_head
def sinkhorn(model, h, q, k, v, padding, causal):
    tokens = [i for i in range(len(k)) if not padding[i]]
    count = math.ceil(len(tokens) / model.block)
    if model.lra_compat:
        blocks = [tokens[g::count] for g in range(count)]
    else:
        blocks = [tokens[g * model.block : (g + 1) * model.block] for g in range(count)]
    rows = list(torch.zeros_like(q))
    for block in blocks:
        if model.lra_compat:
            shares = torch.ones(count, dtype=q.dtype)
        else:
            shares = model.sort_map(sum(k[j] for j in block))[:count].softmax(0)

        def mixed(x, shares=shares):
            """One row per slot that any block fills."""
            slots = [
                sum(share * x[other[s]] for share, other in zip(shares, blocks, strict=True) if s < len(other))
                for s in range(max(map(len, blocks)))
            ]
            return torch.stack(slots)

        sorted_k, sorted_v = mixed(k), mixed(v)
        for i in block:
            rows[i] = attend(q[i], k, v, block) + attend(q[i], sorted_k, sorted_v, list(range(len(sorted_k))))
    return torch.stack(rows)


def sinkhorn_parameters(dim, heads, pattern, max_length, hyper):
    sort = 0 if hyper["lra_compat"] else (dim // heads + 1) * math.ceil(max_length / hyper["block"])
    return only_projections(dim, heads, pattern, max_length, hyper) + sort


TWINS = {
    "probsparse": Twin(probsparse, only_projections, ({"factor": 1}, {"factor": 100})),
    "reformer": Twin(
        reformer,
        reformer_parameters,
        (
            {"chunk": 1},
            {"chunk": 3, "hashes": 3, "after": 1},
            {"chunk": 2, "before": 0},
            {"before": 2, "hashes": 1},
            {"chunk": 100},
            {"buckets": 10},
        ),
    ),
    "sinkhorn": Twin(sinkhorn, sinkhorn_parameters, ({"lra_compat": True}, {"block": 1}, {"block": 5}, {"block": 100})),
}
