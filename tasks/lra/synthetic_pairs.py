"""Generated pairs of papers: two documents belong together if both rest on the same work.

    document    filler | "as shown in [2], " | `distance` bytes of filler | "[1] <key>, [2] <key>, " | filler

A document lists `references` works, each by its key, one of `keys` generated words. Far before the list it gives the
number of the work that it rests on. The lists of a pair share one key in either class. In class 1 both documents rest
on it; in class 0 at least one does not. A reader that compares the words of the two documents, or reads one of them
alone, is right on half of the pairs; the rest requires the relation of a number and its key over `distance` bytes.
With `references` 1 the lists of class 0 share no key, so words are enough. More references, more keys and a longer
distance are harder.
"""

from collections.abc import Iterator

from tasks.base import Progress
from tasks.examples import Examples
from tasks.lra.random_stream import RandomStream
from tasks.lra.synthetic_text import FILLER_BYTES, filler
from tasks.tokenizers import pack_bytes

VERSION = 2  # part of the cache key: raise it when the same seed gives other examples
MENTION, ENTRY = b"as shown in [%d], ", b"[%d] %s, "
MOST_REFERENCES = 9  # numbers of one digit
CONSONANTS, VOWELS = b"bdfghjklmnprstvz", b"aeiou"
SYLLABLES = [bytes([consonant, vowel]) for consonant in CONSONANTS for vowel in VOWELS]
MOST_KEYS = len(SYLLABLES) ** 3


def check(max_length: int, distance: int, keys: int, references: int) -> None:
    """Raises ValueError for settings that no pair fits."""
    if not 1 <= references <= MOST_REFERENCES:
        raise ValueError(f"references={references} is not between 1 and {MOST_REFERENCES}")
    if not 2 * references <= keys <= MOST_KEYS:
        raise ValueError(f"keys={keys} is not between {2 * references} and {MOST_KEYS:,}: references={references}")
    if not 0 <= distance <= max_length - _least_length(references):
        room = max_length - _least_length(references)
        raise ValueError(f"distance={distance} is not between 0 and {room}: max_length={max_length}")


def key(number: int) -> bytes:
    """The word of this number, three syllables; neighbours look nothing alike."""
    number = number * 7919 % MOST_KEYS  # prime to it, so that no two are the same
    first, rest = divmod(number, len(SYLLABLES) ** 2)
    return SYLLABLES[first] + b"".join(SYLLABLES[i] for i in divmod(rest, len(SYLLABLES)))


def generate(
    count: int, *, seed: tuple[int, ...], max_length: int, distance: int, keys: int, references: int, progress: Progress
) -> Examples:
    """`count` pairs, as twice as many texts one after another, both with the label of their pair."""
    check(max_length, distance, keys, references)
    random, passage = RandomStream(*seed), filler()
    label = random.balanced_classes(2, count)
    numbers = random.integers([keys - i for i in range(2 * references)], (count, 2 * references))
    shared = random.integers(references, (count, 2))  # where the shared key stands in each list
    other = random.integers(max(1, references**2 - 1), count)
    surplus = random.integers(max_length - distance - _least_length(references) + 1, (count, 2))
    before = random.integers(surplus + 1, (count, 2))
    places = random.integers(FILLER_BYTES - max_length, (count, 2, 3))

    def texts() -> Iterator[tuple[bytes, int]]:
        for i in range(count):
            words = [key(number) for number in distinct(numbers[i].tolist())]
            lists = [words[:references], words[references:]]
            at = tuple(shared[i].tolist())
            if label[i] or references > 1:
                lists[1][at[1]] = lists[0][at[0]]
            rests = at if label[i] or references == 1 else elsewhere(at, int(other[i]), references)
            for tower in (0, 1):
                ahead, behind = int(before[i, tower]), int(surplus[i, tower] - before[i, tower])
                lengths, starts = (ahead, distance, behind), places[i, tower].tolist()
                start, middle, end = (passage[p : p + n] for p, n in zip(starts, lengths, strict=True))
                entries = b"".join(ENTRY % (number, word) for number, word in enumerate(lists[tower], 1))
                yield b"".join((start, MENTION % (rests[tower] + 1), middle, entries, end)), label[i]
            if not (i + 1) % 10_000:
                progress("generating pairs", i + 1, count)

    return pack_bytes(texts())


def distinct(draws: list[int]) -> list[int]:
    """Numbers that differ, all sets of them alike probable, of draws below n, n - 1, n - 2, ..."""
    found: list[int] = []
    for number in draws:
        for smaller in sorted(found):
            number += number >= smaller
        found.append(number)
    return found


def elsewhere(at: tuple[int, int], draw: int, references: int) -> tuple[int, int]:
    """A pair of places that is not `at`, of a draw below references^2 - 1."""
    return divmod(draw + (draw >= at[0] * references + at[1]), references)


def _least_length(references: int) -> int:
    """Bytes of a mention and a list."""
    return len(MENTION) - 1 + references * (len(ENTRY) - 3 + 6)
