"""RWKV-7, token by token; the first layer of a stack."""

import math

import torch

from twins.base import Twin, heads_of, per_sequence
from twins.rwkv4 import shifted


def low_rank(layer, x, activation):
    return layer.outer(activation(layer.inner(x)))


@per_sequence
def rwkv7(model, x, source, padding, causal):
    clean = torch.where(padding[:, None], 0.0, x)
    to_r, to_w, to_k, to_v, to_a, to_g = (shifted(mu, clean) for mu in model.shift.shares)
    r, k, v = model.r_proj(to_r), model.k_proj(to_k), model.v_proj(to_v)
    w = torch.exp(-math.exp(-0.5) * torch.sigmoid(low_rank(model.decay_map, to_w, torch.tanh)))
    a = torch.sigmoid(low_rank(model.rate_map, to_a, lambda y: y))
    removal = heads_of(k * model.removal_weight, model.heads)
    k = k * (1 + (a - 1) * model.rate_weight)
    norm = [heads_of(y[None], model.heads) for y in (model.norm_weight, model.norm_bias)]
    r, k, v, w, a = (heads_of(y, model.heads) for y in (r, k, v, w, a))
    heads = []
    for h in range(model.heads):
        state, rows = x.new_zeros(k[h].shape[1], v[h].shape[1]), []
        for t in range(len(x)):
            z = removal[h][t] / removal[h][t].square().sum().sqrt().clamp(min=1e-12)
            if not padding[t]:
                state = w[h][t][:, None] * state - torch.outer(a[h][t] * z, z @ state) + torch.outer(k[h][t], v[h][t])
            o = r[h][t] @ state
            o = (o - o.mean()) / (o.var(unbiased=False) + 1e-5 * len(o)).sqrt() * norm[0][h][0] + norm[1][h][0]
            rows.append(o + (r[h][t] * model.bonus[h] * k[h][t]).sum() * v[h][t])
        heads.append(torch.stack(rows))
    return model.out_proj(torch.cat(heads, -1) * low_rank(model.gate_map, to_g, torch.sigmoid))


def rwkv7_parameters(dim, heads, pattern, max_length, hyper):
    factors = {"decay_rank": 2.5, "rate_rank": 2.5, "gate_rank": 5.0}
    ranks = [hyper[name] or max(32, 32 * round(factor * dim**0.5 / 32)) for name, factor in factors.items()]
    return 4 * dim * dim + 2 * dim * sum(ranks) + 13 * dim


TWINS = {"rwkv7": Twin(rwkv7, rwkv7_parameters, ({"decay_rank": 2, "rate_rank": 3, "gate_rank": 5},))}
