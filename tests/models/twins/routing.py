"""The Routing Transformer, head by head and cluster by cluster."""

import math

import torch

from twins.base import Twin, attend, centred, heads_of, per_sequence


def taken(centroid, rows, tokens, window):
    """The tokens of a cluster, in their order."""
    score = {i: float((centroid @ rows[i]).detach()) for i in tokens}
    return sorted(sorted(tokens, key=score.get, reverse=True)[:window])


def local_head(model, h, q, k, v, padding, causal):
    w, rows = model.window, []
    for i in range(len(q)):
        keys = [j for j in range(len(k)) if (i - w < j <= i if causal else abs(i - j) <= w) and not padding[j]]
        first = i - w + 1 if causal else i - w
        rows.append(attend(q[i], k, v, keys, {j: model.position_bias[h, j - first] for j in keys}))
    return torch.stack(rows)


def routing_head(model, h, q, k, v, padding, causal):
    tokens, met = [i for i in range(len(q)) if not padding[i]], [[] for _ in q]
    for centroid in model.centroids[h]:
        answer = taken(centroid, k, tokens, model.window)
        for i in taken(centroid, q, tokens, model.window):
            met[i].append([j for j in answer if j <= i] if causal else answer)
    zeros = torch.zeros_like(v[0])
    if model.score_scale == 1:
        q = q * math.sqrt(q.shape[-1])  # `attend` divides scores by it
    return torch.stack(
        [sum((attend(q[i], k, v, keys) for keys in met[i]), zeros) / (len(met[i]) + 0.01) for i in range(len(q))]
    )


@per_sequence
def routing(model, x, source, padding, causal):
    heads = model.heads
    v, count = heads_of(model.v_proj(x), heads), len(model.centroids)
    out = []
    if count < heads:
        q, k = (heads_of(linear(x), heads - count) for linear in (model.local_q, model.local_k))
        out += [local_head(model, h, q[h], k[h], v[h], padding, causal) for h in range(heads - count)]
    q = [centred(y / math.sqrt(y.shape[-1]), 1e-6) for y in heads_of(model.routing_q(x), count)]
    k = q if causal else [centred(y, 1e-6) for y in heads_of(model.routing_k(x), count)]
    out += [routing_head(model, h, q[h], k[h], v[heads - count + h], padding, causal) for h in range(count)]
    return model.out_proj(torch.cat(out, -1))


def routing_parameters(dim, heads, pattern, max_length, hyper):
    routing = math.ceil(heads / 2) if hyper["routing_heads"] is None else hyper["routing_heads"]
    causal = "noncausal" not in pattern
    biases = (heads - routing) * (hyper["window"] if causal else 2 * hyper["window"] + 1)
    return 4 * dim * dim + biases - causal * routing * dim * (dim // heads)


TWINS = {
    "routing": Twin(
        routing,
        routing_parameters,
        (
            {"routing_heads": 2},
            {"window": 1},
            {"clusters": 1, "window": 5},
            {"clusters": 2, "window": 100},
            {"scale_scores": True},
        ),
    )
}
