"""Positions: tables that are added to embeddings, and rotations of queries, keys and values.

Sinusoids are those of Vaswani et al. (2017), §3.5, in the printed order, sine and cosine side by side:

    PE(t, 2i) = sin(t / 10000^(2i/d)),  PE(t, 2i+1) = cos(t / 10000^(2i/d)),  t = 0, 1, ...

The LRA code and fairseq put all sines before all cosines and divide the exponent by d/2 - 1 in place of d/2: another
order of the channels, which the next projection does not see, and wavelengths up to the same 10000 * 2 pi.

Rotations are RoPE (Su et al., 2021, arXiv 2104.09864): channel pair j of a vector at position t turns by the angle
t 10000^(-2j/R), so that the product of a turned query and a turned key depends on the distance alone. xPos (Sun et al.,
2022, arXiv 2212.10554) also scales pair j by zeta_j^(t/512), zeta_j = (2j/R + 0.4) / 1.4, and its inverse at the keys.

    N length, D width, E head width, R channels that turn
"""

import torch
from torch import Tensor, nn

from models.ops.precision import upcast


def sinusoidal_positions(length: int, dim: int) -> Tensor:
    """Table (length, dim), float32. An odd `dim` ends with a sine."""
    position = torch.arange(length, dtype=torch.float64)[:, None]
    channel = torch.arange(dim)
    angle = position * 10000.0 ** (-(channel - channel % 2).double() / dim)  # (N, D)
    return torch.where(channel % 2 == 0, angle.sin(), angle.cos()).float()


def rope_frequencies(width: int, base: float = 10000.0) -> Tensor:
    """Angle per step of each of the width / 2 pairs, float64. Raises ValueError for an odd width."""
    if width % 2:
        raise ValueError(f"a rotation turns pairs of channels: {width} is odd")
    return base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)


def apply_rope(
    x: Tensor,
    positions: Tensor,
    frequencies: Tensor | None = None,
    *,
    interleaved: bool = True,
    inverse: bool = False,
    scale: Tensor | None = None,
) -> Tensor:
    """Turn the channel pairs of x (..., N, E) by positions (N,) times frequencies (R/2,): same shape and dtype.

    Of E channels the first R turn, all of them unless `frequencies` says otherwise. Pairs are (2j, 2j + 1), or
    (j, j + R/2) with `interleaved` off (GPT-NeoX, Llama). `inverse` turns back. `scale` (N, R/2) multiplies each pair.
    """
    if frequencies is None:
        frequencies = rope_frequencies(x.shape[-1]).to(x.device)
    angles = positions.to(frequencies.dtype)[:, None] * frequencies  # (N, R/2)
    wide = upcast(x[..., : 2 * angles.shape[-1]])
    cos, sin = angles.cos(), angles.sin()
    if scale is not None:
        cos, sin = cos * scale, sin * scale
    cos, sin = cos.to(wide.dtype), (-sin if inverse else sin).to(wide.dtype)
    first, second = wide.unflatten(-1, (-1, 2)).unbind(-1) if interleaved else wide.chunk(2, -1)  # (..., N, R/2)
    turned = [first * cos - second * sin, first * sin + second * cos]
    out = torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)
    rest = x[..., out.shape[-1] :]
    return out.to(x.dtype) if rest.shape[-1] == 0 else torch.cat([out.to(x.dtype), rest], -1)


def xpos_scale(positions: Tensor, width: int, *, base: float = 512.0) -> Tensor:
    """xPos' factor of each pair at each position, (N, width / 2), float64; keys take its inverse."""
    pair = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    zeta = (pair + 0.4 * width) / (1.4 * width)
    return zeta ** (positions.double() / base)[:, None]


class SinusoidalPositions(nn.Module):
    """x (B, N, D) + the sinusoids of positions `start` .. `start` + N - 1, also past `max_length`. No parameters."""

    ends = False

    def __init__(self, max_length: int, dim: int):
        super().__init__()
        self.register_buffer("table", sinusoidal_positions(max_length, dim), persistent=False)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        end = start + x.shape[1]
        if end > len(self.table):
            # more than asked for, so that decoding past the end does not make a table for each token
            self.table = sinusoidal_positions(2 * end, x.shape[2]).to(x.device)
        return x + self.table[start:end].to(x.dtype)


class LearnedPositions(nn.Module):
    """x (B, N, D) + a learned vector for each position, from `start` on, drawn from N(0, 0.02^2) (BERT's)."""

    ends = True  # there is no vector for a position past the last

    def __init__(self, max_length: int, dim: int):
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_length, dim))
        nn.init.normal_(self.table, std=0.02)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return x + self.table[start : start + x.shape[1]]


class NoPositions(nn.Module):
    """x as it is: for attention that tells positions apart by itself."""

    ends = False

    def __init__(self, max_length: int, dim: int):
        super().__init__()

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return x
