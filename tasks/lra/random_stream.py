"""Random integers that are the same on every machine and with every numpy: only PCG64's raw stream is guaranteed."""

from collections.abc import Sequence

import numpy as np


class RandomStream:
    """An endless stream of independent random numbers, a function of the seed."""

    def __init__(self, *seed: int):
        self._bits = np.random.PCG64(np.random.SeedSequence(seed))

    def integers(self, bound: int | Sequence[int] | np.ndarray, size: int | tuple[int, ...]) -> np.ndarray:
        """int64 of this size, uniform over 0, ..., bound - 1; an array of bounds is broadcast. Bounds up to 2^31."""
        word = self._bits.random_raw(int(np.prod(size))).reshape(size) >> np.uint64(32)
        return (word * np.asarray(bound, np.uint64) >> np.uint64(32)).astype(np.int64)

    def balanced_classes(self, classes: int, size: int) -> np.ndarray:
        """int64 (size,): each of 0, ..., classes - 1 equally often, as far as that is possible, in a random order."""
        return np.argsort(self._bits.random_raw(size), kind="stable") % classes

    def bernoulli(self, probability: float, size: int) -> np.ndarray:
        """bool of this size, True with this probability."""
        return self.integers(1 << 30, size) < round(probability * (1 << 30))
