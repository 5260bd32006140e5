"""Generated rows for regression: the target is the mean of the first half of the levels less that of the second half.

A little noise is added, so no predictor is perfect.
"""

from typing import Any

import numpy as np

from tasks.checks import Progress
from tasks.examples import Examples

VERSION = 1
LEVELS = 256
NOISE = 0.1  # standard deviation; that of the rest is 1


def check(max_length: int) -> None:
    """Raises ValueError for less than two numbers."""
    if max_length < 2:
        raise ValueError(f"max_length={max_length} is less than 2")


def generate(count: int, *, seed: tuple[int, ...], max_length: int, progress: Progress) -> Any:
    """`count` rows of `max_length` levels."""
    draws = np.random.Generator(np.random.PCG64(seed))
    tokens = draws.integers(0, LEVELS, (count, max_length), np.uint8)
    first, second = np.array_split(tokens.astype(np.float64), 2, axis=1)
    difference = first.mean(1) - second.mean(1)
    targets = difference / max(1e-9, float(difference.std())) + NOISE * draws.standard_normal(count)
    progress("generating rows", count, count)
    return Examples(tokens.ravel(), np.arange(count + 1, dtype=np.int64) * max_length, targets)
