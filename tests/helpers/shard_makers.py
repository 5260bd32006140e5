"""Shards that worker processes make; imports little, so that a worker starts fast."""

import os
import signal
import tracemalloc
from pathlib import Path

import numpy as np

from tasks.examples import Examples, Shards

EXAMPLES = 50  # of a shard


def make(number: int, dtype: str, log: Path, dies_at: int | None = None, length: int = 40) -> Examples:
    """A pure function of the first two. Notes in `log` that it was called; the first call at `dies_at` is killed."""
    with open(log / f"made-{number}", "a") as stream:
        stream.write(".")
    if number == dies_at and not (log / "killed").exists():
        (log / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    random = np.random.Generator(np.random.PCG64(number))
    lengths = random.integers(1, 2 * length, EXAMPLES)
    tokens = random.integers(0, 200, lengths.sum()).astype(dtype)
    labels = random.integers(0, 3, EXAMPLES).astype(np.uint8)
    return Examples(tokens, np.cumsum([0, *lengths]), labels)


def large(number: int) -> Examples:
    """8 MB."""
    tokens = np.full(1 << 23, number, np.uint8)
    return Examples(tokens, np.array([0, len(tokens)]), np.zeros(1, np.uint8))


def peak(write) -> int:
    """Bytes that this process held at once during a call."""
    tracemalloc.start()
    try:
        write()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def shards(makers) -> Shards:
    return Shards(makers, EXAMPLES * len(makers), "making")
