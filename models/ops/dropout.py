"""Dropout with seeded masks, which an explicit backward pass can draw again."""

import torch
from torch import Tensor


def draw_seed(dropout: float) -> int:
    """A seed for all masks of one call, drawn from torch's default generator; without dropout 0, and no draw."""
    return int(torch.randint(2**31, ())) if dropout else 0


def dropout_mask(like: Tensor, dropout: float, seed: int | torch.Generator) -> Tensor | None:
    """Factors 0 or 1 / (1 - dropout) with the shape of `like`, determined by the seed; None without dropout.

    A generator instead of a seed returns the next of several masks.
    """
    if not dropout:
        return None
    generator = seed if isinstance(seed, torch.Generator) else torch.Generator(like.device).manual_seed(seed)
    return torch.empty_like(like).bernoulli_(1 - dropout, generator=generator).div_(1 - dropout)


def apply_dropout(x: Tensor, dropout: float, seed: int) -> Tensor:
    """x times its mask, or x itself without dropout."""
    mask = dropout_mask(x, dropout, seed)
    return x if mask is None else x * mask
