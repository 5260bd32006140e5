"""Positions as layers: what a backbone adds to its embeddings.

B batch, N length, D width
"""

import torch
from torch import Tensor, nn

from models.ops.positions import sinusoidal_positions


class SinusoidalPositions(nn.Module):
    """x (B, N, D) + the sinusoids of positions `start` .. `start` + N - 1, even beyond `max_length`. No parameters."""

    ends = False

    def __init__(self, max_length: int, dim: int, std: float = 0.0):
        super().__init__()
        self.register_buffer("table", sinusoidal_positions(max_length, dim), persistent=False)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        end = start + x.shape[1]
        if end > len(self.table):
            # twice as long, so that decoding beyond the end does not build a table per token
            self.table = sinusoidal_positions(2 * end, x.shape[2]).to(x.device)
        return x + self.table[start:end].to(x.dtype)


class LearnedPositions(nn.Module):
    """x (B, N, D) + a learned vector per position from `start` on, initially drawn from N(0, std^2)."""

    ends = True  # positions beyond the last have no vector

    def __init__(self, max_length: int, dim: int, std: float = 0.02):
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_length, dim))
        nn.init.normal_(self.table, std=std)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return x + self.table[start : start + x.shape[1]]


class NoPositions(nn.Module):
    """x unchanged, for attention that encodes positions itself."""

    ends = False

    def __init__(self, max_length: int, dim: int, std: float = 0.0):
        super().__init__()

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return x
