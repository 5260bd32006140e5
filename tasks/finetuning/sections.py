"""Examples made of generated sections, in place of data that are not available.

    two texts      are both on one topic?                            in place of GLUE's classes
    more texts     which of these is on the topic of the first?      in place of RACE and CommonsenseQA

A section is 256 words on one topic (tasks/mlm/topics.py). The first text is of the first half of a section, the others
are of second halves, those that do not belong to it of sections on other topics. A single text is a pair, joined.
Sections to validate and to test have words that those to train do not have, so that only pre-training reveals which of
them belong together.

An example is a function of the seed and its number only, the same on every machine.
"""

from collections.abc import Iterator

import numpy as np

from tasks.data_task import SPLITS
from tasks.mlm import topics
from tasks.mlm.topics import SECTION, TOPICS
from tasks.probe.draws import HELD_BACK, Draws

VERSION = 4  # part of the cache key: raise it when the same seed gives other examples
STREAM = 0x5EC7  # of the random numbers, and the split's number
HALF = SECTION // 2  # words
COUNTS = {"train": 1024, "val": 256, "test": 256}  # sections

Made = tuple[str, tuple[str, ...], int]  # where, texts, label


def examples(*, examples: int, words: tuple[int, int], texts: int, seed: int) -> dict[str, list[Made]]:
    """All splits."""
    splits = {}
    for number, (split, parts) in enumerate(sections(seed).items()):
        count = examples if split == "train" else -(-examples // HELD_BACK)
        draws = Draws(seed, STREAM + number, range(count))
        made = (pairs if texts <= 2 else continuations)(parts, draws, words, texts)
        splits[split] = [(f"{split} {i}", some, label) for i, (some, label) in enumerate(made)]
    return splits


def sections(seed: int) -> dict[str, list[list[str]]]:
    """The words of each section of each split."""
    made = {"seed": seed, "halves": True}
    return {name: list(topics.sections(COUNTS[name], split=i, **made)) for i, name in enumerate(SPLITS)}


def different(parts: list[list[str]], draws: Draws, count: int) -> np.ndarray:
    """int64 (n, count): numbers of sections, no two of a row on the same topic: topics take turns."""
    return draws.distinct(TOPICS, count) + TOPICS * draws.integers(len(parts) // TOPICS, count)


def pairs(
    parts: list[list[str]], draws: Draws, words: tuple[int, int], texts: int
) -> Iterator[tuple[tuple[str, ...], int]]:
    """Label 1: on one topic."""
    places = different(parts, draws, 2)
    label = draws.integers(2, 1)[:, 0]
    starts = draws.integers(HALF - np.array(words) + 1, 2)
    for (section, other), same, (first, second) in zip(places.tolist(), label.tolist(), starts.tolist(), strict=True):
        a = passage(parts[section], first, words[0])
        b = passage(parts[section if same else other], HALF + second, words[1])
        yield (a, b) if texts == 2 else (f"{a} {b}",), same


def continuations(
    parts: list[list[str]], draws: Draws, words: tuple[int, int], texts: int
) -> Iterator[tuple[tuple[str, ...], int]]:
    """Label: the index of the text that continues the first one, which is at the end of its half."""
    places = different(parts, draws, texts - 1)
    label = draws.integers(texts - 1, 1)[:, 0]
    starts = HALF + draws.integers(HALF - words[1] + 1, texts - 2)
    for chosen, right, others in zip(places.tolist(), label.tolist(), starts.tolist(), strict=True):
        lines = [passage(parts[section], at, words[1]) for section, at in zip(chosen[1:], others, strict=True)]
        lines.insert(right, passage(parts[chosen[0]], HALF, words[1]))
        yield (passage(parts[chosen[0]], HALF - words[0], words[0]), *lines), right


def passage(words: list[str], start: int, count: int) -> str:
    return " ".join(words[start : start + count])
