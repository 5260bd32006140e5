"""DeltaNet, Gated DeltaNet and Kimi Delta Attention, token by token."""

import torch

from twins.base import Twin, heads_of, per_sequence, silu, unit
from twins.latte import convolution


def softplus(x):
    return torch.log(1 + torch.exp(x))


def delta_net(model, x, padding, decays, gates):
    """`decays(h, t)` is the factor of the state's rows in head h, `gates(h, t)` that of its normed output."""
    qkv = silu(convolution(model.convolution, model.qkv_proj(x), padding, True)).split(model.widths, -1)
    factor = 2 if model.negative_eigenvalues else 1
    heads = []
    for h, (q, k, v) in enumerate(zip(*(heads_of(part, model.heads) for part in qkv), strict=True)):
        state, rows = x.new_zeros(k.shape[1], v.shape[1]), []
        for t in range(len(x)):
            if not padding[t]:
                beta, key = factor * torch.sigmoid(model.beta_proj(x[t])[h]), unit(k[t])
                state = decays(h, t) * state
                state = state - beta * torch.outer(key, key @ state) + beta * torch.outer(key, v[t])
            o = unit(q[t]) / q.shape[1] ** 0.5 @ state
            rows.append(model.norm_weight * o / (o.square().mean() + 1e-5).sqrt() * gates(h, t))
        heads.append(torch.stack(rows))
    return model.out_proj(torch.cat(heads, -1))


@per_sequence
def deltanet(model, x, source, padding, causal):
    return delta_net(model, x, padding, lambda h, t: 1.0, lambda h, t: 1.0)


def deltanet_parameters(dim, heads, pattern, max_length, hyper):
    keys = round(hyper["expand_k"] * dim / heads)
    values = round(hyper["expand_v"] * keys)
    projected = heads * (2 * keys + values)
    return dim * projected + hyper["conv"] * projected + dim * heads + heads * values * dim + values


@per_sequence
def gated_deltanet(model, x, source, padding, causal):
    steps = softplus(model.decay_proj(x) + model.decay_bias)
    gate = heads_of(silu(model.gate_proj(x)), model.heads)
    return delta_net(
        model, x, padding, lambda h, t: torch.exp(-model.log_rate[h].exp() * steps[t, h]), lambda h, t: gate[h][t]
    )


def gated_deltanet_parameters(dim, heads, pattern, max_length, hyper):
    values = round(hyper["expand_v"] * round(hyper["expand_k"] * dim / heads))
    more = dim * heads + 2 * heads + dim * heads * values
    return deltanet_parameters(dim, heads, pattern, max_length, hyper) + more


@per_sequence
def kda(model, x, source, padding, causal):
    steps = heads_of(softplus(model.decay_proj(x) + model.decay_bias), model.heads)
    gate = heads_of(torch.sigmoid(model.gate_proj(x)), model.heads)
    return delta_net(
        model,
        x,
        padding,
        lambda h, t: torch.exp(-model.log_rate[h].exp() * steps[h][t])[:, None],
        lambda h, t: gate[h][t],
    )


def kda_parameters(dim, heads, pattern, max_length, hyper):
    keys = round(hyper["expand_k"] * dim / heads)
    values = round(hyper["expand_v"] * keys)
    rank = hyper["rank"] or values
    decay = dim * rank + rank * heads * keys + heads + heads * keys
    gate = dim * rank + (rank + 1) * heads * values
    return deltanet_parameters(dim, heads, pattern, max_length, hyper) + decay + gate


SIZES = ({"expand_k": 0.5, "expand_v": 1.5}, {"conv": 1}, {"negative_eigenvalues": True})
TWINS = {
    "deltanet": Twin(deltanet, deltanet_parameters, SIZES),
    "gated_deltanet": Twin(gated_deltanet, gated_deltanet_parameters, SIZES),
    "kda": Twin(kda, kda_parameters, (*SIZES, {"rank": 3}, {"rank": None})),
}
