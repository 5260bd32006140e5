"""Random numbers of the synthetic tasks, and the split that an example belongs to.

Integers are the same on every machine and with every numpy: only PCG64's raw stream is guaranteed.

A digest of its content says which split an example belongs to, and no content belongs to two splits. A generator draws
an example for a split and rejects it if its content belongs to another one. So no test or validation example occurs in
training, for any seed and number of examples, and no split has to be known to make another one.

    train   six eighths of all contents        val, test   one eighth each
"""

import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from tasks.checks import Progress

TRAIN, VAL, TEST = range(3)  # the last number of a generator's seed
FOLDS = (TRAIN,) * 6 + (VAL, TEST)
MOST_DRAWS = 1000  # of one example


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


def split_of(content: bytes) -> int:
    """TRAIN, VAL or TEST."""
    return FOLDS[hashlib.blake2b(content, digest_size=8).digest()[0] % len(FOLDS)]


def rejecting(count: int, split: int, draw: Callable[[np.ndarray], list[bytes]], title: str, progress: Progress) -> int:
    """Draws `count` examples until the contents of all belong to the split; returns how many were drawn.

    `draw` makes the examples of these numbers anew and returns their contents. The progress shows the number drawn.
    Raises ValueError, in one line, if an example is rejected MOST_DRAWS times.
    """
    rejected, drawn = np.arange(count), 0
    for _ in range(MOST_DRAWS):
        contents = draw(rejected)
        drawn += len(rejected)
        rejected = rejected[[split_of(content) != split for content in contents]]
        progress(f"{title}: {drawn:,} drawn", count - len(rejected), count)
        if not len(rejected):
            return drawn
    problem = f"{len(rejected)} of {count} examples were rejected {MOST_DRAWS} times: too few belong to the split"
    raise ValueError(f"{title}: {problem}; make the task's examples more various")
