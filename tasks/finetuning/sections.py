"""Examples made of plain texts, in place of data that are not at hand: neighbours, and what comes next.

    two texts      are both from the same section of a document?        in place of GLUE's classes
    more texts     which of these lines continues the first one?        in place of RACE and CommonsenseQA

A section is 256 words after each other. Of the same section a pair has words of its first half and of its second half;
else the second half is another section's. A line that continues is the words right after the first text; the others are
from other sections. A single text is a pair of which both halves stand one after the other. Without texts of the user
a section has words of eight letters of its own, which tell it from the others.

An example is a function of the texts, the seed and its number alone, the same on every machine.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tasks.checks import DataError
from tasks.data_task import SPLITS
from tasks.lm.text_sources import text_splits
from tasks.probe.draws import Draws

VERSION = 1  # part of the cache key: raise it when the same seed gives other examples
SECTION = 256  # words
HELD_BACK = 8  # training examples for each one that validates, and each one that tests
STREAM = 0x5EC7  # of the random numbers, and the split's number
COUNTS = {"train": 256, "val": 32, "test": 32}  # sections that are generated
LETTERS, OWN, LENGTH = "abcdefghijklmnopqrstuvwxyz", 8, 3  # of which a section has so many, and words of this length

Made = tuple[str, tuple[str, ...], int]  # where, texts, label


def examples(
    path: Path | None, *, examples: int, words: tuple[int, int], texts: int, seed: int, hint: str
) -> dict[str, list[Made]]:
    """All splits. Raises DataError for texts with fewer than `texts` + 1 sections."""
    found = {}
    for number, (split, parts) in enumerate(sections(path, seed, hint).items()):
        if len(parts) <= texts:
            what = f"{split} has {len(parts)} sections of {SECTION} words, fewer than {texts + 1}"
            raise DataError(f"{path}: {what}; set task.path to more text, then {hint}")
        count = examples if split == "train" else -(-examples // HELD_BACK)
        draws = Draws(seed, STREAM + number, range(count))
        make = pairs if texts <= 2 else continuations
        made = make(parts, draws, words, texts)
        found[split] = [(f"{split} {i}", some, label) for i, (some, label) in enumerate(made)]
    return found


def sections(path: Path | None, seed: int, hint: str) -> dict[str, list[list[str]]]:
    """The words of each section of each split. Raises DataError."""
    if path is None:
        return {name: generated(COUNTS[name], seed, number) for number, name in enumerate(SPLITS)}
    pieces = text_splits(path, hint)
    return {
        name: [
            words[start : start + SECTION]
            for piece in pieces[name]
            for document in piece.documents()
            for words in [document.text.split()]
            for start in range(0, len(words) - SECTION + 1, SECTION)
        ]
        for name in SPLITS
    }


def generated(count: int, seed: int, split: int) -> list[list[str]]:
    """The words of so many sections."""
    draws = Draws(seed, STREAM + len(SPLITS) + split, range(count))
    own = np.take_along_axis(draws.distinct(len(LETTERS), OWN), draws.integers(OWN, SECTION * LENGTH), axis=1)
    texts = ("".join(LETTERS[letter] for letter in row) for row in own.tolist())
    return [[text[start : start + LENGTH] for start in range(0, len(text), LENGTH)] for text in texts]


def pairs(
    parts: list[list[str]], draws: Draws, words: tuple[int, int], texts: int
) -> Iterator[tuple[tuple[str, ...], int]]:
    """Label 1: of the same section."""
    half = SECTION // 2
    places = draws.distinct(len(parts), 2)
    label = draws.integers(2, 1)[:, 0]
    starts = draws.integers(half - np.array(words) + 1, 2)
    for (one, other), same, (first, second) in zip(places.tolist(), label.tolist(), starts.tolist(), strict=True):
        a = passage(parts[one], first, words[0])
        b = passage(parts[one if same else other], half + second, words[1])
        yield (a, b) if texts == 2 else (f"{a} {b}",), same


def continuations(
    parts: list[list[str]], draws: Draws, words: tuple[int, int], texts: int
) -> Iterator[tuple[tuple[str, ...], int]]:
    """Label: the place of the line that continues the first text."""
    places = draws.distinct(len(parts), texts - 1)
    label = draws.integers(texts - 1, 1)[:, 0]
    first = draws.integers(SECTION - sum(words) + 1, 1)[:, 0]
    starts = draws.integers(SECTION - words[1] + 1, texts - 2)
    for chosen, right, start, others in zip(
        places.tolist(), label.tolist(), first.tolist(), starts.tolist(), strict=True
    ):
        lines = [passage(parts[place], at, words[1]) for place, at in zip(chosen[1:], others, strict=True)]
        lines.insert(right, passage(parts[chosen[0]], start + words[0], words[1]))
        yield (passage(parts[chosen[0]], start, words[0]), *lines), right


def passage(words: list[str], start: int, count: int) -> str:
    return " ".join(words[start : start + count])
