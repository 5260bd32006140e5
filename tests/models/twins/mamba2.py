"""Mamba-2, token by token."""

import torch

from twins.base import Twin, per_sequence
from twins.latte import convolution


@per_sequence
def mamba2(model, x, source, padding, causal):
    count, width = len(model.skip), model.d_state
    inner = model.out_proj.in_features
    z, projected = model.gate_proj(x), model.in_proj(x)
    steps = projected[:, -count:]
    mixed = convolution(model.convolution, projected[:, :-count], padding, True) + model.convolution_bias
    mixed = mixed * torch.sigmoid(mixed)
    state, rows = torch.zeros(count, inner // count, width, dtype=x.dtype), []
    for t, row in enumerate(mixed):
        u, b, c = row[:inner].view(count, -1), row[inner : inner + width], row[inner + width :]
        delta = torch.log(1 + torch.exp(steps[t] + model.step_bias))
        if not padding[t]:
            decay = torch.exp(-delta * torch.exp(model.log_decay))
            state = decay[:, None, None] * state + delta[:, None, None] * u[:, :, None] * b
        o = (state @ c + model.skip[:, None] * u).flatten() * z[t] * torch.sigmoid(z[t])
        rows.append(o / (o.square().mean() + 1e-5).sqrt() * model.norm.weight)
    return model.out_proj(torch.stack(rows))


def mamba2_parameters(dim, heads, pattern, max_length, hyper):
    inner, size = hyper["expand"] * dim, hyper["d_state"]
    count = heads if hyper["head_dim"] is None else inner // hyper["head_dim"]
    return dim * (3 * inner + 2 * size + count) + (hyper["conv"] + 1) * (inner + 2 * size) + 3 * count + inner


TWINS = {
    "mamba2": Twin(mamba2, mamba2_parameters, ({"expand": 1, "head_dim": 4}, {"d_state": 1}, {"conv": 1, "d_state": 5}))
}
