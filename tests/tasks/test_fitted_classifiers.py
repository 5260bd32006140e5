"""Fitted classifiers and their features: each solves a case made for it, and not one that its features cannot tell."""

import itertools

import numpy as np
import pytest
import torch

from tasks.examples import BYTE_SHIFT, BYTE_SYMBOLS
from tasks.lra.fitted import Fitted, at_most, boosted, discriminant, logistic, nearest, within
from tasks.lra.image import in_corner, switched_on
from tasks.lra.listops import COUNTED, DEPTHS, depth_counts
from tasks.lra.listops_generator import parse
from tasks.lra.ngram_counts import LogRatioRegression, ngram_counts, shared_and_not, similarities, word_counts
from tasks.lra.pathfinder_predictors import line_ink
from tests.helpers.listops import loaded
from tests.tasks.test_classifiers import Tokens, random_tokens


def accuracy(predictor, split: Tokens) -> float:
    return float((predictor(split.tokens).argmax(1) == split.label).double().mean())


def expressions(*texts: str) -> np.ndarray:
    rows = [parse(text) for text in texts]
    tokens = np.zeros((len(rows), max(map(len, rows)) + 1), np.int64)
    for row, expression in zip(tokens, rows, strict=True):
        row[: len(expression)] = list(expression)
    return tokens


def test_a_fit_takes_the_first_examples_and_gives_probabilities():
    split = random_tokens(200, 4, 6, 2)
    shifted = Tokens(split.tokens, 2 * split.label)  # of four classes, two occur
    predictor = Fitted(shifted, 4, lambda tokens: tokens.astype(np.float32), nearest(3), 100)
    assert predictor.saw == "100 examples"
    probability = predictor(split.tokens).exp()
    assert probability.sum(1) == pytest.approx(1) and (probability > 0).all()
    assert not (probability[:, [1, 3]] > 0.01).any(), "classes that did not occur"
    assert accuracy(predictor, Tokens(shifted.tokens[:100], shifted.label[:100])) > accuracy(predictor, split) - 0.2
    split.lengths = lambda: np.array([5, 5, 9, 1])
    assert [within(split, *limits) for limits in ((10, 4), (18, 4), (19, 4), (99, 3), (1, 4))] == [2, 2, 3, 3, 1]
    assert (at_most(10, None), at_most(10, 7), at_most(10, 70)) == (10, 7, 10)


def test_linear_discriminant_finds_the_best_line():
    draw = np.random.default_rng(0)
    label = draw.integers(2, size=2000)
    both = draw.normal(size=(2000, 1)) * 4  # a common part hides the difference from either number alone
    numbers = np.concatenate([both + 4 * label[:, None], both], 1) + draw.normal(size=(2000, 2))
    split = Tokens(np.round(numbers).astype(np.int64), label)
    assert accuracy(Fitted(split, 2, lambda tokens: tokens.astype(np.float64), discriminant()), split) > 0.85


def test_counts_of_each_depth():
    tokens = expressions("[MAX 2 9 [MIN 4 7 ] 0 ]", "[MIN 5 5 ]")
    counts = depth_counts(tokens)[:, : DEPTHS * COUNTED].reshape(2, DEPTHS, COUNTED)
    assert np.flatnonzero(counts[0, 0]).tolist() == [0, 2, 9, 10], "three digits and [MIN"
    assert np.flatnonzero(counts[0, 1]).tolist() == [4, 7] and not counts[0, 2:].any()
    assert counts[1, 0, 5] == 2 and counts[1].sum() == 2
    values = depth_counts(tokens)[:, DEPTHS * COUNTED : DEPTHS * (COUNTED + 4)].reshape(2, DEPTHS, 4)
    assert values[0, :3].tolist() == [[0, 9, 2, 1], [4, 7, 4, 1], [-1, -1, -1, -1]]
    roots = depth_counts(tokens)[:, DEPTHS * (COUNTED + 4) : -2]
    assert roots.sum(1).tolist() == [1, 1] and roots[0].argmax() != roots[1].argmax()
    assert depth_counts(tokens)[:, -2:].tolist() == [[9, 2], [4, 1]]
    shuffled = expressions("[MAX 0 [MIN 7 4 ] 9 2 ]")
    assert np.array_equal(depth_counts(shuffled)[0], depth_counts(tokens)[0]), "order is not counted"


