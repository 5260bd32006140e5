"""Examples made from plain texts, in place of data that are not available: neighbouring texts, and continuations.

    two texts      are both from the same section of a document?        in place of GLUE's classes
    more texts     which of these lines continues the first one?        in place of RACE and CommonsenseQA

A section is 256 consecutive words. A pair of the same section has words of its first half and of its second half;
else the second half is another section's. A line that continues is the words right after the first text; the others are
from other sections. A single text is such a pair, joined.

Without texts of the user the sections are generated (tasks/mlm/topics.py). Those to validate and to test have words
that those to train do not have, so that only pre-training reveals which of them belong together. The first text is then
of a first half, the others are of second halves, and other sections are on other topics.

An example is a function of the texts, the seed and its number alone, the same on every machine.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tasks.checks import DataError
from tasks.data_task import SPLITS
from tasks.lm.text_sources import text_splits
from tasks.mlm import topics
from tasks.probe.draws import HELD_BACK, Draws

VERSION = 4  # part of the cache key: raise it when the same seed gives other examples
SECTION = topics.SECTION  # words
STREAM = 0x5EC7  # of the random numbers, and the split's number
COUNTS = {"train": 1024, "val": 256, "test": 256}  # generated sections

Made = tuple[str, tuple[str, ...], int]  # where, texts, label


def examples(
    path: Path | None, *, examples: int, words: tuple[int, int], texts: int, seed: int
) -> dict[str, list[Made]]:
    """All splits. Raises DataError for texts with fewer than `texts` + 1 sections."""
    splits = {}
    for number, (split, parts) in enumerate(sections(path, seed).items()):
        if len(parts) <= texts:
            problem = f"{split} has {len(parts)} sections of {SECTION} words, fewer than {texts + 1}"
            raise DataError(f"{path}: {problem}", "set task.path to more text")
        count = examples if split == "train" else -(-examples // HELD_BACK)
        draws = Draws(seed, STREAM + number, range(count))
        make = pairs if texts <= 2 else continuations
        kinds = topics.TOPICS if path is None else None
        made = make(parts, draws, words, texts, kinds=kinds)
        splits[split] = [(f"{split} {i}", some, label) for i, (some, label) in enumerate(made)]
    return splits


def sections(path: Path | None, seed: int) -> dict[str, list[list[str]]]:
    """The words of each section of each split. Raises DataError."""
    if path is None:
        made = {"seed": seed, "halves": True}
        return {name: list(topics.sections(COUNTS[name], split=i, **made)) for i, name in enumerate(SPLITS)}
    pieces = text_splits(path)
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


def different(parts: list[list[str]], draws: Draws, count: int, kinds: int | None) -> np.ndarray:
    """int64 (n, count): numbers of sections; no two generated sections of a row are on the same topic.

    `kinds`: topics of generated sections, which they are on in turn; None: they are not generated.
    """
    kinds = kinds or len(parts)
    return draws.distinct(kinds, count) + kinds * draws.integers(len(parts) // kinds, count)


def pairs(
    parts: list[list[str]], draws: Draws, words: tuple[int, int], texts: int, *, kinds: int | None
) -> Iterator[tuple[tuple[str, ...], int]]:
    """Label 1: of the same section."""
    half = SECTION // 2
    places = different(parts, draws, 2, kinds)
    label = draws.integers(2, 1)[:, 0]
    starts = draws.integers(half - np.array(words) + 1, 2)
    for (section, other), same, (first, second) in zip(places.tolist(), label.tolist(), starts.tolist(), strict=True):
        a = passage(parts[section], first, words[0])
        b = passage(parts[section if same else other], half + second, words[1])
        yield (a, b) if texts == 2 else (f"{a} {b}",), same


def continuations(
    parts: list[list[str]], draws: Draws, words: tuple[int, int], texts: int, *, kinds: int | None
) -> Iterator[tuple[tuple[str, ...], int]]:
    """Label: the index of the line that continues the first text."""
    half = SECTION // 2 if kinds else 0  # where the first text ends, and the others' places begin
    places = different(parts, draws, texts - 1, kinds)
    label = draws.integers(texts - 1, 1)[:, 0]
    first = np.full(len(draws), half - words[0]) if half else draws.integers(SECTION - sum(words) + 1, 1)[:, 0]
    starts = half + draws.integers(SECTION - half - words[1] + 1, texts - 2)
    for chosen, right, start, others in zip(
        places.tolist(), label.tolist(), first.tolist(), starts.tolist(), strict=True
    ):
        lines = [passage(parts[section], at, words[1]) for section, at in zip(chosen[1:], others, strict=True)]
        lines.insert(right, passage(parts[chosen[0]], start + words[0], words[1]))
        yield (passage(parts[chosen[0]], start, words[0]), *lines), right


def passage(words: list[str], start: int, count: int) -> str:
    return " ".join(words[start : start + count])
