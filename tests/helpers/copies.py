"""Copies between splits: how many examples of one split occur in another one, exactly or moved."""

import math
from collections.abc import Callable, Iterator

import numpy as np

from tasks.base import Split

READ = ("tokens", "source", "partial", "past")  # keys of a batch that a model reads
AT_ONCE = 500


def inputs(split: Split, most: int) -> Iterator[np.ndarray]:
    """What a model reads of each of the first `most` examples: (N,) or (k, N) tokens, (M,) source, (n, 3) points."""
    count = min(len(split), most)
    for start in range(0, count, AT_ONCE):
        batch = split.batch(range(start, min(start + AT_ONCE, count)))
        [key] = [key for key in READ if key in batch]
        yield from batch[key].numpy()


def exact(example: np.ndarray) -> bytes:
    """The bytes of an example without the padding at its end, which depends on its batch."""
    return example.tobytes().rstrip(b"\0") if example.dtype.kind == "i" else example.tobytes()


def in_corner(example: np.ndarray) -> bytes:
    """The bytes of a square picture (N,) on black ground after its content was moved to the upper left corner."""
    side = math.isqrt(len(example))
    picture = example.reshape(side, side)
    rows, columns = picture.any(1), picture.any(0)
    if not rows.any():
        return b""
    cut = picture[rows.argmax() : side - rows[::-1].argmax(), columns.argmax() : side - columns[::-1].argmax()]
    return bytes(cut.shape) + np.ascontiguousarray(cut).tobytes()


def parts_of(example: np.ndarray) -> list[bytes]:
    """The texts of an example of several, (k, N)."""
    return [exact(text) for text in example]


def listed(split: Split, contents: Callable[[np.ndarray], object], most: int) -> list[bytes]:
    """The contents of the first `most` examples."""
    made = map(contents, inputs(split, most))
    return [item for content in made for item in (content if isinstance(content, list) else [content])]
