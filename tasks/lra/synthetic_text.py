"""Generated film reviews: one word gives a verdict, and a sentence far before it may turn the verdict round.

    filler | frame | `distance` bytes of filler | "Altogether the film is <word>." | filler

The frame says that the verdict is meant or, in a share `negated` of the reviews, that the opposite is meant. Frame and
verdict together give the class. A reader of the verdict alone is right on 1 - `negated` of the reviews, a reader of
single bytes or of the filler on half of them. The rest requires the relation over `distance` bytes; longer is harder.
Fewer `words`, those that a verdict is one of, are easier. So is a share `negated` other than a half: the verdict alone
is learned first, and the frame then improves on it.
Classes are equally frequent, and so are lengths up to `max_length`.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from tasks.checks import Progress
from tasks.examples import Examples, pack_bytes
from tasks.lra.synthetic import RandomStream

VERSION = 1  # part of the cache key: raise it when the same seed gives other examples
FRAMES = (b"I mean every word of this. ", b"I mean the reverse of this. ")
VERDICT = b"Altogether the film is %s. "
WORDS = (
    (b"dreadful", b"tedious", b"clumsy", b"hollow", b"sloppy", b"boring", b"stale", b"lifeless"),
    (b"superb", b"moving", b"clever", b"lovely", b"gripping", b"honest", b"tender", b"brilliant"),
)
MOST_WORDS = len(WORDS[0])
FILLER = (
    b"the a his her one another this that old young small large red grey first last actor camera scene street house "
    b"city road train window voice letter doctor sister brother stranger summer winter morning night walks waits looks "
    b"turns speaks leaves returns opens closes follows with without under over near after before while and then slowly"
).split()
FILLER_BYTES = 1 << 20  # bytes of filler; every passage is a piece of it


def check(max_length: int, distance: int, negated: float, words: int) -> None:
    """Raises ValueError for settings that no review fits."""
    if not 1 <= words <= MOST_WORDS:
        raise ValueError(f"words={words} is not between 1 and {MOST_WORDS}")
    if not 0 <= negated <= 1:
        raise ValueError(f"negated={negated} is no share between 0 and 1")
    if not 0 <= distance <= max_length - _least_length():
        raise ValueError(
            f"distance={distance} is not between 0 and {max_length - _least_length()}: max_length={max_length}"
        )


def generate(count: int, *, seed: tuple[int, ...], progress: Progress, **settings: Any) -> Examples:
    """`count` reviews; fewer are not the beginning of more. `settings`: those of `check`."""
    check(**settings)
    random = RandomStream(*seed)
    label = random.balanced_classes(2, count)
    return pack_bytes(zip(reviews(random, label, progress=progress, **settings), label, strict=True))


def reviews(
    random: RandomStream,
    meaning: np.ndarray,
    max_length: int,
    distance: int,
    negated: float,
    words: int,
    progress: Progress,
) -> Iterator[bytes]:
    """One review per entry of `meaning` (count,): 0 is against, 1 in favour."""
    count, passage = len(meaning), filler()
    which = random.integers(words, count)
    denied = random.bernoulli(negated, count).astype(np.int64)
    surplus = random.integers(max_length - distance - _least_length() + 1, count)
    before = random.integers(surplus + 1, count)
    places = random.integers(FILLER_BYTES - max_length, (count, 3))
    for i in range(count):
        lengths = (int(before[i]), distance, int(surplus[i] - before[i]))
        start, middle, end = (passage[at : at + n] for at, n in zip(places[i].tolist(), lengths, strict=True))
        verdict = VERDICT % WORDS[meaning[i] ^ denied[i]][which[i]]
        yield b"".join((start, FRAMES[denied[i]], middle, verdict, end))
        if not (i + 1) % 10_000:
            progress("generating reviews", i + 1, count)


@cache
def filler() -> bytes:
    """FILLER_BYTES bytes of neutral words."""
    words = (FILLER[i] for i in RandomStream(0, FILLER_BYTES).integers(len(FILLER), FILLER_BYTES // 4))
    return b" ".join(words)[:FILLER_BYTES]


def _least_length() -> int:
    """Bytes of the longest frame and verdict."""
    return max(map(len, FRAMES)) + len(VERDICT) - 2 + max(len(word) for words in WORDS for word in words)
