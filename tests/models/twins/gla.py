"""Gated linear attention, token by token."""

import torch

from twins.base import Twin, heads_of, per_sequence
from twins.latte import convolution


@per_sequence
def gla(model, x, source, padding, causal):
    forget = torch.sigmoid(model.decay_out(model.decay_in(x))) ** (1 / model.temperature)
    parts, gates, heads = [f(x) for f in (model.q_proj, model.k_proj, model.v_proj)], model.gate_proj(x), []
    if model.convolution is not None:
        y = convolution(model.convolution, torch.cat(parts, -1), padding, True)
        parts = (y * torch.sigmoid(y)).split([part.shape[1] for part in parts], -1)
    for q, k, v, gate, a in zip(*(heads_of(y, model.heads) for y in (*parts, gates, forget)), strict=True):
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
    taps = (hyper.get("conv") or 0) * (2 * k + v)
    return 2 * dim * k + 3 * dim * v + dim * rank + rank * k + k + v // heads + taps


VARIANTS = ({"expand_k": 1.0, "expand_v": 2.0}, {"gate_rank": 1, "temperature": 1.0}, {"conv": 4})
TWINS = {"gla": Twin(gla, gla_parameters, VARIANTS)}
