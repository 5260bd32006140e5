"""Co-occurrence naive Bayes: the same numbers by hand, topics that it knows from fine-tuning, and those it cannot."""

import math

import numpy as np
import pytest
import torch

from tasks.finetuning.cooccurrence import Cooccurrence
from tasks.seq2seq.vocabulary import BOS, EOS, SPECIAL_ROWS
from tests.tasks.test_classifiers import Tokens

TOPICS = 6


def pair(first, second) -> list[int]:
    words = ([SPECIAL_ROWS + word for word in text] for text in (first, second))
    first, second = words
    return [BOS, *first, EOS, EOS, *second, EOS]


def pairs(count: int, seed: int, topics: range) -> Tokens:
    """Class 1: words 2t of topic t with words 2t + 1 of the same topic; class 0: of another topic."""
    draw = np.random.default_rng(seed)
    label, topic = draw.integers(0, 2, count), draw.choice(topics, count)
    other = (topic - topics.start + np.where(label, 0, draw.integers(1, len(topics), count))) % len(topics)
    return Tokens([pair([2 * a], [2 * (topics.start + b) + 1]) for a, b in zip(topic, other, strict=True)], label)


def test_the_odds_are_those_of_counts():
    split = Tokens([pair([0, 1], [2, 2]), pair([0, 0], [3, 3]), pair([1, 1], [3, 3])], [1, 0, 0])
    bayes = Cooccurrence(split, SPECIAL_ROWS + 5, choice=False)
    # class 1: (0, 2), (1, 2); class 0: (0, 3), (1, 3); four pairs occur, each counted once more
    odds = math.log((1 + 1) / (2 + 1)) + math.log((1 + 1) / (2 + 4)) - math.log((0 + 1) / (2 + 4))
    log_p = bayes(torch.tensor([pair([0, 4], [2, 4])]))[0]
    assert float(log_p[1] - log_p[0]) == pytest.approx(odds, rel=1e-5), "a word that did not occur counts nothing"
    assert log_p.exp().sum() == pytest.approx(1) and bayes.saw == "3 examples"
    assert Cooccurrence(split, SPECIAL_ROWS + 5, choice=False, most=2).saw == "2 examples"


def test_topics_of_fine_tuning_are_known_and_others_are_not():
    rows = SPECIAL_ROWS + 4 * TOPICS
    bayes = Cooccurrence(pairs(400, 0, range(TOPICS)), rows, choice=False)
    for topics, low, high in ((range(TOPICS), 0.99, 1.0), (range(TOPICS, 2 * TOPICS), 0.35, 0.65)):
        test = pairs(300, 1, topics)
        right = float((bayes(test.tokens).argmax(1) == test.label).double().mean())
        assert low <= right <= high


def test_the_answer_of_the_same_topic_is_chosen():
    draw = np.random.default_rng(0)

    def questions(count):
        tokens, label = [], draw.integers(0, 3, count)
        for right in label:
            topic, *others = draw.permutation(TOPICS)[:3]
            answers = np.insert(others, right, topic)
            tokens.append([pair([2 * topic], [2 * answer + 1]) for answer in answers])
        return Tokens(tokens, label)

    bayes = Cooccurrence(questions(300), SPECIAL_ROWS + 2 * TOPICS, choice=True)
    test = questions(100)
    scores = bayes(test.tokens)
    assert scores.shape == (100, 3) and (scores.argmax(1) == test.label).all()
