"""Mamba, token by token."""

import math

import torch

from twins.base import Twin, per_sequence
from twins.latte import convolution


@per_sequence
def mamba(model, x, source, padding, causal):
    inner, size = model.log_decay.shape
    projected, a = model.in_proj(x), -torch.exp(model.log_decay)
    u = convolution(model.convolution, projected[:, :inner], padding, True) + model.convolution_bias
    u, z = u * torch.sigmoid(u), projected[:, inner:]
    h, rows = torch.zeros_like(a), []
    for t, row in enumerate(u):
        s, b, c = model.x_proj(row).split([model.dt_proj.in_features, size, size])
        delta = torch.log(1 + torch.exp(model.dt_proj(s)))
        if not padding[t]:
            h = torch.exp(delta[:, None] * a) * h + delta[:, None] * row[:, None] * b
        rows.append((h @ c + model.skip * row) * z[t] * torch.sigmoid(z[t]))
    return model.out_proj(torch.stack(rows))


def mamba_parameters(dim, heads, pattern, max_length, hyper):
    inner, size = hyper["expand"] * dim, hyper["d_state"]
    rank = hyper["dt_rank"] or math.ceil(dim / 16)
    step = inner * rank + inner
    return (
        2 * dim * inner
        + (hyper["conv"] + 1) * inner
        + inner * (rank + 2 * size)
        + step
        + inner * size
        + inner
        + inner * dim
    )


TWINS = {"mamba": Twin(mamba, mamba_parameters, ({"expand": 1, "dt_rank": 3}, {"d_state": 1}, {"conv": 1}))}
