"""Tiles: the parts of a tensor that a method computes together, and their size, one rule with a budget per method."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from models.ops.dropout import dropout_mask

EVERY = (slice(None),)  # an axis that no tile cuts


def in_few_kernels(like: Tensor) -> bool:
    """Whether a method takes its form of few large kernels, which reads no value: off the CPU and in a traced graph."""
    return like.device.type != "cpu" or torch.compiler.is_compiling()


class TileBudget(NamedTuple):
    """Most numbers in a tile: on a CPU, what a cache holds; elsewhere, enough to make kernel launches cheap."""

    cpu: int
    elsewhere: int

    def fit(self, like: Tensor, size: int, most: int | None = None) -> int:
        """Pieces of `size` numbers that fit a tile on the device of `like`: at least 1, and at most `most`."""
        pieces = max(1, (self.cpu if like.device.type == "cpu" else self.elsewhere) // size)
        return pieces if most is None else min(pieces, most)


class Tile(NamedTuple):
    """One tile: its number, in the order of computation, and its slice of each leading axis."""

    number: int
    index: tuple[slice, ...]

    def dropout_mask(self, like: Tensor, dropout: float, seed: int) -> Tensor | None:
        """Dropout's factors for this tile, the same at every call; None without dropout."""
        return dropout_mask(like, dropout, seed + self.number)


def spans(start: int, end: int, size: int) -> list[slice]:
    """The positions from `start` to `end`, cut into slices of `size`; the last one may be shorter."""
    return [slice(first, min(first + size, end)) for first in range(start, end, size)]


def tiles(*axes: Sequence[slice]) -> Iterator[Tile]:
    """All combinations of the slices of each axis; those of the last axis change fastest."""
    return (Tile(number, index) for number, index in enumerate(product(*axes)))
