"""Dropout with masks that a seed determines, so that an explicit backward pass can draw them again.

On a CPU an entry takes 16 bits of SFC64 and one comparison, a tenth of the time of `Tensor.bernoulli_`. The kept share
is therefore a multiple of 2**-16. The factors divide by that share, so their mean is exactly 1.
Other devices draw with `bernoulli_` and their own generator.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

LEVELS = 1 << 16  # of the 16 bits of an entry


class Masks:
    """The masks of one seed on one device, in the order in which they are drawn."""

    def __init__(self, seed: int, device: torch.device):
        self.words = np.random.SFC64(seed) if device.type == "cpu" else None
        self.generator = None if self.words else torch.Generator(device).manual_seed(seed)

    def draw(self, like: Tensor, dropout: float) -> Tensor:
        """Factors 0 or 1 / (1 - dropout) with the shape, type and device of `like`."""
        mask = torch.empty(like.shape, dtype=like.dtype, device=like.device)
        return mask.mul_(self.fill(mask, dropout))

    def fill(self, mask: Tensor, dropout: float) -> float:
        """Overwrites `mask` with 1 where an entry is kept and 0 elsewhere; returns the factor for kept entries."""
        if dropout == 1.0:
            mask.zero_()
            return 0.0
        if self.words is None:
            mask.bernoulli_(1 - dropout, generator=self.generator)
            return 1 / (1 - dropout)
        kept = kept_levels(dropout)
        words = torch.from_numpy(self.words.random_raw(-(-mask.numel() // 4)).view(np.int16))  # four entries per draw
        torch.lt(words[: mask.numel()].view(mask.shape), kept - LEVELS // 2, out=mask)
        return LEVELS / kept


def kept_levels(dropout: float) -> int:
    """The number of the LEVELS values of an entry with which it is kept; neither none nor all."""
    return max(1, min(round((1 - dropout) * LEVELS), LEVELS - 1))


class CompiledMasks(NamedTuple):
    """The same masks for compiled kernels: `bits` of all entries, and the entry at which each begins, `starts` (T)."""

    bits: Tensor
    starts: Tensor
    factor: float

    @classmethod
    def draw(cls, kernels: Any, dropout: float, seeds: Sequence[int], entries: Sequence[int]) -> "CompiledMasks":
        """One mask per seed, with so many entries. `dropout` is above 0 and below 1."""
        kept = kept_levels(dropout)
        return cls(*kernels.dropout_masks(torch.tensor(seeds), torch.tensor(entries), kept), LEVELS / kept)


def draw_seed(dropout: float) -> int:
    """A seed for all masks of one call, drawn from torch's default generator; without dropout 0, and no draw.

    Raises ValueError for a share below 0 or above 1.
    """
    if not 0 <= dropout <= 1:
        raise ValueError(f"dropout is a share from 0 to 1, not {dropout}")
    return int(torch.randint(2**31, ())) if dropout else 0


def dropout_mask(like: Tensor, dropout: float, seed: int) -> Tensor | None:
    """The first mask of the seed; None without dropout."""
    return Masks(seed, like.device).draw(like, dropout) if dropout else None


def apply_dropout(x: Tensor, dropout: float, seed: int) -> Tensor:
    """x times its mask, or x itself without dropout."""
    mask = dropout_mask(x, dropout, seed)
    return x if mask is None else x * mask


def drop_in_place(x: Tensor, dropout: float, seed: int) -> float:
    """Overwrites dropped entries of x with 0; returns the factor for the others, which is 1 without dropout."""
    if not dropout:
        return 1.0
    mask = torch.empty_like(x)
    factor = Masks(seed, x.device).fill(mask, dropout)
    x.mul_(mask)
    return factor


def drop(x: Tensor, dropout: float) -> Tensor:
    """`F.dropout` in training: on a CPU with the cheap masks of this module, and a seed from the default generator."""
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, dropout)
    return apply_dropout(x, dropout, draw_seed(dropout))
