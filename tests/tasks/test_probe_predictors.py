"""Simple predictors of the probes, by examples made by hand, and their scores on generated ones."""

import numpy as np
import pytest
import torch

from tasks.probe.capacity import Capacity
from tasks.probe.compression import Compression
from tasks.probe.extrapolation import Extrapolation
from tasks.probe.memorization import Memorization
from tasks.probe.needle import Needle
from tasks.probe.noisy_recall import NoisyRecall
from tasks.probe.predictors import QueryTable, first_value, last_value, nearest_to_mean_place
from tasks.probe.recall import Recall
from tasks.probe.selective_copy import SelectiveCopy
from tasks.probe.state_tracking import StateTracking

SIZES = {"train": 3000, "val": 100, "test": 1000}
COUNTING = {"most_frequent_value", "first_value", "last_value"}
VALUES = range(4, 8)
FACTS = torch.tensor([[1, 6, 9, 9, 2, 5, 3, 6], [9, 9, 1, 7, 0, 0, 2, 4], [1, 5, 2, 4, 1, 5, 2, 4]])


def loaded(make, **settings):
    task = make(**SIZES | settings)
    task.load()
    return task


def accuracy(task, name):
    metrics, split = task.metrics(), task.split("test")
    task.score(task.baselines(500)[name](), split.batch(range(len(split))), metrics)
    return float(metrics.compute()["acc"])


def test_the_first_and_the_last_value_are_no_keys_and_no_noise():
    assert first_value(FACTS, VALUES).tolist() == [6, 7, 5]
    assert last_value(FACTS, VALUES).tolist() == [6, 4, 4]


def test_the_value_nearest_to_the_mean_place():
    """Two of 8 places have the means 3 and 6, three have 2.25, 4.5 and 6.75."""
    facts = torch.tensor([[0, 0, 0, 4, 0, 0, 0, 5], [6, 0, 0, 0, 0, 4, 7, 0]])
    assert nearest_to_mean_place(facts, VALUES, 2).tolist() == [[4, 4], [6, 4]]
    assert nearest_to_mean_place(facts, VALUES, 3).tolist() == [[4, 4, 5], [6, 4, 7]]


def test_a_table_of_queries_has_the_most_frequent_answer_of_each():
    pieces = [
        (np.array([[1, 0, 2], [1, 3, 3]]), np.array([[6, -100, 5], [7, 4, -100]])),
        (np.array([[1, 2, 2]]), np.array([[7, 4, 5]])),
    ]
    table = QueryTable(pieces, 8, 6)
    answers = table(torch.tensor([[9, 9]]).clamp(max=7), torch.tensor([[1, 2], [3, 0]])).argmax(2)
    assert answers.tolist() == [[7, 5], [4, 6]], "token 0 was never asked, so its answer is the fallback"
    assert table.saw == "3 examples"


@pytest.mark.parametrize(
    ("make", "settings", "names"),
    [
        (Recall, {"length": 40, "pairs": 4, "vocabulary": 20}, COUNTING | {"answer_of_query"}),
        (Capacity, {"length": 40, "pairs": (2, 4), "scored": (4,), "vocabulary": 20}, COUNTING | {"answer_of_query"}),
        (StateTracking, {"length": 9}, {"last_1_elements", "last_2_elements", "last_3_elements"}),
        (NoisyRecall, {"length": 44, "pairs": 4, "vocabulary": 26}, COUNTING | {"answer_of_query"}),
        (Extrapolation, {"length": 22, "pairs": 4, "vocabulary": 26}, COUNTING | {"answer_of_query"}),
        (SelectiveCopy, {"length": 30, "copies": 5, "vocabulary": 12}, COUNTING | {"nearest_to_mean_place"}),
        (Compression, {"length": 12, "vocabulary": 9}, COUNTING),
        (Memorization, {"length": 16, "vocabulary": 21}, set()),
        (Needle, {"length": 30, "values": 5, "distances": (1, 9)}, set()),
    ],
)
def test_a_probe_whose_solution_is_counting_has_no_counting_predictor(make, settings, names):
    task = loaded(make, **settings, test=100)
    assert task.baselines(500).keys() == names | {"majority_answer"}
    for pattern in task.patterns - {task.pattern}:
        other = loaded(make, **settings, test=100, pattern=pattern)
        assert all(accuracy(other, name) == accuracy(task, name) for name in other.baselines()), pattern


def test_predictors_score_what_counting_can_score():
    """One of 4 pairs is asked for: 1/4, and by luck 1 of 10 for each of the others, 32.5 %."""
    recall = loaded(Recall, length=40, pairs=4, vocabulary=20)
    assert accuracy(recall, "first_value") == pytest.approx(32.5, abs=2)
    assert accuracy(recall, "last_value") == pytest.approx(32.5, abs=2)
    assert 35 < accuracy(recall, "most_frequent_value") < 55, "two keys may have one value"
    assert accuracy(recall, "answer_of_query") == pytest.approx(recall.chance, abs=2), "keys have no value of their own"
    copy = loaded(SelectiveCopy, length=30, copies=5, vocabulary=12)
    assert accuracy(copy, "first_value") == pytest.approx(20 + 80 / 10, abs=2)
    assert 45 < accuracy(copy, "nearest_to_mean_place") < 75


@pytest.mark.parametrize(("group", "elements"), [("parity", 2), ("s3", 6), ("a5", 60)])
def test_the_last_elements_tell_the_product_at_the_first_places_only(group, elements):
    """The first k of 16 places are right, and of the others one in as many as there are elements."""
    task = StateTracking(**SIZES | {"train": 40_000}, group=group, length=16)
    task.load()
    for count in (1, 2):
        expected = 100 * (count + (16 - count) / elements) / 16
        metrics, split = task.metrics(), task.split("test")
        scores = task.score(task.baselines()[f"last_{count}_elements"](), split.batch(range(1000)), metrics)
        assert float(metrics.compute()["acc"]) == pytest.approx(expected, abs=1.5)
        assert float(scores["whole"].max()) <= 100 and scores["whole"].mean() < 1
