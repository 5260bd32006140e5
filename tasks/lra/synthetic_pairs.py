"""Generated pairs of documents: two reviews of `synthetic_text`, in class 1 if both mean the same.

A reader of the verdicts alone takes a pair whose verdicts agree for class 1. It is wrong where one of the two is turned
round: on 2 * `negated` * (1 - `negated`) of the pairs. The rest requires the relation over `distance` bytes in both
documents. Of the pairs that agree, a share `against` are against their films. Where that is not a half, one threshold
on the number of reviews in favour is right on 1/2 + max(`against`, 1 - `against`) / 2 of the pairs. It is learned
first, and comparing the two adds the rest. Classes are equally frequent.
"""

from typing import Any

import numpy as np

from tasks.checks import Progress
from tasks.examples import Examples, pack_bytes
from tasks.lra import synthetic, synthetic_text
from tasks.lra.synthetic import RandomStream

VERSION = 5  # part of the cache key: raise it when the same seed gives other examples


def check(max_length: int, distance: int, negated: float, words: int, against: float) -> None:
    """Raises ValueError for settings that no pair fits."""
    if not 0 <= against <= 1:
        raise ValueError(f"against={against} is no share between 0 and 1")
    synthetic_text.check(max_length, distance, negated, words)


def generate(count: int, *, seed: tuple[int, ...], against: float, progress: Progress, **settings: Any) -> Examples:
    """`count` pairs, as twice as many texts one after another, both with the label of their pair, of the split that the
    seed ends with.

    `settings`: `max_length`, `distance`, `negated` and `words`, as of `synthetic_text`.
    """
    check(**settings, against=against)
    random = RandomStream(*seed)
    label = random.balanced_classes(2, count)
    favour_if_same, favour_if_not = 1 - random.bernoulli(against, count).astype(np.int64), random.integers(2, count)
    first = np.where(label == 1, favour_if_same, favour_if_not)
    meaning = np.stack([first, first ^ label ^ 1], axis=1).reshape(-1)
    texts = [b""] * len(meaning)

    def draw(rejected: np.ndarray) -> list[bytes]:
        made = list(synthetic_text.reviews(random, meaning[rejected], progress=progress, **settings))
        for number, text in zip(rejected.tolist(), made, strict=True):
            texts[number] = text
        return made

    synthetic.rejecting(len(meaning), seed[-1], draw, "generating reviews", progress)
    return pack_bytes(zip(texts, label.repeat(2), strict=True))
