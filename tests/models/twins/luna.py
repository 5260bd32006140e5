"""Luna."""

import torch

from models.attention.base import Pattern
from models.ops.packed_prefix import ACTIVATIONS
from models.ops.positions import sinusoidal_positions
from twins.base import Twin, attend, heads_of, per_sequence


def extra_sequence(model):
    """P of a layer without a carry."""
    table = model.first.table
    p = table
    if model.first.positions is not None:
        p = table * table.shape[1] ** 0.5 + sinusoidal_positions(*table.shape)
    return torch.stack([model.first.norm(row) for row in p])


def keys_of(model, source, k_proj, values):
    if k_proj is not None:
        return k_proj(source)
    return source if model.raw_key else values


def omega(model, x):
    if model.activation is ACTIVATIONS["softplus"]:
        return torch.log2(1 + 2**x)
    return x + 1 if x > 0 else torch.exp(x)


@per_sequence
def luna(model, x, source, padding, causal):
    tokens = [j for j in range(len(source)) if not padding[j]]
    p = extra_sequence(model)
    q = heads_of(model.q_proj(x), model.heads)
    return model.out_proj((unpack_causal if causal else pack_and_unpack)(model, p, q, source, tokens))


def pack_and_unpack(model, p, q, source, tokens):
    slots = list(range(min(len(p), len(tokens)) if model.dynamic else len(p)))
    heads = model.pack_heads
    pack_q = heads_of(model.pack_q_proj(model.slots_norm(p) if model.pre_norm else p), heads)
    values = model.pack_v_proj(source)
    k, v = (heads_of(y, heads) for y in (keys_of(model, source, model.pack_k_proj, values), values))
    packed = [torch.stack([attend(row, k[h], v[h], tokens) for row in pack_q[h]]) for h in range(heads)]
    packed = torch.cat(packed, -1)  # Y_P
    values = model.v_proj(packed)
    k, v = (heads_of(y, model.heads) for y in (keys_of(model, packed, model.k_proj, values), values))
    return torch.cat([torch.stack([attend(row, k[h], v[h], slots) for row in q[h]]) for h in range(model.heads)], -1)


def unpack_causal(model, p, q, x, tokens):
    pack_q, pack_k = heads_of(model.pack_q_proj(p), model.heads), heads_of(model.pack_k_proj(x), model.heads)
    values = model.v_proj(x)
    k, v = (heads_of(y, model.heads) for y in (keys_of(model, x, model.k_proj, values), values))
    scale, out = model.head_dim**-0.5, []
    for h in range(model.heads):
        a = {j: torch.stack([omega(model, slot @ pack_k[h][j] * scale) for slot in pack_q[h]]) for j in tokens}
        rows = []
        for i in range(len(x)):
            past = [j for j in tokens if j <= i]
            nothing = torch.zeros_like(p[:, 0])
            u = (sum(((q[h][i] @ k[h][j]) * a[j] for j in past), nothing) * scale / max(len(past), 1)).softmax(0)
            rows.append(sum(((u @ a[j]) * v[h][j] for j in past), torch.zeros_like(v[h][0])) / max(len(past), 1))
        out.append(torch.stack(rows))
    return torch.cat(out, -1)


def luna_parameters(dim, heads, pattern, max_length, hyper):
    causal = pattern is Pattern.CAUSAL_SELF
    linears = 5 if hyper["tie_kv"] else 6 if causal else 7
    norms = (not causal) + hyper["norm_slots"]
    return linears * (dim * dim + dim) + hyper["slots"] * dim + norms * 2 * dim


VARIANTS = (
    {"tie_kv": False},
    {"luna_key": "raw"},
    {"activation": "elu"},
    {"pre_norm": True},
    {"dynamic": False},
    {"slot_positions": False, "norm_slots": True},
    {"pack_heads": 1},
    {"pack_heads": 8, "tie_kv": False},
    {"slots": 21},
)
TWINS = {
    "luna": Twin(luna, luna_parameters, VARIANTS),
}
