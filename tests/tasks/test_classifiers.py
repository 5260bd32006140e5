"""Baselines of classification against the same by hand: tables, naive Bayes, and their features."""

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from tasks.base import Split
from tasks.lra import classifiers
from tasks.lra.classifiers import Lookup, NaiveBayes, ngrams
from tasks.lra.listops import root_on_digits
from tasks.lra.listops_generator import evaluate, parse
from tasks.lra.pathfinder_predictors import disc_places
from tasks.lra.retrieval import text_numbers


class Tokens(Split):
    def __init__(self, tokens, label):
        self.tokens, self.label = torch.as_tensor(tokens), torch.as_tensor(label)

    def __len__(self):
        return len(self.label)

    def batch(self, indices):
        index = list(indices)
        return {"tokens": self.tokens[index], "label": self.label[index]}


def random_tokens(count, length, symbols, classes, seed=0):
    draw = np.random.default_rng(seed)
    label = draw.integers(classes, size=count)
    return Tokens((draw.integers(1, symbols, size=(count, length)) + label[:, None]) % symbols, label)


def test_a_table_answers_with_the_frequencies_of_a_key(monkeypatch):
    monkeypatch.setattr(classifiers, "PIECE", 7)  # it is read in pieces
    split = random_tokens(50, 3, 4, 2)
    first = lambda tokens: tokens[:, 0]  # noqa: E731
    table = Lookup.fitted(split, 2, 5, first)
    rows = list(zip(split.tokens[:, 0].tolist(), split.label.tolist(), strict=True))
    prior = [(split.label.tolist().count(label) + 1) / 52 for label in (0, 1)]
    for key in range(5):  # 4 is the key of no example
        counts = Counter(label for other, label in rows if other == key)
        expected = [(counts[label] + prior[label]) / (counts.total() + 1) for label in (0, 1)]
        frequencies = table(torch.tensor([[key, 0, 0]])).exp()[0]
        assert frequencies.tolist() == pytest.approx(expected)
    few = Lookup.fitted(split, 2, 5, first, most=10)
    assert torch.equal(
        few.log_probability, Lookup.fitted(Tokens(split.tokens[:10], split.label[:10]), 2, 5, first).log_probability
    )


def test_naive_bayes_is_bayes_rule_of_counts(monkeypatch):
    monkeypatch.setattr(classifiers, "PIECE", 7)
    split = random_tokens(30, 6, 5, 2)
    bayes = NaiveBayes(split, 2, lambda tokens: ngrams(tokens, 2, 5))

    def pairs(row):
        return [(a, b) for a, b in pairwise(row) if a and b]

    counts = [Counter(), Counter()]
    for row, label in zip(split.tokens.tolist(), split.label.tolist(), strict=True):
        counts[label].update(pairs(row))
    seen, examples = counts[0].keys() | counts[1].keys(), Counter(split.label.tolist())
    for row in [*split.tokens[:5].tolist(), [0, 0, 0, 0, 0, 0]]:
        joint = []
        for label in (0, 1):
            total = math.log((examples[label] + 1) / (30 + 2))
            for pair in pairs(row):
                if pair in seen:
                    total += math.log((counts[label][pair] + 1) / (counts[label].total() + len(seen)))
            joint.append(total)
        expected = [log_p - np.logaddexp(*joint) for log_p in joint]
        assert bayes(torch.tensor([row]))[0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9),
        ("[MIN [SM 5 6 ] 3 8 ]", 3),
        ("[MED 1 [MAX 9 9 ] 4 8 ]", 4),
        ("[MED 1 4 ]", 2),
        ("[SM 8 7 [MIN 1 2 ] 9 ]", 4),
        ("[SM [MIN 1 2 ] [MAX 3 4 ] ]", 10),
    ],
)
def test_the_root_on_its_digits(text, value):
    tokens = np.frombuffer(bytes(parse(text)), np.uint8).astype(np.int64)
    padded = np.pad(tokens, (0, 3))[None]
    assert root_on_digits(padded).tolist() == [11 * tokens[0] + value]
    if text.count("[") == 1:
        assert evaluate(parse(text)) == value


def picture(size, radius, *places):
    grid = np.arange(size)
    shown = np.zeros((size, size), np.int64)
    for y, x in places:
        shown[(grid[:, None] - y) ** 2 + (grid - x) ** 2 <= radius**2] = 255
    return shown


@pytest.mark.parametrize(("size", "radius"), [(16, 1.0), (32, 1.5), (128, 3.0)])
def test_discs_are_found_among_dashes_and_where_they_touch(size, radius):
    for places in ([(5, 5), (9, 8)], [(5, 5), (5, 5 + math.ceil(2 * radius))], [(4, size - 5), (size - 5, 4)]):
        shown = picture(size, radius, *places)
        shown[size // 2, :] = np.maximum(shown[size // 2, :], 128)  # a long dash
        centres = {tuple(centre[0].tolist()) for centre in disc_places(shown[None], radius)}
        assert centres == set(places)


def test_texts_have_numbers():
    tokens = np.zeros((2, 2, 9), np.int64)
    tokens[0, 0, :6] = tokens[0, 1, :6] = [1, 2, 3, 4, 5, 6]
    tokens[0, 1, 6] = 7
    tokens[1, 0, :6], tokens[1, 1, :6] = 1, 2
    numbers = text_numbers(tokens)
    assert numbers[0, 0] == text_numbers(tokens[:1, :, :6])[0, 0], "padding is no part of a text"
    assert len(set(numbers.ravel().tolist())) == 4 and text_numbers(tokens[:, ::-1])[0, 1] == numbers[0, 0] + 1
