"""Griffin's two kinds of layers, token by token."""

import math

import torch

from twins.base import Twin, attend, heads_of, per_sequence
from twins.latte import convolution, rglru


def recurrent(block, x, padding):
    u = convolution(block.convolution, block.x_proj(x), padding, True) + block.convolution_bias
    z = block.y_proj(x)
    gelu = z / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
    return block.out_proj(gelu * rglru(block.recurrence, u, padding, range(len(x))))


def half_turned(x, position):
    """x (E) with the first half of its channels rotated in pairs (j, j + E/4)."""
    quarter = len(x) // 4
    angles = position * 10000.0 ** (-torch.arange(quarter, dtype=torch.float64) / quarter)
    pairs = torch.complex(x[:quarter], x[quarter : 2 * quarter]) * torch.exp(1j * angles)
    return torch.cat([pairs.real, pairs.imag, x[2 * quarter :]])


def local(block, x, padding):
    k = torch.stack([half_turned(row, j) for j, row in enumerate(block.k_proj(x))])
    v, out = block.v_proj(x), []
    for q in heads_of(block.q_proj(x), block.heads):
        rows = []
        for i in range(len(x)):
            near = [j for j in range(len(x)) if i - block.window < j <= i and not padding[j]]
            rows.append(attend(half_turned(q[i], i), k, v, near))
        out.append(torch.stack(rows))
    return block.out_proj(torch.cat(out, dim=-1))


@per_sequence
def griffin(model, x, source, padding, causal):
    return (local if hasattr(model.block, "k_proj") else recurrent)(model.block, x, padding)


def griffin_parameters(dim, heads, pattern, max_length, hyper):
    if hyper["block_types"][0] == "local":
        return 2 * dim * dim + 2 * dim * (dim // heads) + dim
    width = hyper["rnn_dim"] or heads * math.ceil(4 * dim / 3 / heads)
    gates = 2 * width * width // heads + 3 * width
    return 3 * dim * width + 2 * width + dim + gates + (hyper["conv"] + 1) * width


LOCAL = {"block_types": ["local"]}
TWINS = {
    "griffin": Twin(
        griffin,
        griffin_parameters,
        ({"conv": 1}, {"conv": 20}, {"rnn_dim": 10}, LOCAL, LOCAL | {"window": 1}, LOCAL | {"window": 100}),
    )
}
