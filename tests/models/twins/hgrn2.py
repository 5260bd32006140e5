"""HGRN2, token by token, in a stack of any depth."""

import torch

from twins.base import Twin, per_sequence
from twins.latte import convolution


@per_sequence
def hgrn2(model, x, source, padding, causal):
    shares = torch.softmax(model.rows, 0)
    bound = sum(shares[1 : model.index + 1], torch.zeros_like(shares[0]))
    q, v, gate = model.q_proj(x), model.v_proj(x), model.f_proj(x)
    if model.convolution is not None:
        q, v, gate = convolution(model.convolution, torch.cat([q, v, gate], -1), padding, True).chunk(3, -1)
    forget = bound + (1 - bound) * torch.sigmoid(gate)
    q, width = q * torch.sigmoid(q), model.expand_ratio
    state, rows = torch.zeros(len(bound) // width, width, width, dtype=x.dtype), []
    for t in range(len(x)):
        if not padding[t]:
            f = forget[t].view(-1, width, 1)
            state = f * state + (1 - f) * v[t].view(-1, 1, width)
        o = (q[t].view(-1, 1, width) @ state).flatten() / width**0.5
        rows.append(o / (o.square().mean() + 1e-5).sqrt() * model.norm.weight)
    return model.out_proj(torch.stack(rows))


def hgrn2_parameters(dim, heads, pattern, max_length, hyper):
    return 4 * dim * dim + 2 * dim + (hyper.get("conv") or 0) * 3 * dim


TWINS = {"hgrn2": Twin(hgrn2, hgrn2_parameters, ({"expand_ratio": 4}, {"expand_ratio": 1}, {"conv": 4}))}
