"""State-space models and gated moving averages."""

import math

import torch

from models.attention.base import Pattern
from models.attention.mega import FUNCTIONS
from twins.base import Twin, per_sequence, silu


@per_sequence
def s4d(model, x, source, padding, causal):
    step, decay = model.log_step.exp()[:, None], model.log_decay.exp()
    w = torch.complex(-decay, model.frequency)
    a = torch.exp(step * w)  # (D, n)
    b = (a - 1) / w
    readout = torch.view_as_complex(model.readout)  # (kernels, D, n)
    x = torch.where(padding[:, None], 0.0, x)

    def states(rows):
        h, out = torch.zeros_like(a), []
        for row in rows:
            h = a * h + b * row[:, None]
            out.append(h)
        return out

    past = states(x)
    y = [2 * (readout[: model.channels] * h).sum(-1).real + model.skip * x[t] for t, h in enumerate(past)]
    if model.bidirectional:
        after = [torch.zeros_like(a), *states(x.flip(0))][: len(x)][::-1]  # of what comes later than t
        y = [row + 2 * (readout[model.channels :] * h).sum(-1).real for row, h in zip(y, after, strict=True)]
    gelu = [row * (1 + torch.erf(row / math.sqrt(2))) / 2 for row in y]
    return torch.stack([model.out_proj(row.reshape(-1)) for row in gelu])


def s4d_parameters(dim, heads, pattern, max_length, hyper):
    channels, state = hyper["channels"], hyper["d_state"]
    kernels = channels * (2 if hyper["bidirectional"] and pattern is Pattern.NONCAUSAL_SELF else 1)
    return channels * dim * dim + kernels * dim * state + (channels + 2) * dim + state


def moving_average(layer, x, channels):
    """Moving average of x (N, D), row by row, with the given channels of the weights; each row includes itself."""
    p, beta, gamma = torch.sigmoid(layer.delta[channels]), layer.beta[channels], layer.gamma[channels]
    h, out = torch.zeros_like(p), []
    for row in x:
        h = (1 - p * torch.sigmoid(layer.alpha[channels])) * h + p * beta * row[:, None]
        out.append((gamma * h).sum(-1) / math.sqrt(h.shape[1]))
    return torch.stack(out)


@per_sequence
def mega(model, x, source, padding, causal):
    dim, zdim, hdim, layer = model.dim, model.zdim, model.hdim, model.average
    seen = torch.where(padding[:, None], 0.0, x)
    o = moving_average(layer, seen, slice(0, dim))
    if not causal:
        o = o + moving_average(layer, seen.flip(0), slice(dim, 2 * dim)).flip(0)
    m = silu(o + layer.omega * x)
    u, z, r, s = model.mx_proj(m).split([dim, zdim, hdim, dim], -1)
    q, k = (silu(z) * model.gamma[i] + model.beta[i] for i in (0, 1))
    v = silu(model.v_proj(x))
    rows = []
    for i in range(len(x)):
        first = i // model.chunk_size * model.chunk_size
        chunk = range(first, i + 1 if causal else first + model.chunk_size)
        keys = [j for j in chunk if j < len(x) and not padding[j]]
        attended = torch.zeros_like(v[0])
        if keys:
            laplace = model.function is FUNCTIONS["laplace"]
            scale = 1 / len(keys) if laplace else 1 / math.sqrt(zdim)
            scores = torch.stack([scale * q[i] @ k[j] + model.bias[model.chunk_size - 1 + j - i] for j in keys])
            deviations = (scores - math.sqrt(1 / 2)) / math.sqrt(1 / (4 * math.pi))
            weights = 0.5 * (1 + torch.erf(deviations / math.sqrt(2))) if laplace else scores.softmax(0)
            attended = sum(w * v[j] for w, j in zip(weights, keys, strict=True))
        rows.append(torch.sigmoid(u[i]) * (silu(s[i] + model.h_proj(silu(r[i]) * attended)) - x[i]))
    return torch.stack(rows)


def mega_parameters(dim, heads, pattern, max_length, hyper):
    z, v = hyper["zdim"], hyper["hdim"] or 2 * dim
    averages = 2 if pattern is Pattern.NONCAUSAL_SELF else 1
    average = averages * 4 * hyper["ndim"] * dim + dim
    linears = (dim + 1) * v + (dim + 1) * (2 * dim + z + v) + (v + 1) * dim
    return average + linears + 4 * z + 2 * hyper.get("chunk", max_length) - 1


@per_sequence
def s5(model, x, source, padding, causal):
    real, imaginary = model.eigenvalues.unbind(-1)
    rates = torch.complex(torch.where(real > -1e-4, -1e-4, real), imaginary)
    a = torch.exp(rates * model.log_step.exp())
    enter, leave = torch.view_as_complex(model.enter), torch.view_as_complex(model.leave)
    x = torch.where(padding[:, None], 0.0, x)

    def states(rows):
        h, out = torch.zeros_like(a), []
        for row in rows:
            h = a * h + (a - 1) / rates * (enter @ row.to(a.dtype))
            out.append(h)
        return out

    y = [model.skip * row + model.scale * (leave[0] @ h).real for row, h in zip(x, states(x), strict=True)]
    if not causal:
        after = states(x.flip(0))[::-1]  # the token itself included
        y = [row + model.scale * (leave[1] @ h).real for row, h in zip(y, after, strict=True)]
    y = torch.stack(y)
    if model.gate_proj is None:
        return y
    g = y * (1 + torch.erf(y / math.sqrt(2))) / 2
    gated = {"half_glu1": g, "half_glu2": y}[model.gate]
    return gated * torch.sigmoid(model.gate_proj(g))


def s5_parameters(dim, heads, pattern, max_length, hyper):
    modes = hyper["d_state"] // 2 if hyper["conj_sym"] else hyper["d_state"]
    readouts = 2 if pattern is Pattern.NONCAUSAL_SELF else 1
    gate = 0 if hyper["gate"] == "none" else dim * dim + dim
    return 3 * modes + 2 * modes * dim * (1 + readouts) + dim + gate


S5_VARIANTS = ({"conj_sym": False, "blocks": 1}, {"gate": "half_glu2"}, {"gate": "none"}, {"d_state": 6, "blocks": 3})
TWINS = {
    "s4d": Twin(s4d, s4d_parameters, ({"channels": 2}, {"bidirectional": False})),
    "mega": Twin(mega, mega_parameters, ({"zdim": 3, "hdim": 5, "ndim": 1}, {"attention": "laplace"})),
    "mega_chunk": Twin(mega, mega_parameters, ({"chunk": 1}, {"chunk": 100}, {"attention": "laplace"})),
    "s5": Twin(s5, s5_parameters, S5_VARIANTS),
}
