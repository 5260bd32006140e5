"""Generated examples to fine-tune on: topics whose words only pre-training knows."""

import numpy as np
import pytest

from tasks.finetuning import sections
from tasks.mlm import topics


def made(count: int, words: tuple[int, int], texts: int, seed: int = 0) -> dict[str, list]:
    return sections.examples(examples=count, words=words, texts=texts, seed=seed)


def test_fewer_are_the_beginning_of_more_and_a_single_text_is_a_pair():
    pairs = made(400, (24, 20), 2)
    assert {name: len(some) for name, some in pairs.items()} == {"train": 400, "val": 50, "test": 50}
    assert 150 < sum(label for *_, label in pairs["train"]) < 250
    assert made(16, (24, 20), 2)["train"] == pairs["train"][:16] != made(16, (24, 20), 2, seed=1)["train"]
    single = made(16, (24, 20), 1)["train"]
    joined = [((" ".join(texts),), label) for _, texts, label in pairs["train"][:16]]
    assert [(texts, label) for _, texts, label in single] == joined
    right = [label for *_, label in made(400, (30, 10), 5)["train"]]
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
    for split, some in made(80, words, texts).items():
        for _, (first, *others), label in some:
            ((topic, halves),), lines = topics_of(first).items(), [list(topics_of(other).items()) for other in others]
            assert halves == {0} and all(len(line) == 1 and line[0][1] == {1} for line in lines), split
            same = [line[0][0] == topic for line in lines]
            wanted = [bool(label)] if texts == 2 else [i == label for i in range(texts - 1)]
            assert same == wanted and len({line[0][0] for line in lines}) == texts - 1


def test_no_word_of_a_topic_is_both_in_training_and_in_the_test():
    splits = sections.sections(seed=0)
    topical = set(topics.vocabulary()[: topics.TOPICS * topics.WORDS])
    of = {name: {word for part in parts for word in part} & topical for name, parts in splits.items()}
    assert of["val"] == of["test"] and not of["test"] & of["train"]
    assert of["train"] | of["test"] == topical, "pre-training has all of them"
