"""Kendall's tau and its permutation test."""

import itertools

import numpy as np
import pytest

from harness.report.stats.ordering import agreement, kendall

THEIRS = {"a": 1.0, "b": 2.0, "c": 3.0, "x": 9.0}


def test_kendall_by_hand_and_by_scipy():
    from scipy.stats import kendalltau

    # order 1 2 3 4 against 1 3 2 4: 5 pairs agree, 1 does not: (5 - 1) / 6
    assert kendall(np.array([[1.0, 3.0, 2.0, 4.0]]), np.array([1.0, 2.0, 3.0, 4.0]))[0] == pytest.approx(4 / 6)
    # one tie on our side: 5 / sqrt(5 * 6)
    assert kendall(np.array([[1.0, 2.0, 2.0, 4.0]]), np.array([1.0, 2.0, 3.0, 4.0]))[0] == pytest.approx(5 / 30**0.5)
    generator = np.random.default_rng(7)
    draws, published = generator.integers(0, 5, (50, 8)).astype(float), generator.integers(0, 5, 8).astype(float)
    assert kendall(draws, published) == pytest.approx([kendalltau(draw, published).statistic for draw in draws])


def test_agreement_and_its_test():
    clear = agreement({"a": 0.1, "b": 0.5, "c": 0.8, "own": 0.0}, THEIRS)
    # of the 6 orders of three rows one agrees and one is the reverse
    assert (clear.tau, clear.rows) == (1.0, 3) and clear.p == pytest.approx(2 / 6)
    assert agreement({"a": 3.0, "b": 2.0, "c": 1.0}, THEIRS).tau == -1.0
    assert agreement({"a": 1.0, "b": 2.0}, THEIRS).note == "takes at least 3 shared rows; there are 2"
    assert agreement({"a": 1.0, "b": 1.0, "c": 1.0}, THEIRS).tau is None


def test_ties_are_drawn_and_the_same_every_time():
    ours = {"a": 1.0, "b": 1.0, "c": 3.0, "d": 4.0}
    theirs = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
    drawn = agreement(ours, theirs)
    taus = [
        kendall(np.array([order]), np.array([1.0, 2.0, 3.0, 4.0]))[0] for order in itertools.permutations(ours.values())
    ]
    as_far = np.mean([abs(tau) >= drawn.tau - 1e-9 for tau in taus])
    assert drawn.p == pytest.approx(as_far) and drawn == agreement(ours, theirs)


@pytest.mark.parametrize("levels, tables, most", [(None, 1500, 0.06), (6, 60, 0.1)], ids=["no ties", "ties"])
def test_unrelated_orders_are_found_related_in_one_of_twenty(levels, tables, most):
    """The rate of false positives of tau on random tables, at 5 %."""
    generator, significant = np.random.default_rng(3), []
    for _ in range(tables):
        draw = generator.random((2, 10)) if levels is None else generator.integers(0, levels, (2, 10)).astype(float)
        ours, theirs = (dict(enumerate(side)) for side in draw)
        result = agreement({f"{row}": v for row, v in ours.items()}, {f"{row}": v for row, v in theirs.items()})
        significant.append(result.p is not None and result.p < 0.05)
    assert 0.01 < np.mean(significant) < most


def test_an_order_that_agrees_is_found():
    generator = np.random.default_rng(3)
    rows = {f"{row}": float(row) for row in range(10)}
    hits = [agreement({r: v + generator.normal(0, 1) for r, v in rows.items()}, rows).p < 0.05 for _ in range(50)]
    assert np.mean(hits) > 0.9
