"""Hyena, with each filter tap and each sum by itself."""

import math

import torch

from twins.base import Twin, per_sequence
from twins.latte import convolution


def tap(filters, t, length):
    """h(t), (C,)."""
    # the sines amplify rounding, so the bands are rounded as in the model
    bands = torch.linspace(1e-4, filters.bands - 1, filters.bands, dtype=torch.float64)
    share, turns = t / max(1, length - 1), torch.exp(-1j * (2 * math.pi * t / length * bands))
    z = torch.cat([torch.tensor([share], dtype=torch.float64), turns.real, turns.imag])
    for layer in filters.hidden:
        z = torch.sin(filters.frequency * layer(z))
    channels = filters.out.weight.shape[0]
    ends = [1.5**-1 + (0.3**-1 - 1.5**-1) * c / max(1, channels - 1) for c in range(channels)]
    window = torch.tensor([0.01 ** (share * end) for end in ends], dtype=torch.float64) + filters.window_shift
    return filters.out(z) * window


@per_sequence
def hyena(model, x, source, padding, causal):
    dim, order = x.shape[1], model.order
    u = convolution(model.convolution, model.in_proj(x), padding, True) + model.convolution_bias
    parts = u.split(dim, -1)
    taps = torch.stack([tap(model.filters, t, model.max_length) for t in range(len(x))])  # (N, C)
    v = parts[-1]
    for step in range(order - 1):
        channels = slice(step * dim, (step + 1) * dim)
        v = torch.where(padding[:, None], 0.0, parts[order - 1 - step] * v)
        rows = [sum(taps[t - s, channels] * v[s] for s in range(t + 1)) for t in range(len(x))]
        v = torch.stack(rows) + model.filters.skip[channels] * v
    return model.out_proj(parts[0] * v)


def hyena_parameters(dim, heads, pattern, max_length, hyper):
    parts, filters, width = hyper["order"] + 1, (hyper["order"] - 1) * dim, hyper["filter_width"]
    network = (hyper["emb_dim"] + 1) * width + 2 * (width + 1) * width + width + width * filters
    return parts * (dim * dim + dim * (hyper["conv"] + 2)) + dim * dim + dim + network + filters


TWINS = {
    "hyena": Twin(
        hyena,
        hyena_parameters,
        ({"order": 3}, {"conv": 1}, {"emb_dim": 3, "filter_width": 4}, {"shift": 0.1, "frequency": 1.0}),
    )
}
