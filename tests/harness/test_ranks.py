"""Ranks over abilities: means by hand, the bootstrap against all draws, and which rows and columns are complete."""

import itertools
from collections import Counter

import numpy as np
import pytest

from harness.report.pages.ranking import MIN_ROWS, complete_block
from harness.report.stats.ranks import (
    SeedScores,
    bootstrap,
    interquartile_mean,
    rank_rows,
    ranks_without_one,
)

SCORES = np.array([[[0.0, 1.0], [5.0, 9.0]], [[2.0, 2.0], [3.0, 0.0]], [[2.5, 1.0], [1.5, 7.0]]])  # (R 3, T 2, S 2)


def of_seeds(scores, abilities=None, control=0.0, reference=1.0):
    """Scores (R, T, S) whose control and reference are the same in every seed, 0 and 1 unless given."""
    shape = np.shape(scores)[1:]
    columns = tuple(f"t{number}" for number in range(shape[0]))
    ends = (np.broadcast_to(np.asarray(end, dtype=float), shape) for end in (control, reference))
    return SeedScores(columns, tuple(abilities or columns), scores, *ends)


def middle(values):
    """The interquartile mean, by its definition."""
    left = sorted(values)[len(values) // 4 : len(values) - len(values) // 4]
    return sum(left) / len(left)


def all_draws(of_row, control, reference):
    """{mean: its probability} over every draw of columns that are abilities, then of seeds within each of them."""
    counts, tasks, seeds = Counter(), len(of_row), len(of_row[0])
    samples = list(itertools.product(range(seeds), repeat=seeds))

    def means(values):
        return [sum(values[seed] for seed in sample) / seeds for sample in samples]

    drawn_scores = [
        [
            (value - low) / (high - low)
            for value in means(of_row[task])
            for low in means(control[task])
            for high in means(reference[task])
        ]
        for task in range(tasks)
    ]
    for drawn in itertools.product(range(tasks), repeat=tasks):
        for scores in itertools.product(*(drawn_scores[task] for task in drawn)):
            counts[round(sum(scores) / tasks, 9)] += 1
    total = sum(counts.values())
    return {value: count / total for value, count in counts.items()}


def test_the_interquartile_mean_drops_a_quarter_at_each_end():
    assert interquartile_mean(np.array([9.0, 1.0, 2.0, -50.0])) == 1.5
    assert interquartile_mean(np.array([1.0, 2.0, 6.0])) == 3.0  # a quarter of three is none
    values = np.random.RandomState(1).rand(3, 21)
    assert interquartile_mean(values) == pytest.approx([middle(row) for row in values])


def test_rows_are_ranked_by_hand():
    """The means of a, b, c are 15 / 4, 7 / 4 and 12 / 4."""
    ranked = rank_rows(["a", "b", "c"], of_seeds(SCORES))
    assert [(row.row, row.mean, row.rank) for row in ranked] == [("a", 3.75, 1), ("c", 3.0, 2), ("b", 1.75, 3)]
    assert [(row.worst, row.worst_column) for row in ranked] == [(0.5, "t0"), (1.75, "t0"), (1.5, "t1")]
    assert [row.middle for row in ranked] == [3.0, 2.0, 2.0]  # of 0, 1, 5, 9; of 1, 1.5, 2.5, 7; of 0, 2, 2, 3
    for row in ranked:
        assert row.interval[0] <= row.mean <= row.interval[1] and row.ranks[0] <= row.rank <= row.ranks[1]


def test_equal_means_share_a_rank():
    ranked = rank_rows(["b", "a", "c"], of_seeds([[[1.0], [2.0]], [[2.0], [1.0]], [[0.0], [0.0]]]))
    assert [(row.row, row.rank) for row in ranked] == [("a", 1), ("b", 1), ("c", 3)]


def test_an_ability_counts_once_however_many_columns_it_has():
    scores = [[[0.2], [0.4], [0.6], [1.0]], [[0.5], [0.5], [0.5], [0.75]]]
    names = ["recall", "recall", "recall", "copy"]
    together = {row.row: row for row in rank_rows(["a", "b"], of_seeds(scores, names))}
    alone = {row.row: row for row in rank_rows(["a", "b"], of_seeds(scores))}
    assert (together["a"].mean, together["b"].mean) == (0.7, 0.625)  # (0.4 + 1) / 2, (0.5 + 0.75) / 2
    assert (alone["a"].mean, alone["b"].mean) == (0.55, 0.5625)
    assert (together["a"].rank, alone["a"].rank) == (1, 2)
    assert together["a"].rank_without == {"recall": 1, "copy": 2} and together["a"].worst == 0.2


def test_a_score_is_scaled_by_control_and_reference():
    scores = of_seeds([[[40.0, 60.0], [9.0, 9.0]]], control=[[10.0, 30.0], [12.0, 12.0]], reference=[[90, 110], [8, 8]])
    assert scores.scaled.tolist() == [[[0.25, 0.5], [0.75, 0.75]]]
    assert rank_rows(["a"], scores)[0].mean == 0.5625


def test_the_bootstrap_is_that_of_all_draws():
    control, reference = [[-1.0, 0.0], [0.0, 0.0]], [[9.0, 12.0], [10.0, 10.0]]
    exact = sorted(all_draws(SCORES[1].tolist(), control, reference).items())
    drawn = np.sort(bootstrap(of_seeds(SCORES, control=control, reference=reference), 20_000)[1].round(9))
    assert set(drawn.tolist()) <= {value for value, _ in exact}
    below = np.searchsorted(drawn, [value for value, _ in exact], side="right") / len(drawn)
    assert np.abs(below - np.cumsum([p for _, p in exact])).max() < 0.015


def test_columns_of_an_ability_are_drawn_within_it():
    """With one ability of two columns, each draw is the mean of two columns, drawn with replacement."""
    drawn = bootstrap(of_seeds([[[0.0], [1.0]]], ["one", "one"]), 20_000)[0]
    shares = {value: (drawn == value).mean() for value in (0.0, 0.5, 1.0)}
    assert shares == pytest.approx({0.0: 0.25, 0.5: 0.5, 1.0: 0.25}, abs=0.015)


def test_the_reference_has_an_interval_with_width():
    """Its seeds differ: the scale is as uncertain as the row. Its mean is 1 all the same."""
    reference, control = [[90.0, 100.0, 110.0], [50.0, 60.0, 40.0]], [[0.0, 5.0, -5.0], [0.0, 0.0, 0.0]]
    scores = of_seeds([reference, control], control=control, reference=reference)
    best, last = rank_rows(["reference", "control"], scores)
    assert (best.row, best.mean, last.mean) == ("reference", 1.0, 0.0)
    assert best.interval[0] < 0.95 and best.interval[1] > 1.05
    assert last.interval[0] < 0 < last.interval[1]
    fixed = rank_rows(["reference"], of_seeds([[[9.0, 9.0]]], control=1.0, reference=9.0))[0]
    assert fixed.interval == (1.0, 1.0)


def test_all_rows_have_the_same_draws():
    """A row that is better by a little in each task and seed is better in every draw."""
    noisy = np.random.RandomState(2).rand(1, 5, 3)
    ranked = rank_rows(["worse", "better"], of_seeds(np.concatenate([noisy, noisy + 0.001])))
    assert [(row.row, row.ranks) for row in ranked] == [("better", (1, 1)), ("worse", (2, 2))]
    assert ranked[0].interval[0] < ranked[1].interval[1]  # although their intervals overlap


def test_ranks_without_one_ability_by_hand():
    """The first row leads by its first ability alone. Without the second ability, the others are equal: 0.3."""
    of_ability = np.array([[1.0, 0.3, 0.5], [0.0, 0.9, 0.6], [0.2, 0.2, 0.4]])
    assert ranks_without_one(of_ability).tolist() == [[2, 1, 1], [1, 2, 2], [3, 2, 3]]
    assert ranks_without_one(of_ability[:, :1]).shape == (3, 0)  # nothing is left
    (row,) = rank_rows(["a"], of_seeds([[[1.0], [2.0]]], ["one", "one"]))
    assert row.rank_without == {}


@pytest.mark.parametrize(
    ("scores", "ends", "message"),
    [
        (np.zeros((2, 3)), {}, "scores are"),
        (np.zeros((2, 0, 3)), {}, "scores are"),
        (np.full((2, 1, 1), np.nan), {}, "a score is missing"),
        (np.zeros((2, 1, 1)), {"reference": 0.0}, "it has no scale"),
    ],
)
def test_scores_that_cannot_be_ranked_are_refused(scores, ends, message):
    with pytest.raises(ValueError, match=message):
        of_seeds(scores, **ends)


def test_the_largest_gap_is_dropped_first():
    rows = set("abcdef")
    complete = {"one": rows, "two": rows - {"f"}, "three": set("abcde"), "few": {"a", "b"}}
    assert complete_block(complete) == (["one", "two", "three"], list("abcde"))
    assert complete_block({"one": rows, "two": set("ab")}) == ([], [])  # no block of two columns has three rows
    assert complete_block({"one": rows}) == complete_block({}) == ([], [])
    assert complete_block({"one": rows, "two": rows}) == (["one", "two"], sorted(rows))


def test_a_block_keeps_columns_of_two_abilities():
    """Recall and noisy recall had ranked 23 rows of the union by themselves; four columns rank 10."""
    rows = set("abcdefgh")
    complete = {"recall": rows, "noisy recall": rows - {"h"}, "copy": set("abc"), "needle": set("abc")}
    assert complete_block(complete) == (["recall", "noisy recall"], list("abcdefg"))
    abilities = {"recall": "recall", "noisy recall": "recall"}
    assert complete_block(complete, abilities) == (list(complete), list("abc"))
    few = complete | {"copy": set("ab"), "needle": set("ab")}  # no block of two abilities has three rows
    assert complete_block(few, abilities) == (["recall", "noisy recall"], list("abcdefg"))
    alone = {name: complete[name] for name in abilities}
    assert complete_block(alone, abilities) == (["recall", "noisy recall"], list("abcdefg")), "there is no other"


def test_a_block_has_no_gap_and_nothing_can_be_added():
    generator = np.random.RandomState(4)
    for _ in range(50):
        complete = {f"t{i}": {f"r{j}" for j in range(7) if generator.rand() < 0.7} for i in range(5)}
        columns, rows = complete_block(complete)
        if not rows:
            continue
        assert len(rows) >= MIN_ROWS and all(set(rows) <= complete[name] for name in columns)
        assert columns == [name for name in complete if set(rows) <= complete[name]]
        assert set(rows) == set.intersection(*(complete[name] for name in columns))
