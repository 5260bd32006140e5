"""A stand-in for pairs of papers: two documents belong together if they cite the same key.

    document    `distance` bytes of filler or more | "as shown by <key>, " | filler

The key of a document is one of `keys` invented words, drawn alike for both classes; the second document of a pair has
the same one (class 1) or another (class 0). The filler is unrelated, so nothing but the two keys tells, and each tower
has to find its own and to say which it is: more keys are harder, and so is more filler around them.
"""

from collections.abc import Iterator

from tasks.base import Progress
from tasks.cache import Examples
from tasks.lra.bytes import pack
from tasks.lra.draws import Draws
from tasks.lra.synthetic_text import SEA, filler

VERSION = 1  # part of the cache key: raise it when the same seed gives other examples
PHRASE = b"as shown by %s, "
CONSONANTS, VOWELS = b"bdfghjklmnprstvz", b"aeiou"
SYLLABLES = [bytes([consonant, vowel]) for consonant in CONSONANTS for vowel in VOWELS]
MOST_KEYS = len(SYLLABLES) ** 3
NEEDED = len(PHRASE) - 2 + 6


def check(max_length: int, distance: int, keys: int) -> None:
    """Raises ValueError for settings that no pair fits."""
    if not 2 <= keys <= MOST_KEYS:
        raise ValueError(f"keys={keys} is not between 2 and {MOST_KEYS:,}")
    if not 0 <= distance <= max_length - NEEDED:
        raise ValueError(f"distance={distance} is not between 0 and {max_length - NEEDED}: max_length={max_length}")


def key(number: int) -> bytes:
    """The word of this number, three syllables; neighbours look nothing alike."""
    number = number * 7919 % MOST_KEYS  # prime to it, so that no two are the same
    first, rest = divmod(number, len(SYLLABLES) ** 2)
    return SYLLABLES[first] + b"".join(SYLLABLES[i] for i in divmod(rest, len(SYLLABLES)))


def generate(
    count: int, *, seed: tuple[int, ...], max_length: int, distance: int, keys: int, progress: Progress
) -> Examples:
    """`count` pairs, as twice as many texts one after another, both with the label of their pair."""
    check(max_length, distance, keys)
    draws, sea = Draws(*seed), filler()
    label, first = draws.shares(2, count), draws.below(keys, count)
    second = (first + (1 - label) * (1 + draws.below(keys - 1, count))) % keys
    surplus = draws.below(max_length - distance - NEEDED + 1, (count, 2))
    before = draws.below(surplus + 1, (count, 2))
    places = draws.below(SEA - max_length, (count, 2, 2))

    def texts() -> Iterator[tuple[bytes, int]]:
        for i in range(count):
            for tower, number in enumerate((first[i], second[i])):
                start, end = places[i, tower].tolist()
                ahead, behind = distance + before[i, tower], surplus[i, tower] - before[i, tower]
                text = sea[start : start + ahead] + PHRASE % key(int(number)) + sea[end : end + behind]
                yield text, label[i]
            if not (i + 1) % 10_000:
                progress("generating pairs", i + 1, count)

    return pack(texts())
