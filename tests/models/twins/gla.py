"""Gated linear attention, token by token."""

import torch

from twins.base import Twin, heads_of, per_sequence


@per_sequence
def gla(model, x, source, padding, causal):
    forget = torch.sigmoid(model.decay_out(model.decay_in(x))) ** (1 / model.temperature)
    layers = (model.q_proj, model.k_proj, model.v_proj, model.gate_proj)
    heads = []
    for q, k, v, gate, a in zip(*(heads_of(y, model.heads) for y in (*(f(x) for f in layers), forget)), strict=True):
        state, rows = torch.zeros(k.shape[1], v.shape[1], dtype=x.dtype), []
        for t in range(len(x)):
            if not padding[t]:
                state = a[t][:, None] * state + torch.outer(k[t], v[t])
            o = q[t] @ state / q.shape[1] ** 0.5
            o = o / (o.square().mean() + 1e-5).sqrt() * model.norm.weight
            rows.append(gate[t] * torch.sigmoid(gate[t]) * o)
        heads.append(torch.stack(rows))
    return model.out_proj(torch.cat(heads, -1))


def gla_parameters(dim, heads, pattern, max_length, hyper):
    k, v, rank = int(dim * hyper["expand_k"]), int(dim * hyper["expand_v"]), hyper["gate_rank"]
    return 2 * dim * k + 3 * dim * v + dim * rank + rank * k + k + v // heads


TWINS = {"gla": Twin(gla, gla_parameters, ({"expand_k": 1.0, "expand_v": 2.0}, {"gate_rank": 1, "temperature": 1.0}))}
