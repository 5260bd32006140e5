"""Segments that read a memory of earlier segments."""

import torch

from twins.base import Twin, heads_of, per_sequence, sinusoid


def attend(model, x_i, keys):
    """One query x_i (D) over pairs (input (D), distance) -> what the heads read, (D)."""
    if not keys:
        return torch.zeros_like(x_i)
    inputs = torch.stack([x for x, _ in keys])
    places = model.position_proj(torch.stack([sinusoid(distance, model.dim) for _, distance in keys]))
    q, k, v, r = (
        heads_of(y, model.heads) for y in (model.q_proj(x_i), model.k_proj(inputs), model.v_proj(inputs), places)
    )
    rows = []
    for h in range(model.heads):
        scores = k[h] @ (q[h] + model.content_bias[h]) + r[h] @ (q[h] + model.position_bias[h])
        rows.append((scores / len(q[h]) ** 0.5).softmax(0) @ v[h])
    return torch.cat(rows)


@per_sequence
def transformer_xl(model, x, source, padding, causal):
    rows = []
    for i in range(len(x)):
        start = i // model.segment * model.segment
        first = max(0, start - model.memory_length)
        memory = x.detach() if model.detach_memory else x
        keys = [(x[j] if j >= start else memory[j], i - j) for j in range(first, i + 1) if not padding[j]]
        rows.append(attend(model, x[i], keys))
    return model.out_proj(torch.stack(rows))


def transformer_xl_parameters(dim, heads, pattern, max_length, hyper):
    return 5 * dim * dim + 2 * dim


@per_sequence
def compressive(model, x, source, padding, causal):
    s, m, c, rows = model.segment, model.memory_length, model.rate, []
    memory = x.detach() if model.detach_memory else x
    real = torch.where(padding[:, None], 0.0, memory)
    for i in range(len(x)):
        start = i // s * s
        first = max(0, start - m)
        keys = [(x[j] if j >= start else memory[j], i - j) for j in range(first, i + 1) if not padding[j]]
        for back in range(1, min(model.compressed_length, first // c) + 1):
            tokens = range(first - back * c, first - (back - 1) * c)
            if not all(padding[j] for j in tokens):
                z = model.compression(torch.cat([real[j] for j in tokens]))
                keys.append((z.detach() if model.detach_memory else z, i - first + back))
        rows.append(attend(model, x[i], keys))
    return model.out_proj(torch.stack(rows))


def compressive_parameters(dim, heads, pattern, max_length, hyper):
    return (5 + hyper["rate"]) * dim * dim + 2 * dim


TWINS = {
    "compressive": Twin(
        compressive,
        compressive_parameters,
        (
            {"segment": 2, "memory_length": 2, "compressed_length": 3},
            {"segment": 1, "memory_length": 2, "rate": 1},
            {"segment": 3, "memory_length": 6, "rate": 3, "compressed_length": 1},
            {"segment": 4, "memory_length": 4, "rate": 4, "compressed_length": 0},
            {"segment": 2, "memory_length": 4, "compressed_length": 100, "detach_memory": False},
        ),
    ),
    "transformer_xl": Twin(
        transformer_xl,
        transformer_xl_parameters,
        (
            {"segment": 1, "memory_length": 3},
            {"segment": 3, "memory_length": 7},
            {"segment": 5, "memory_length": 0},
            {"segment": 100},
            {"detach_memory": False},
        ),
    ),
}
