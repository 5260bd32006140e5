"""MoBA and NSA, token by token."""

import torch
import torch.nn.functional as F

from twins.base import Twin, attend, heads_of, per_sequence


def rotated(x):
    """Adjacent channels as complex numbers, turned by their position."""
    pairs = x.shape[-1] // 2
    angles = torch.tensor(
        [[t * 10000.0 ** (-j / pairs) for j in range(pairs)] for t in range(len(x))], dtype=torch.float64
    )
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


def projected(model, x):
    """q, k, v of each head."""
    shared = model.heads // model.key_heads
    q = [rotated(y) for y in heads_of(model.q_proj(x), model.heads)]
    k = [rotated(y) for y in heads_of(model.k_proj(x), model.key_heads) for _ in range(shared)]
    return q, k, [y for y in heads_of(model.v_proj(x), model.key_heads) for _ in range(shared)]


def real_in(block, size, padding):
    return [j for j in range(block * size, (block + 1) * size) if not padding[j]]


def best(scores, count):
    """The keys of the highest values; of equal ones, the earlier."""
    return sorted(scores, key=lambda block: (-float(scores[block].detach()), block))[:count]


def seen_by(t, blocks, size, padding):
    """Tokens of the own block of t, and of past `blocks`."""
    current_tokens = [j for j in range(t // size * size, t + 1) if not padding[j]]
    return [j for block in blocks for j in real_in(block, size, padding)] + current_tokens


@per_sequence
def moba(model, x, source, padding, causal):
    size, out = model.block, []
    for q, k, v in zip(*projected(model, x), strict=True):
        rows = []
        for t in range(len(x)):
            past = [block for block in range(t // size) if real_in(block, size, padding)]
            scores = {block: q[t] @ k[real_in(block, size, padding)].mean(0) for block in past}
            rows.append(attend(q[t], k, v, seen_by(t, best(scores, model.selected - 1), size, padding)))
        out.append(torch.stack(rows))
        if isinstance(model.head_norm, torch.nn.RMSNorm):
            out[-1] = out[-1] * (out[-1].square().mean(-1, keepdim=True) + 1e-6).rsqrt() * model.head_norm.weight
    return model.out_proj(torch.cat(out, -1))


def compressed(network, rows, real):
    if network is None:
        return rows[real].mean(0)
    rows = (rows + network.positions) * real[:, None]
    hidden = F.gelu(network.hidden.weight @ rows.flatten() + network.hidden.bias)
    return network.out.weight @ hidden + network.out.bias


@per_sequence
def nsa(model, x, source, padding, causal):
    size, shared = model.block, model.heads // model.key_heads
    q, k, v = projected(model, x)
    gates = torch.sigmoid(model.gate_proj(x)).unflatten(-1, (model.heads, 3))
    out = [[] for _ in q]
    for t in range(len(x)):
        complete = [c for c in range((t + 1) // size) if real_in(c, size, padding)]
        spans = [slice(c * size, (c + 1) * size) for c in complete]
        for first in range(0, model.heads, shared):
            group, shares, far = range(first, first + shared), {}, {}
            for h in group:
                keys, values = (
                    torch.stack([compressed(network, rows[s], ~padding[s]) for s in spans] or [0 * rows[0]])
                    for network, rows in ((model.compress_keys, k[h]), (model.compress_values, v[h]))
                )
                far[h] = attend(q[h][t], keys, values, list(range(len(spans))))
                if spans:
                    shares[h] = (keys @ q[h][t] / q[h].shape[-1] ** 0.5).softmax(0)
            current = t // size
            ranked = {c: sum(shares[h][i] for h in group) for i, c in enumerate(complete) if c < current}
            ranked |= {c: torch.tensor(9.0) for c in (0, current - 1) if c in ranked}
            tokens = seen_by(t, best(ranked, model.selected - 1), size, padding)
            window = [j for j in range(max(0, t + 1 - model.window), t + 1) if not padding[j]]
            for h in group:
                rows = far[h], attend(q[h][t], k[h], v[h], tokens), attend(q[h][t], k[h], v[h], window)
                out[h].append(sum(gate * y for gate, y in zip(gates[t, h], rows, strict=True)))
    return model.out_proj(torch.cat([torch.stack(rows) for rows in out], -1))


def chosen_parameters(dim, hyper):
    narrow = dim // hyper["group"]
    return 2 * dim * dim + 2 * dim * narrow + 2 * dim + 2 * narrow


def moba_parameters(dim, heads, pattern, max_length, hyper):
    return chosen_parameters(dim, hyper) + hyper["head_norm"] * dim // heads


def nsa_parameters(dim, heads, pattern, max_length, hyper):
    width, size = dim // heads, hyper["block"]
    network = size * width * width + width * width + size * width + 2 * width
    return chosen_parameters(dim, hyper) + 3 * dim * heads + (hyper["compression"] == "mlp") * 2 * network


TWINS = {
    "moba": Twin(
        moba, moba_parameters, ({"group": 2}, {"head_norm": True}, {"selected": 1}, {"selected": 2, "block": 3})
    ),
    "nsa": Twin(
        nsa,
        nsa_parameters,
        ({"group": 2}, {"compression": "mlp"}, {"block": 2, "selected": 4}, {"selected": 1}, {"window": 1}),
    ),
}