def test_boosted_counts_solve_one_operator_and_not_which_argument_is_whose(tmp_path):
    draw = np.random.default_rng(0)

    def flat(count):
        rows = [f"[MAX {' '.join(map(str, draw.integers(0, 8, 3)))} ]" for _ in range(count)]
        tokens = expressions(*rows)
        return Tokens(tokens, tokens[:, 1:4].max(1) - 1)

    train, test = flat(1000), flat(200)
    assert accuracy(Fitted(train, 10, depth_counts, boosted(max_iter=20)), test) > 0.95

    def nested(count):
        """In class 1 the larger pair of digits is inside [MIN; the counts of both classes are the same."""
        label = draw.integers(0, 2, count)
        rows = ["[SM [MIN 8 9 ] [MAX 1 2 ] ]" if each else "[SM [MIN 1 2 ] [MAX 8 9 ] ]" for each in label]
        return Tokens(expressions(*rows), label)

    predictor = Fitted(nested(400), 2, depth_counts, boosted(max_iter=20))
    assert accuracy(predictor, nested(400)) < 0.62
    task = loaded(tmp_path)
    assert task.baselines(seen=120)["boosted_counts_per_depth"]().saw == "120 examples"


def test_neighbours_know_a_shape_anywhere_only_after_it_is_moved():
    shapes = 255 * np.array(
        [[[1, 1, 0], [1, 0, 0], [1, 0, 0]], [[1, 0, 0], [1, 0, 0], [1, 1, 0]], [[1, 1, 1], [1, 1, 1], [1, 1, 1]]]
    )

    def placed(places):
        tokens, label = [], []
        for y, x in places:
            for number, shape in enumerate(shapes):
                picture = np.zeros((12, 12), np.int64)
                picture[y : y + 3, x : x + 3] = shape
                tokens.append(picture.ravel())
                label.append(number)
        return Tokens(np.array(tokens), label)

    train = placed([(0, 0), (0, 8), (8, 0), (4, 4)])
    test = placed([(8, 8), (2, 6), (6, 2), (9, 4)])
    moved = Fitted(train, 3, lambda tokens: in_corner(switched_on(tokens, 12), 12), nearest(1))
    still = Fitted(train, 3, lambda tokens: switched_on(tokens, 12), nearest(1))
    assert accuracy(moved, test) == 1
    assert accuracy(still, train) == 1 and accuracy(still, test) < 0.7
    assert torch.equal(moved(test.tokens).argmax(1), test.label)


def dashed(count: int, seed: int, straight: bool = True) -> Tokens:
    """Pictures of two discs: with a line between them in class 1. Not `straight`: the line is far from both."""
    draw = np.random.default_rng(seed)
    label = draw.integers(0, 2, count)
    pictures = np.zeros((count, 16, 16), np.int64)
    for picture, joined in zip(pictures, label, strict=True):
        row, first, last = draw.integers(2, 6), draw.integers(2, 5), draw.integers(10, 13)
        if joined:
            picture[row if straight else 14, first:last] = 128
        for column in (first, last):
            picture[row - 1 : row + 2, column] = picture[row, column - 1 : column + 2] = 255
    return Tokens(pictures.reshape(count, -1), label)


def test_ink_near_the_line_tells_of_a_straight_path_and_not_of_a_distant_one():
    features = lambda tokens: line_ink(tokens, 16, 1)  # noqa: E731
    near, far = (Fitted(dashed(300, 0, straight), 2, features, boosted(max_iter=20)) for straight in (True, False))
    assert accuracy(near, dashed(200, 1)) > 0.95
    assert accuracy(far, dashed(200, 1, straight=False)) < 0.75
    turned = dashed(5, 2).tokens.reshape(5, 16, 16).transpose(1, 2).flatten(1).numpy()
    ink = features(turned)
    assert np.isfinite(ink).all() and ink.shape == (5, features(np.zeros((1, 257), np.int64)).shape[1])


