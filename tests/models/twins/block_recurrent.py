"""The Block-Recurrent Transformer, token by token and state by state."""

import math

import torch

from twins.base import Twin, attend, heads_of, per_sequence


def distance_range(distance):
    if distance < 16:
        return distance
    return min(31, 16 + math.floor(16 * math.log(distance / 16) / math.log(8)))


def normed(norm, states):
    mean, variance = states.mean(-1, keepdim=True), states.var(-1, keepdim=True, correction=0)
    return (states - mean) / (variance + 1e-5).sqrt() * norm.weight + norm.bias


def across_heads(q, k, v, keys, heads):
    """Rows of q (n, D) attend to the rows `keys` of k and v."""
    out = []
    for a, b, c in zip(*(heads_of(x, heads) for x in (q, k, v)), strict=True):
        out.append(torch.stack([attend(row, b, c, keys) for row in a]))
    return torch.cat(out, -1)


def gated(gate, states, h):
    if hasattr(gate, "rate"):
        keep = 1 / (1 + torch.exp(-gate.rate))
        return states * keep + gate.linear(h) * (1 - keep)
    z, i, f = gate.linear(h).chunk(3, -1)
    return states / (1 + torch.exp(-f - 1)) + torch.tanh(z) / (1 + torch.exp(1 - i))


@per_sequence
def block_recurrent(model, x, source, padding, causal):
    w, length, every = model.window, len(x), model.recurrence
    q, k, v = model.q_proj(x), model.k_proj(x), model.v_proj(x)
    out = []
    for h, (a, b, c) in enumerate(zip(*(heads_of(y, model.heads) for y in (q, k, v)), strict=True)):
        rows = []
        for i in range(length):
            keys = [j for j in range(max(0, i - w + 1), i + 1) if not padding[j]]
            rows.append(attend(a[i], b, c, keys, {j: model.position_bias[h, distance_range(i - j)] for j in keys}))
        out.append(torch.stack(rows))
    y = model.out_proj(torch.cat(out, -1))
    if every is None:
        return y
    states, read, slots = torch.zeros_like(every.ids), [], range(len(every.ids))
    for first in range(0, length, w):
        u = normed(every.norm, states) + every.ids
        state_k, state_v = every.state_kv(u).chunk(2, -1)
        window = range(first, min(first + w, length))
        read.append(across_heads(every.token_q(x[window]), state_k, state_v, list(slots), model.heads))
        to_states, to_tokens = every.state_q(u).chunk(2, -1)
        from_states = across_heads(to_states, state_k, state_v, list(slots), model.heads)
        tokens = across_heads(to_tokens, k, v, [j for j in window if not padding[j]], model.heads)
        states = gated(every.gate, states, torch.cat([from_states, tokens], -1))
    return y + every.token_out(torch.cat(read))


def block_recurrent_parameters(dim, heads, pattern, max_length, hyper):
    window = 4 * dim * dim + 32 * heads
    if not hyper["recurrent_layer"]:
        return window
    gate = 2 * dim * dim + 2 * dim if hyper["gate"] == "bias" else 6 * dim * dim + 3 * dim
    return window + 6 * dim * dim + (hyper["slots"] + 2) * dim + gate


TWINS = {
    "block_recurrent": Twin(
        block_recurrent,
        block_recurrent_parameters,
        (
            {"gate": "lstm"},
            {"recurrent_layer": 0},
            {"window": 1, "slots": 3},
            {"window": 5, "slots": 1},
            {"window": 100},
        ),
    )
}
