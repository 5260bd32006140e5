"""Which split a generated example belongs to: a digest of its content says so, and no content belongs to two splits.

A generator draws an example for a split and rejects it if its content belongs to another one. So no test or validation
example occurs in training, for any seed and number of examples, and no split has to be known to make another one.

    train   six eighths of all contents        val, test   one eighth each
"""

import hashlib
from collections.abc import Callable

import numpy as np

from tasks.checks import Progress

TRAIN, VAL, TEST = range(3)  # the last number of a generator's seed
FOLDS = (TRAIN,) * 6 + (VAL, TEST)
MOST_DRAWS = 1000  # of one example


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
