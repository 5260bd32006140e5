"""Products of features, bounded memory, and linear randomised attention."""

import math

import torch

from models.attention.base import Pattern
from twins.base import Twin, attend, heads_of, only_projections, per_head, per_sequence, projections


def seen(i, k, padding, causal):
    return [j for j in range(len(k)) if not padding[j] and (j <= i or not causal)]


def weighted_mean(scores, v, guard):
    """sum_j scores_j v_j / guard(sum_j scores_j) of a dictionary of scores; zeros if it is empty."""
    if not scores:
        return torch.zeros_like(v[0])
    weights = torch.stack(list(scores.values()))
    return weights @ v[list(scores)] / guard(weights.sum())


@per_head
def linear_transformer(model, h, q, k, v, padding, causal):
    def phi(x):
        return torch.where(x > 0, x + 1, torch.exp(x))

    q, k, rows = phi(q), phi(k), []
    for i in range(len(q)):
        scores = {j: q[i] @ k[j] for j in seen(i, k, padding, causal)}
        rows.append(weighted_mean(scores, v, lambda total: total + 1e-6))
    return torch.stack(rows)


@per_head
def cosformer(model, h, q, k, v, padding, causal):
    real = max((j + 1 for j in range(len(k)) if not padding[j]), default=1)
    span = {
        Pattern.NONCAUSAL_SELF: real,
        Pattern.CAUSAL_SELF: model.max_length,
        Pattern.NONCAUSAL_CROSS: max(len(q), real),
    }[model.pattern]
    q, k, rows = q.clamp(min=0), k.clamp(min=0), []
    for i in range(len(q)):
        scores = {j: q[i] @ k[j] * math.cos(math.pi / 2 * (i - j) / span) for j in seen(i, k, padding, causal)}
        rows.append(weighted_mean(scores, v, lambda total: total.clamp(min=1e-6)))
    return torch.stack(rows)


@per_sequence
def rfa(model, x, source, padding, causal):
    linears = ((model.q_proj, x), (model.k_proj, source), (model.v_proj, source))
    q, k, v = (heads_of(linear(y), model.heads) for linear, y in linears)
    out = []
    for h in range(model.heads):

        def phi(y, directions=model.sigma[h] * model.normals[h]):
            angles = directions @ (y / y.norm())
            return torch.cat([angles.sin(), angles.cos()]) / math.sqrt(len(directions))

        phi_q, phi_k = ([phi(row) for row in y[h]] for y in (q, k))
        gates = torch.ones(len(x)) if model.gate_proj is None else torch.sigmoid(model.gate_proj(x)[:, h])
        rows = []
        for i in range(len(x)):
            scores = {}
            for j in seen(i, k[h], padding, causal):
                scores[j] = phi_q[i] @ phi_k[j]
                if model.gate_proj is not None:
                    passed = [gates[s] for s in range(j + 1, i + 1) if not padding[s]]
                    scores[j] = scores[j] * (1 - gates[j]) * math.prod(passed)
            rows.append(weighted_mean(scores, v[h], lambda total: total.clamp(min=model.floor)))
        out.append(torch.stack(rows))
    return model.out_proj(torch.cat(out, -1))


def rfa_parameters(dim, heads, pattern, max_length, hyper):
    return projections(dim) + dim + (dim * heads + heads if hyper["gate"] else 0)


@per_head
def bounded_memory(model, h, q, k, v, padding, causal):
    def slots(x, control, tokens):
        return (x[tokens] @ control).softmax(0).T @ x[tokens]

    rows = []
    for i in range(len(q)):
        tokens = seen(i, k, padding, causal)
        if tokens:
            keys, values = slots(k, model.key_slots, tokens), slots(v, model.value_slots, tokens)
            rows.append(attend(q[i], keys, values, list(range(len(keys)))))
        else:
            rows.append(torch.zeros_like(q[i]))
    return torch.stack(rows)


def bounded_memory_parameters(dim, heads, pattern, max_length, hyper):
    return projections(dim) + 2 * dim // heads * hyper["slots"]


@per_head
def lara(model, h, q, k, v, padding, causal):
    tokens = [j for j in range(len(k)) if not padding[j]]
    scale, count = q.shape[-1] ** -0.5, model.landmarks
    smaller = count - len(tokens) % count
    sizes = [len(tokens) // count] * smaller + [len(tokens) // count + 1] * (count - smaller)
    centres, rest = [], tokens
    for size in sizes:
        segment, rest = rest[:size], rest[size:]
        if segment:
            centres.append(q[segment].mean(0) + k[segment].mean(0))

    def log_proposal(x, w):
        return scale * (w @ x - x @ x / 2)

    read, total = [], []
    for w in centres:
        logits = torch.stack([log_proposal(k[j], w) for j in tokens])
        read.append(logits.softmax(0) @ v[tokens])
        total.append(logits.logsumexp(0))
    rows = []
    for x in q:
        pairs = zip(centres, total, strict=True)
        logits = [scale * (w @ x) + log_proposal(x, w) + lse - log_proposal(w, w) for w, lse in pairs]
        rows.append(torch.stack(logits).softmax(0) @ torch.stack(read))
    return torch.stack(rows)


@per_head
def performer_relu(model, h, q, k, v, padding, causal):
    def phi(x):
        return (x if model.directions is None else model.directions[h] @ x).clamp(min=0) + 1e-3

    q, k, rows = [phi(row) for row in q], [phi(row) for row in k], []
    for i in range(len(q)):
        scores = {j: q[i] @ k[j] for j in seen(i, k, padding, causal)}
        rows.append(weighted_mean(scores, v, lambda total: total.clamp(min=model.floor)))
    return torch.stack(rows)


@per_head
def forgetful_memory(model, h, q, k, v, padding, causal):
    def shares(x, control, i, tokens):
        return (x[tokens] @ control).softmax(0)[tokens.index(i)]

    rows = []
    for i in range(len(q)):
        if padding[i]:
            rows.append(torch.zeros_like(q[i]))  # means nothing
            continue
        tokens = seen(i, k, padding, causal)
        keys = shares(k, model.key_slots, i, tokens)[:, None] * k[i]
        values = shares(v, model.value_slots, i, tokens)[:, None] * v[i]
        rows.append(attend(q[i], keys, values, list(range(len(keys)))))
    return torch.stack(rows)


TWINS = {
    "abc_cab": Twin(forgetful_memory, bounded_memory_parameters, ({"slots": 21},)),
    "performer_relu": Twin(performer_relu, only_projections, ({"features": None}, {"cab_compat": True})),
    "lara": Twin(lara, only_projections, ({"landmarks": 1}, {"landmarks": 21})),
    "abc": Twin(bounded_memory, bounded_memory_parameters, ({"slots": 1}, {"slots": 21})),
    "rfa": Twin(rfa, rfa_parameters, ({"floor": 1.0}, {"features": 21}), ({"gate": True},)),
    "cosformer": Twin(cosformer, only_projections),
    "linear_transformer": Twin(linear_transformer, only_projections),
}
