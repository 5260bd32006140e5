"""LongShort."""

import torch

from models.attention.base import Pattern
from twins.base import Twin, heads_of, per_sequence, projections, sinusoid


def summary(x, scores, tokens, heads):
    """The mean of x's rows `tokens`, heads weighted by the softmax of their own scores (N, H)."""
    weights = torch.stack([scores[j] for j in tokens]).softmax(0)
    parts = [sum(w[h] * heads_of(x, heads)[h][j] for w, j in zip(weights, tokens, strict=True)) for h in range(heads)]
    return torch.cat(parts)


def means(model, y, x, tokens):
    """Normalised summaries (r, D) of y, a projection of x."""
    scores = model.score(x).unflatten(-1, (model.heads, model.rank))
    return [model.summary_norm(summary(y, scores[..., s], tokens, model.heads)) for s in range(model.rank)]


def mixed(scores, values):
    return sum(w * v for w, v in zip(torch.stack(scores).softmax(0), values, strict=True))


def noncausal(model, x, padding):
    w, tokens = model.window, [j for j in range(len(x)) if not padding[j]]
    reach = max(1, w // 2)
    k, v = model.token_norm(model.k_proj(x)), model.token_norm(model.v_proj(x))
    far_k, far_v = means(model, k, x, tokens), means(model, v, x, tokens)
    rows = []
    for i, query in enumerate(model.q_proj(x)):
        start = i // w * w
        window = [j for j in tokens if start - reach <= j < start + w + reach]
        keys, values = far_k + [k[j] for j in window], far_v + [v[j] for j in window]
        row = []
        for h, q in enumerate(query.chunk(model.heads)):
            scores = [q @ key.chunk(model.heads)[h] / len(q) ** 0.5 for key in keys]
            row.append(mixed(scores, [value.chunk(model.heads)[h] for value in values]))
        rows.append(torch.cat(row))
    return torch.stack(rows)


def causal(model, x, padding):
    c, w, r, before = model.chunk_size, model.window, model.rank, model.memory
    x = torch.cat([x.new_zeros(before, x.shape[1]), x])
    real = [j < before or not padding[j - before] for j in range(len(x))]
    k, v = model.k_proj(x), model.v_proj(x)
    far_k, far_v = {}, {}
    for m in range((len(x) - 1) // c):
        tokens = [j for j in range(m * c, (m + 1) * c) if real[j]]
        if tokens:
            far_k[m], far_v[m] = means(model, k, x, tokens), means(model, v, x, tokens)
    rows = []
    for i in range(before, len(x)):
        query = model.q_proj(x[i]) / (x.shape[1] // model.heads) ** 0.5
        window = [j for j in range(max(0, i - w + 1), i + 1) if real[j]]
        past = [(m, s) for m in range(i // c) if m in far_k for s in range(r)]
        if not window and not past:
            rows.append(torch.zeros_like(x[i]))
            continue
        # the last summary of the chunk before the query's is at distance 0
        far = [(far_k[m][s], model.far_position(sinusoid((i // c - m) * r - 1 - s, x.shape[1]))) for m, s in past]
        near = [(model.token_norm(k[j]), model.near_position(sinusoid(i - j, x.shape[1]))) for j in window]
        values = [far_v[m][s] for m, s in past] + [model.token_norm(v[j]) for j in window]
        row = []
        for h, q in enumerate(query.chunk(model.heads)):
            scores = [
                q @ heads_of(key, model.heads)[h] + q @ heads_of(position, model.heads)[h] for key, position in far
            ]
            scores += [
                (q + model.content_bias[h]) @ heads_of(key, model.heads)[h]
                + (q + model.position_bias[h]) @ heads_of(position, model.heads)[h]
                for key, position in near
            ]
            row.append(mixed(scores, [heads_of(value, model.heads)[h] for value in values]))
        rows.append(torch.cat(row))
    return torch.stack(rows)


@per_sequence
def longshort(model, x, source, padding, is_causal):
    return model.out_proj((causal if is_causal else noncausal)(model, x, padding))


def longshort_parameters(dim, heads, pattern, max_length, hyper):
    norms = 4 * dim
    if pattern is Pattern.NONCAUSAL_SELF:
        return projections(dim) + norms + heads * hyper["landmarks"] * (dim + 1)
    biases = 2 * dim
    return 6 * dim * dim + dim + norms + biases + heads * hyper["chunk_rank"] * (dim + 1)


TWINS = {
    "longshort": Twin(
        longshort,
        longshort_parameters,
        ({"window": 1}, {"window": 5, "chunk": 3}, {"chunk_rank": 2, "chunk": 8}, {"memory": 8}),
    ),
}
