"""Positions as functions: sinusoids to add to embeddings, rotations of queries, keys and values.

Sinusoids follow Vaswani et al. (2017), §3.5, in the printed order with sine and cosine alternating:

    PE(t, 2i) = sin(t / 10000^(2i/d)),  PE(t, 2i+1) = cos(t / 10000^(2i/d)),  t = 0, 1, ...

The LRA code and fairseq put all sines before all cosines and divide the exponent by d/2 - 1 instead of d/2: a different
channel order, which the next projection absorbs, and wavelengths up to the same 10000 * 2 pi.

Rotations are RoPE (Su et al., 2021, arXiv 2104.09864): channel pair j of a vector at position t rotates by the angle
t 10000^(-2j/R), so the product of a rotated query and a rotated key depends only on their distance. xPos (Sun et al.,
2022, arXiv 2212.10554) also scales pair j by zeta_j^(t/512), zeta_j = (2j/R + 0.4) / 1.4, and keys by its inverse.

    N length, D width, E head width, R rotated channels
"""

import functools

import torch
from torch import Tensor

from models.ops.precision import upcast


def sinusoidal_positions(length: int, dim: int) -> Tensor:
    """Table (length, dim), in torch's default type. An odd `dim` ends with a sine."""
    position = torch.arange(length, dtype=torch.float64)[:, None]
    channel = torch.arange(dim)
    angle = position * 10000.0 ** (-(channel - channel % 2).double() / dim)  # (N, D)
    return torch.where(channel % 2 == 0, angle.sin(), angle.cos()).to(torch.get_default_dtype())


def rope_frequencies(width: int, base: float = 10000.0, *, device: torch.device | None = None) -> Tensor:
    """Angle per step for each of the width / 2 pairs, float64. Raises ValueError for an odd width."""
    if width % 2:
        raise ValueError(f"a rotation turns pairs of channels: {width} is odd")
    return base ** (-torch.arange(0, width, 2, dtype=torch.float64, device=device) / width)


FREQUENCIES = functools.lru_cache(maxsize=16)(rope_frequencies)  # computed once


def apply_rope(
    x: Tensor,
    positions: Tensor,
    frequencies: Tensor | None = None,
    *,
    interleaved: bool = True,
    inverse: bool = False,
    scale: Tensor | None = None,
) -> Tensor:
    """Rotate the channel pairs of x (..., N, E) by positions (N,) times frequencies (R/2,): same shape and dtype.

    The first R of E channels rotate; without `frequencies`, all do. Pairs are (2j, 2j + 1) or, with `interleaved` off,
    (j, j + R/2) (GPT-NeoX, Llama). `inverse` rotates back. `scale` (N, R/2) multiplies each pair.
    """
    if frequencies is None:
        frequencies = FREQUENCIES(x.shape[-1], device=x.device)
    angles = positions.to(frequencies.dtype)[:, None] * frequencies  # (N, R/2)
    wide = upcast(x[..., : 2 * angles.shape[-1]])
    if interleaved and not torch.compiler.is_compiling():  # inductor fuses only real numbers
        turns = torch.polar(torch.ones_like(angles) if scale is None else scale, -angles if inverse else angles)
        pairs = torch.view_as_complex(wide.unflatten(-1, (-1, 2)).contiguous())
        out = torch.view_as_real(pairs * turns.to(pairs.dtype)).flatten(-2)
    else:
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
    """xPos' factor for each pair and position, (N, width / 2), float64; keys take its inverse."""
    pair = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    zeta = (pair + 0.4 * width) / (1.4 * width)
    return zeta ** (positions.double() / base)[:, None]
