"""Ranks over several tasks: by hand, against all draws of a small bootstrap, and what is ranked at all."""

import itertools
from collections import Counter

import numpy as np
import pytest

from harness.report.pages.ranking import MIN_ROWS, complete_block
from harness.report.stats.ranks import DRAWS, bootstrap, interquartile_mean, rank_rows

SCORES = np.array([[[0.0, 1.0], [5.0, 9.0]], [[2.0, 2.0], [3.0, 0.0]], [[2.5, 1.0], [1.5, 7.0]]])  # (R 3, T 2, S 2)


def middle(values):
    """The interquartile mean, by its definition."""
    left = sorted(values)[len(values) // 4 : len(values) - len(values) // 4]
    return sum(left) / len(left)


def all_draws(of_row):
    """{interquartile mean: its probability} over every draw of tasks, then of seeds within each of them."""
    counts, tasks, seeds = Counter(), len(of_row), len(of_row[0])
    for drawn in itertools.product(range(tasks), repeat=tasks):
        for chosen in itertools.product(itertools.product(range(seeds), repeat=seeds), repeat=tasks):
            sample = [of_row[task][seed] for task, indices in zip(drawn, chosen, strict=True) for seed in indices]
            counts[round(middle(sample), 9)] += 1
    total = sum(counts.values())
    return {value: count / total for value, count in counts.items()}


def test_the_interquartile_mean_drops_a_quarter_at_each_end():
    assert interquartile_mean(np.array([9.0, 1.0, 2.0, -50.0])) == 1.5
    assert interquartile_mean(np.array([1.0, 2.0, 6.0])) == 3.0  # a quarter of three is none
    values = np.random.RandomState(1).rand(3, 21)
    assert interquartile_mean(values) == pytest.approx([middle(row) for row in values])


def test_rows_are_ranked_by_hand():
    """0, 1, 5, 9 -> (1 + 5) / 2; 0, 2, 2, 3 -> 2; 1, 1.5, 2.5, 7 -> 2."""
    ranked = rank_rows(["a", "c", "b"], SCORES)
    assert [(row.row, row.mean, row.rank) for row in ranked] == [("a", 3.0, 1), ("b", 2.0, 2), ("c", 2.0, 2)]
    for row in ranked:
        assert row.interval[0] <= row.mean <= row.interval[1] and row.ranks[0] <= row.rank <= row.ranks[1]


@pytest.mark.parametrize("row", range(3))
def test_the_bootstrap_is_that_of_all_draws(row):
    exact, drawn = all_draws(SCORES[row].tolist()), bootstrap(SCORES, 20_000)[row].round(9).tolist()
    counts = Counter(drawn)
    assert set(counts) <= set(exact)
    assert all(abs(counts[value] / 20_000 - p) < 0.015 for value, p in exact.items())


def test_intervals_are_those_of_all_draws():
    ranked = {row.row: row for row in rank_rows(["a", "b", "c"], SCORES)}
    for name, of_row in zip("abc", SCORES.tolist(), strict=True):
        exact = sorted(all_draws(of_row).items())
        below = np.cumsum([p for _, p in exact])
        low, high = (exact[int(np.searchsorted(below, edge))][0] for edge in (0.025, 0.975))
        assert ranked[name].interval == pytest.approx((low, high), abs=1e-9)


def test_all_rows_have_the_same_draws():
    """A row that is better by a little in each task and seed is better in every draw."""
    noisy = np.random.RandomState(2).rand(1, 5, 3)
    ranked = rank_rows(["worse", "better"], np.concatenate([noisy, noisy + 0.001]))
    assert [(row.row, row.ranks) for row in ranked] == [("better", (1, 1)), ("worse", (2, 2))]
    assert ranked[0].interval[0] < ranked[1].interval[1]  # although their intervals overlap


def test_seeds_alone_and_tasks_alone_make_an_interval():
    of_seeds, of_tasks = np.array([[[0.0, 1.0]] * 3]), np.array([[[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]])
    for scores in (of_seeds, of_tasks):
        (row,) = rank_rows(["a"], scores)
        assert row.interval[0] < row.mean < row.interval[1] and row.ranks == (1, 1)
    assert bootstrap(of_seeds).shape == (1, DRAWS)


def test_the_same_scores_have_the_same_ranks():
    scores = np.random.RandomState(3).rand(4, 6, 3)
    assert rank_rows("abcd", scores) == rank_rows("abcd", scores.copy())


@pytest.mark.parametrize(
    "scores", [np.zeros((2, 3)), np.zeros((3, 1, 1)), np.full((2, 1, 1), np.nan), np.zeros((2, 0, 3))]
)
def test_scores_that_cannot_be_ranked_are_refused(scores):
    with pytest.raises(ValueError, match=r"scores are|a score is missing"):
        rank_rows(["a", "b"], scores)


def test_the_largest_gap_is_dropped_first():
    rows = set("abcdef")
    complete = {"one": rows, "two": rows - {"f"}, "three": set("abcde"), "few": {"a", "b"}}
    assert complete_block(complete) == (["one", "two", "three"], list("abcde"))
    assert complete_block({"one": rows, "two": set("ab")}) == ([], [])  # no block of two columns has three rows
    assert complete_block({"one": rows}) == complete_block({}) == ([], [])
    assert complete_block({"one": rows, "two": rows}) == (["one", "two"], sorted(rows))


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
