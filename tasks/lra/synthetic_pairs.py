"""Generated pairs of documents: two reviews of `synthetic_text`, in class 1 if both mean the same.

A reader of the verdicts alone takes a pair whose verdicts agree for class 1. It is wrong where one of the two is turned
round: on 2 * `negated` * (1 - `negated`) of the pairs. The rest requires the relation over `distance` bytes in both
documents. Classes are equally frequent, and so are the meanings of either document, so that one document tells nothing.
"""

import numpy as np

from tasks.base import Progress
from tasks.examples import Examples
from tasks.lra.random_stream import RandomStream
from tasks.lra.synthetic_text import check, reviews
from tasks.tokenizers import pack_bytes

__all__ = ["check", "generate"]

VERSION = 3  # part of the cache key: raise it when the same seed gives other examples


def generate(
    count: int,
    *,
    seed: tuple[int, ...],
    max_length: int,
    distance: int,
    negated: float,
    words: int,
    progress: Progress,
) -> Examples:
    """`count` pairs, as twice as many texts one after another, both with the label of their pair."""
    check(max_length, distance, negated, words)
    random = RandomStream(*seed)
    label = random.balanced_classes(2, count)
    first = random.integers(2, count)
    meaning = np.stack([first, first ^ label ^ 1], axis=1).reshape(-1)
    texts = reviews(
        random, meaning, max_length=max_length, distance=distance, negated=negated, words=words, progress=progress
    )
    return pack_bytes(zip(texts, label.repeat(2), strict=True))
