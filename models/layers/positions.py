"""Positions as layers: what a backbone adds to its embeddings.

B batch, N length, D width
"""

import torch
from torch import Tensor, nn

from models.ops.positions import sinusoidal_positions


class SinusoidalPositions(nn.Module):
    """x (B, N, D) + the sinusoids of positions `start` .. `start` + N - 1, also past `max_length`. No parameters."""

    ends = False

    def __init__(self, max_length: int, dim: int, std: float = 0.0):
        super().__init__()
        self.register_buffer("table", sinusoidal_positions(max_length, dim), persistent=False)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        end = start + x.shape[1]
        if end > len(self.table):
            # more than asked for, so that decoding past the end does not make a table for each token
            self.table = sinusoidal_positions(2 * end, x.shape[2]).to(x.device)
        return x + self.table[start:end].to(x.dtype)


class LearnedPositions(nn.Module):
    """x (B, N, D) + a learned vector for each position, from `start` on, drawn from N(0, std^2)."""

    ends = True  # positions past the last have no vector

    def __init__(self, max_length: int, dim: int, std: float = 0.02):
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_length, dim))
        nn.init.normal_(self.table, std=std)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return x + self.table[start : start + x.shape[1]]


class NoPositions(nn.Module):
    """x unchanged, for attention that knows positions itself."""

    ends = False

    def __init__(self, max_length: int, dim: int, std: float = 0.0):
        super().__init__()

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return x
