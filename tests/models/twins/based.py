"""Based's three kinds of layers, token by token."""

import math

import torch

from twins.base import Twin, heads_of, per_sequence
from twins.latte import convolution, sliding


def linear(block, x, padding):
    heads = []
    parts = [heads_of(layer(x), block.heads) for layer in (block.q_proj, block.k_proj, block.v_proj)]
    for q, k, v in zip(*parts, strict=True):
        rows = []
        for t in range(len(x)):
            scores = [q[t] @ k[s] / math.sqrt(len(q[t])) for s in range(t + 1)]
            weights = [0 * a if padding[s] else 1 + a + a * a / 2 for s, a in enumerate(scores)]
            total = sum(weights)
            rows.append(sum(w * v[s] for s, w in enumerate(weights)) / (total if total > 0 else 1.0))
        heads.append(torch.stack(rows))
    return block.out_proj(torch.cat(heads, -1))


def window(block, x, padding, heads):
    v = heads_of(block.v_proj(x), heads)
    return block.out_proj(torch.cat(sliding(block.attention, x, v, padding, True, heads), dim=-1))


def gated_convolution(block, x, padding):
    u, gate = block.in_proj(x).chunk(2, -1)
    u = convolution(block.convolution, u, padding, True)
    return block.out_proj(u * torch.sigmoid(u) * gate)


@per_sequence
def based(model, x, source, padding, causal):
    if model.kind == "window":
        return window(model.block, x, padding, model.heads)
    return (linear if model.kind == "linear" else gated_convolution)(model.block, x, padding)


def based_parameters(dim, heads, pattern, max_length, hyper):
    kind, width = hyper["block_types"][0], hyper["expand"] * dim
    if kind == "linear":
        return 2 * dim * heads * hyper["feature_dim"] + 2 * dim * dim
    return 4 * dim * dim if kind == "window" else (3 * dim + 2 + hyper["conv"]) * width + dim


WINDOW, CONV = {"block_types": ["window"]}, {"block_types": ["conv", "linear"]}
TWINS = {
    "based": Twin(
        based,
        based_parameters,
        (
            {"feature_dim": 1},
            {"feature_dim": 16},
            WINDOW,
            WINDOW | {"window": 1},
            CONV,
            CONV | {"conv": 1, "expand": 1},
        ),
    )
}