def test_regression_on_ngrams_knows_words_and_not_their_order():
    features = lambda tokens: ngram_counts(tokens, 3, 9)  # noqa: E731
    train, test = random_tokens(400, 12, 8, 2), random_tokens(200, 12, 8, 2, seed=1)
    words = Tokens(train.tokens.clone(), train.label), Tokens(test.tokens.clone(), test.label)
    for split in words:
        split.tokens[split.label == 1, 4:7] = torch.tensor([5, 8, 5])
    assert accuracy(Fitted(words[0], 2, features, logistic()), words[1]) > 0.95

    def ordered(split, seed):
        """In class 1 the mark 5 8 5 stands before the mark 6 8 6, in class 0 after it."""
        split.tokens[:] = torch.from_numpy(np.random.default_rng(seed).integers(1, 5, split.tokens.shape))
        for start, marks in ((2, (6, 5)), (7, (5, 6))):  # two more on all sides
            for label, mark in enumerate(marks):
                split.tokens[split.label == label, start : start + 3] = torch.tensor([mark, 8, mark])
        return split

    assert accuracy(Fitted(ordered(train, 2), 2, features, logistic()), ordered(test, 3)) < 0.65


def test_similarities_of_equal_and_of_different_texts():
    tokens = np.zeros((3, 2, 8), np.int64)
    tokens[0] = [1, 2, 3, 4, 0, 0, 0, 0]
    tokens[1, 0, :4], tokens[1, 1, :3] = [1, 2, 1, 2], [3, 4, 3]
    tokens[2, 0, :2], tokens[2, 1, :2] = [1, 2], [2, 1]
    numbers = similarities(tokens, 9)
    assert numbers[0, :10] == pytest.approx(1) and not numbers[1, :10].any()
    assert numbers[2, :4].tolist() == pytest.approx([1, 1, 2 / 3, 2 / 4]), "the same bytes, other pairs of them"
    assert numbers[1, -3:].tolist() == [4, 3, 1]


def test_shared_ngrams_tell_whether_marks_agree_and_not_what_their_order_means():
    def marked(count, seed, ordered):
        """In class 1 both texts have the mark 7 or both 8; `ordered`: the first one has 7 and the second one 8."""
        draw = np.random.default_rng(seed)
        label, first = draw.integers(0, 2, (2, count))
        tokens = draw.integers(1, 4, (count, 2, 9))
        second = first ^ label ^ 1
        if ordered:
            first, second = 1 - label, label
        tokens[:, 0, 4], tokens[:, 1, 4] = 7 + first, 7 + second
        return Tokens(tokens, label)

    for ordered in (False, True):
        train, test = marked(600, 0, ordered), marked(300, 1, ordered)
        regression = Fitted(train, 2, lambda tokens: shared_and_not(tokens, 9), logistic())
        assert (accuracy(regression, test) > 0.9) != ordered
        assert accuracy(regression, test) < 0.65 or not ordered


def test_words_and_pairs_tell_classes_that_single_words_do_not():
    draw = np.random.default_rng(0)
    texts, label = [], draw.integers(0, 2, 400)
    for number in label:
        pair = ["not good", "good not"][number]
        texts.append(" ".join([*draw.choice(["film", "plot", "cast"], 3), pair, *draw.choice(["set", "score"], 2)]))
    rows = [np.frombuffer(text.encode(), np.uint8).astype(np.int64) + BYTE_SHIFT for text in texts]
    tokens = np.stack([np.pad([*row, BYTE_SYMBOLS], (0, 60 - len(row))) for row in rows])  # an end symbol is no byte
    split = Tokens(torch.from_numpy(tokens), torch.from_numpy(label))
    predictor = Fitted(split, 2, word_counts, LogRatioRegression(), 300)
    assert accuracy(predictor, Tokens(split.tokens[300:], split.label[300:])) == 1 and predictor.saw == "300 examples"
    words = texts[0].split()
    assert word_counts(tokens[:1]).nnz == len({*words, *itertools.pairwise(words)})
