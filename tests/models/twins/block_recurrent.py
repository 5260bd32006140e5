"""The Block-Recurrent Transformer, token by token and state by state."""

import math

import torch

from twins.base import Twin, heads_of, per_sequence, unit


def distance_range(distance):
    if distance < 16:
        return distance
    return min(31, 16 + math.floor(16 * math.log(distance / 16) / math.log(8)))


def normed(norm, states):
    return states / (states.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight


def attend(q, k, v, factor, bias=0.0):
    """Softmax attention of one query q (E) to all rows of k and v; zeros without keys."""
    return (factor * (unit(k) @ unit(q) + bias)).softmax(0) @ v if len(k) else torch.zeros_like(q)


def across_heads(q, k, v, factors):
    """Rows of q (n, D) attend to all rows of k and v."""
    heads = len(factors)
    out = []
    for a, b, c, factor in zip(*(heads_of(x, heads) for x in (q, k, v)), factors, strict=True):
        out.append(torch.stack([attend(row, b, c, factor) for row in a]))
    return torch.cat(out, -1)


def gated(gate, states, h):
    z = gate.new(h)
    if hasattr(gate, "rate"):
        keep = 1 / (1 + torch.exp(-gate.rate))
        return states * keep + z * (1 - keep)
    i, f = gate.gates(h).chunk(2, -1)
    return states / (1 + torch.exp(-f - 1)) + (torch.tanh(z) if gate.printed else z) / (1 + torch.exp(1 - i))


@per_sequence
def block_recurrent(model, x, source, padding, causal):
    w, length, every = model.window, len(x), model.recurrence
    # token t is row w + t: zeros stand before the first one
    zeros, hidden = x.new_zeros(w, x.shape[1]), torch.cat([torch.zeros(w, dtype=torch.bool), padding])
    q, k, v = model.q_proj(x), torch.cat([zeros, model.k_proj(x)]), torch.cat([zeros, model.v_proj(x)])
    out = []
    for h, (a, b, c) in enumerate(zip(*(heads_of(y, model.heads) for y in (q, k, v)), strict=True)):
        rows = []
        for i in range(length):
            keys = [j for j in range(i, i + w) if not hidden[j]]
            bias = model.position_bias[h, [distance_range(w + i - j) for j in keys]]
            rows.append(attend(a[i], b[keys], c[keys], model.factor[h], bias))
        out.append(torch.stack(rows))
    y = model.out_proj(torch.cat(out, -1))
    if every is None:
        return y
    states, read = every.first_states, []
    for first in range(0, length, w):
        u = normed(every.norm, states) + every.ids
        state_k, state_v = every.state_kv(u).chunk(2, -1)
        read.append(across_heads(every.token_q(x[first : first + w]), state_k, state_v, every.token_factor))
        if first + w >= length:
            break
        to_states, to_tokens = every.state_q(u).chunk(2, -1)
        from_states = across_heads(to_states, state_k, state_v, every.state_factors[0])
        keys = [j for j in range(first, first + 2 * w) if not hidden[j]]
        tokens = across_heads(to_tokens, k[keys], v[keys], every.state_factors[1])
        states = gated(every.gate, states, torch.cat([from_states, tokens], -1))
    return y + every.token_out(torch.cat(read))


def block_recurrent_parameters(dim, heads, pattern, max_length, hyper):
    window = 4 * dim * dim + 33 * heads
    if not hyper["recurrent_layers"]:
        return window
    gate = 2 * dim * dim + dim if hyper["gate"] == "bias" else 6 * dim * dim + 2 * dim
    gate += dim * hyper["printed_gates"]
    return window + 6 * dim * dim + (2 * hyper["slots"] + 1) * dim + 3 * heads + gate


TWINS = {
    "block_recurrent": Twin(
        block_recurrent,
        block_recurrent_parameters,
        (
            {"gate": "lstm"},
            {"printed_gates": True},
            {"gate": "lstm", "printed_gates": True},
            {"recurrent_layers": []},
            {"window": 1, "slots": 3},
            {"window": 5, "slots": 1},
            {"window": 100},
        ),
    )
}
