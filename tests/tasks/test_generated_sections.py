"""Generated examples to fine-tune on: sections of texts, topics whose words only pre-training knows."""

from pathlib import Path

import numpy as np
import pytest

from tasks.finetuning import sections
from tasks.mlm import topics
from tests.helpers.tasks import refuses
from tests.tasks.test_finetuning import task


def books(folder: Path) -> Path:
    """Each word says its split, its book and its number."""
    for split in ("train", "validation", "test"):
        (folder / split).mkdir(parents=True)
        for book in range(3):
            words = " ".join(f"{split}{book}-{number}" for number in range(800))
            (folder / split / f"{book}.txt").write_text(words)
    return folder


def places(text: str) -> list[tuple[str, int]]:
    return [(word.split("-")[0], int(word.split("-")[1])) for word in text.split()]


def test_pairs_are_of_one_section_or_of_two(tmp_path):
    how = {"words": (24, 20), "texts": 2, "seed": 0}
    made = sections.examples(books(tmp_path), examples=400, **how)
    assert {name: len(some) for name, some in made.items()} == {"train": 400, "val": 50, "test": 50}
    for _, (a, b), label in made["train"]:
        first, second = places(a), places(b)
        assert (len(first), len(second)) == (24, 20) and first[0][0].startswith("train")
        same = (first[0][0], first[0][1] // 256) == (second[0][0], second[0][1] // 256)
        assert same == bool(label) and first[-1][1] % 256 < 128 <= second[0][1] % 256
        assert [n for _, n in first] == list(range(first[0][1], first[0][1] + 24))
    assert 150 < sum(label for *_, label in made["train"]) < 250
    fewer = sections.examples(tmp_path, examples=16, **how)
    assert fewer["train"] == made["train"][:16], "fewer are the beginning of more"
    assert sections.examples(tmp_path, examples=16, **{**how, "seed": 1})["train"] != fewer["train"]
    single = sections.examples(tmp_path, examples=16, **{**how, "texts": 1})["train"]
    assert [(texts, label) for _, texts, label in single] == [
        ((" ".join(texts),), label) for _, texts, label in fewer["train"]
    ]


def test_one_line_continues(tmp_path):
    made = sections.examples(books(tmp_path), examples=400, words=(30, 10), texts=5, seed=0)
    right = []
    for _, (text, *lines), label in made["train"]:
        (book, last), starts = places(text)[-1], [places(line)[0] for line in lines]
        assert len(lines) == 4 and starts[label] == (book, last + 1)
        assert [start for start in starts if start == (book, last + 1)] == [starts[label]]
        right.append(label)
    assert min(np.bincount(right, minlength=4)) > 60


def topics_of(text: str) -> dict[int, set[int]]:
    """Topic -> the halves of its words that a text has; common words are left out."""
    halves: dict[int, set[int]] = {}
    for word in text.split():
        topic, number = divmod(topics.vocabulary().index(word), topics.WORDS)
        if topic < topics.TOPICS:
            halves.setdefault(topic, set()).add(number * 2 // topics.WORDS)
    return halves


@pytest.mark.parametrize(("texts", "words"), [(2, (24, 24)), (5, (64, 24)), (6, (24, 12))])
def test_generated_texts_are_on_one_topic_each_and_share_no_word_of_it(texts, words):
    for split, some in sections.examples(None, examples=80, words=words, texts=texts, seed=0).items():
        for _, (first, *others), label in some:
            ((topic, halves),), lines = topics_of(first).items(), [list(topics_of(other).items()) for other in others]
            assert halves == {0} and all(len(line) == 1 and line[0][1] == {1} for line in lines), split
            same = [line[0][0] == topic for line in lines]
            wanted = [bool(label)] if texts == 2 else [i == label for i in range(texts - 1)]
            assert same == wanted and len({line[0][0] for line in lines}) == texts - 1


def test_no_word_of_a_topic_is_both_in_training_and_in_the_test():
    splits = sections.sections(None, seed=0)
    topical = set(topics.vocabulary()[: topics.TOPICS * topics.WORDS])
    of = {name: {word for part in parts for word in part} & topical for name, parts in splits.items()}
    assert of["val"] == of["test"] and not of["test"] & of["train"]
    assert of["train"] | of["test"] == topical, "pre-training has all of them"


def test_too_little_text_is_one_line(tmp_path):
    folder = books(tmp_path / "texts")
    for file in (folder / "test").iterdir():
        file.write_text("few words")
    made = task(tmp_path, "race", source="synthetic", path=folder)
    refuses(made, "test has 0 sections of 256 words, fewer than 6")
