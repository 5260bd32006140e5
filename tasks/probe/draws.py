"""Random numbers that are a function of a seed and an example's number alone, the same on every machine.

Philox (Salmon et al., 2011) is a counter-based generator: the numbers of an example do not depend on previous draws, so
training examples need not be stored. Only its raw words are used: numpy promises that they never change. Integers are
their upper halves scaled, as in tasks/lra/synthetic.py.

    n examples
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

WORD = np.uint64(32)  # half of a raw word, in bits
HELD_BACK = 8  # generated training texts per validation text, and per test text


class Draws:
    """Random numbers of the examples with these numbers. Every call draws from a new stream."""

    def __init__(self, seed: int, stream: int, indices: Sequence[int] | np.ndarray):
        self.indices = np.asarray(indices, np.uint64)
        self._bits = np.random.Philox(key=[seed, stream])
        self._start = self._bits.state
        self._calls = 0

    def __len__(self) -> int:
        return len(self.indices)

    def at(self, rows: np.ndarray) -> "Draws":
        """The same streams for some of the examples, from the next stream on. `rows`: their places, or a mask."""
        some = copy.copy(self)
        some.indices = self.indices[rows]
        return some

    def words(self, count: int) -> np.ndarray:
        """uint64 (n, count)."""
        self._calls += 1
        counter, words = self._start["state"]["counter"], np.empty((len(self), count), np.uint64)
        for row, index in zip(words, self.indices, strict=True):
            counter[:] = 0, index, self._calls, 0
            self._bits.state = self._start
            row[:] = self._bits.random_raw(count)
        return words

    def integers(self, bound: int | np.ndarray, count: int) -> np.ndarray:
        """int64 (n, count), uniform over 0, ..., bound - 1; an array of bounds is broadcast. Bounds up to 2^32."""
        return ((self.words(count) >> WORD) * np.asarray(bound, np.uint64) >> WORD).astype(np.int64)

    def orders(self, size: int) -> np.ndarray:
        """int64 (n, size): one permutation of 0, ..., size - 1 per example."""
        return np.argsort(self.words(size), axis=1, kind="stable")

    def distinct(self, size: int, count: int) -> np.ndarray:
        """int64 (n, count): different numbers below `size`, in the order in which they are drawn."""
        drawn = self.integers(size - np.arange(count), count)  # the rank of each among those that are left
        taken = np.empty((len(self), 0), np.int64)  # in increasing order
        for i in range(count):
            for other in taken.T:
                drawn[:, i] += drawn[:, i] >= other
            taken = np.sort(np.hstack([taken, drawn[:, i : i + 1]]), axis=1)
        return drawn

    def weighted(self, weights: np.ndarray, count: int) -> np.ndarray:
        """int64 (n, count): different places of `weights` (integers >= 1, sum < 2^32), drawn one after another."""
        left, drawn = np.tile(np.asarray(weights, np.int64), (len(self), 1)), np.empty((len(self), count), np.int64)
        rows, words = np.arange(len(self)), self.words(count) >> WORD
        for i in range(count):
            sums = left.cumsum(1)
            target = (words[:, i] * sums[:, -1].astype(np.uint64) >> WORD).astype(np.int64)
            drawn[:, i] = (sums > target[:, None]).argmax(1)
            left[rows, drawn[:, i]] = 0
        return drawn


@dataclass(frozen=True, kw_only=True)
class Numbered:
    """Generated texts first, ..., first + count - 1 of a split: each is a function of the seed and its number alone."""

    stream: ClassVar[int]  # of the random numbers, and the split's number
    at_once: ClassVar[int]  # texts of a piece

    seed: int
    split: int
    first: int
    count: int

    @classmethod
    def pieces(cls, count: int, /, **settings: Any) -> list[Self]:
        """Pieces with this number of texts; fewer are the beginning of more."""
        firsts = range(0, count, cls.at_once)
        return [cls(first=first, count=min(cls.at_once, count - first), **settings) for first in firsts]

    @classmethod
    def splits(cls, count: int, split_names: Sequence[str], /, **settings: Any) -> dict[str, list[Self]]:
        """Pieces of so many texts in the first split, and an eighth as many in each other one."""
        few = -(-count // HELD_BACK)
        return {name: cls.pieces(few if i else count, split=i, **settings) for i, name in enumerate(split_names)}

    def draws(self) -> Draws:
        return Draws(self.seed, self.stream + self.split, range(self.first, self.first + self.count))
