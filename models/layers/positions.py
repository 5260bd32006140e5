"""Positions that are added to embeddings.

Sinusoids are those of Vaswani et al. (2017), §3.5, in the printed order, sine and cosine side by side:

    PE(t, 2i) = sin(t / 10000^(2i/d)),  PE(t, 2i+1) = cos(t / 10000^(2i/d)),  t = 0, 1, ...

The LRA code and fairseq put all sines before all cosines and divide the exponent by d/2 - 1 in place of d/2: another
order of the channels, which the next projection does not see, and wavelengths up to the same 10000 * 2 pi.

    N length, D width
"""

import torch
from torch import Tensor, nn


def sinusoidal_positions(length: int, dim: int) -> Tensor:
    """Table (length, dim), float32. An odd `dim` ends with a sine."""
    position = torch.arange(length, dtype=torch.float64)[:, None]
    channel = torch.arange(dim)
    angle = position * 10000.0 ** (-(channel - channel % 2).double() / dim)  # (N, D)
    return torch.where(channel % 2 == 0, angle.sin(), angle.cos()).float()


class SinusoidalPositions(nn.Module):
    """x (B, N, D) + the sinusoids of positions 0 .. N - 1, also past `max_length`. No parameters."""

    ends = False

    def __init__(self, max_length: int, dim: int):
        super().__init__()
        self.register_buffer("table", sinusoidal_positions(max_length, dim), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        if length > len(self.table):
            self.table = sinusoidal_positions(length, x.shape[2]).to(x.device)
        return x + self.table[:length].to(x.dtype)


class LearnedPositions(nn.Module):
    """x (B, N, D) + one learned vector for each of the positions 0 .. N - 1, drawn from N(0, 0.02^2) (BERT's)."""

    ends = True  # there is no vector for a position past the last

    def __init__(self, max_length: int, dim: int):
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_length, dim))
        nn.init.normal_(self.table, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table[: x.shape[1]]


class NoPositions(nn.Module):
    """x as it is: for attention that tells positions apart by itself."""

    ends = False

    def __init__(self, max_length: int, dim: int):
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x
