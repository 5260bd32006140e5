"""The position-wise half of a Transformer layer.

FFN(x) = W_2 act(W_1 x + b_1) + b_2          (Vaswani et al., 2017, eq. 2)
GLU(x) = W_3 (sigmoid(W_1 x) * W_2 x)        (Dauphin et al., 2017, arXiv 1612.08083; Shazeer, 2020, eq. 5)
GEGLU, SwiGLU                                GELU or SiLU instead of the sigmoid   (Shazeer, 2020, eq. 6)

`activation_dropout` is the share of hidden units that training drops; None means that of the outputs.

The hidden units are several times larger than the input. `in_slices` stores them for one slice of tokens at a time;
training recomputes them in the backward pass.

B batch, N length, D width
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from models.layers.dropout import Dropout

SLICE = 2**14  # tokens whose hidden units exist at once; more tokens are read in slices

# gelu_tanh is flax's gelu, which differs from the exact one by up to 5e-4
ACTIVATIONS = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu_tanh": partial(nn.GELU, approximate="tanh"),
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
}


class FeedForward(nn.Sequential):
    """Linear, activation, dropout, Linear, dropout: (B, N, D) -> (B, N, D)."""

    def __init__(
        self,
        dim: int,
        hidden_dim: int,
        dropout: float = 0.0,
        *,
        activation: str = "gelu",
        bias: bool = True,
        activation_dropout: float | None = None,
    ):
        super().__init__(
            nn.Linear(dim, hidden_dim, bias=bias),
            ACTIVATIONS[activation](),
            Dropout(dropout if activation_dropout is None else activation_dropout),
            nn.Linear(hidden_dim, dim, bias=bias),
            Dropout(dropout),
        )


class GatedFeedForward(nn.Module):
    """GLU, three matrices without biases, with dropout as in `FeedForward`: (B, N, D) -> (B, N, D)."""

    def __init__(
        self,
        dim: int,
        hidden_dim: int,
        dropout: float = 0.0,
        *,
        activation: str = "sigmoid",
        activation_dropout: float | None = None,
    ):
        super().__init__()
        self.activation = ACTIVATIONS[activation]()
        self.gate = nn.Linear(dim, hidden_dim, bias=False)
        self.value = nn.Linear(dim, hidden_dim, bias=False)
        self.out = nn.Linear(hidden_dim, dim, bias=False)
        self.activation_dropout = Dropout(dropout if activation_dropout is None else activation_dropout)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.activation(self.gate(x)) * self.value(x)
        return self.dropout(self.out(self.activation_dropout(hidden)))


def in_slices(network: nn.Module, x: Tensor) -> Tensor:
    """network(x) for a network that maps tokens independently: (.., D) -> (.., D); a long (B, N, D) in slices."""
    if x.dim() != 3 or x.shape[0] * x.shape[1] <= SLICE:
        return network(x)
    parts = x.split(max(1, SLICE // len(x)), 1)
    if torch.is_grad_enabled():
        return torch.cat([checkpoint(network, part, use_reentrant=False) for part in parts], 1)
    out, done = None, 0
    for part in parts:
        y = network(part)
        if out is None:
            out = y.new_empty(x.shape)
        out[:, done : done + part.shape[1]] = y
        done += part.shape[1]
    return out
