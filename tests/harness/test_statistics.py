"""Mean, interval, ordering and verdict, against hand computation and SciPy."""

import numpy as np
import pytest

from harness.report.statistics import Agreement, Estimate, agreement, estimate, intervals_are_disjoint, kendall, verdict


def test_statistics_are_the_hand_computed_ones():
    # 61.0, 61.5, 62.0: s = 0.5, t = 4.302653 for two degrees of freedom, over the root of 3
    three = estimate([61.0, 61.5, 62.0])
    assert three.mean == pytest.approx(61.5) and three.n == 3
    assert three.half_width == pytest.approx(4.302653 * 0.5 / 3**0.5, rel=1e-6) == pytest.approx(1.242069, rel=1e-5)
    # 40, 42: s = sqrt 2, t = 12.706205 for one
    assert estimate([40.0, 42.0]).half_width == pytest.approx(12.706205, rel=1e-6)
    assert estimate([5.0]) == Estimate(5.0, None, 1) and estimate([5.0]).interval is None
    with pytest.raises(ValueError, match="no values"):
        estimate([])


def test_kendall_by_hand_and_by_scipy():
    from scipy.stats import kendalltau

    # order 1 2 3 4 against 1 3 2 4: 5 pairs agree, 1 does not: (5 - 1) / 6
    assert kendall(np.array([[1.0, 3.0, 2.0, 4.0]]), np.array([1.0, 2.0, 3.0, 4.0]))[0] == pytest.approx(4 / 6)
    # one tie on our side: 5 / sqrt(5 * 6)
    assert kendall(np.array([[1.0, 2.0, 2.0, 4.0]]), np.array([1.0, 2.0, 3.0, 4.0]))[0] == pytest.approx(5 / 30**0.5)
    generator = np.random.default_rng(7)
    draws, other = generator.integers(0, 5, (50, 8)).astype(float), generator.integers(0, 5, 8).astype(float)
    assert kendall(draws, other) == pytest.approx([kendalltau(draw, other).statistic for draw in draws])


def test_agreement_and_its_interval():
    theirs = {"a": 1.0, "b": 2.0, "c": 3.0, "x": 9.0}
    clear = agreement({"a": [0.1, 0.2], "b": [0.5, 0.6], "c": [0.8, 0.9], "own": [0.0, 0.0]}, theirs)
    assert clear == Agreement(1.0, (1.0, 1.0), 3)
    # b's seeds lie on both sides of a and c: a draw of two low ones (1/4 of draws) costs a pair, of two high ones too
    wide = agreement({"a": [0.3, 0.3], "b": [0.1, 0.9], "c": [0.7, 0.7]}, theirs)
    assert wide.tau == 1.0 and wide.interval == pytest.approx((1 / 3, 1.0))
    assert wide == agreement({"a": [0.3, 0.3], "b": [0.1, 0.9], "c": [0.7, 0.7]}, theirs)
    assert agreement({"a": [1.0, 1.0], "b": [2.0, 2.0]}, theirs).note == "takes at least 3 shared rows; there are 2"
    single = agreement({"a": [3.0], "b": [2.0, 2.0], "c": [1.0, 1.0]}, theirs)
    assert (single.tau, single.interval) == (-1.0, None) and "takes at least 2 seeds" in single.note
    assert agreement({"a": [1.0], "b": [1.0], "c": [1.0]}, theirs).tau is None


@pytest.mark.parametrize(
    "mean, half, word",
    [
        (61.0, None, "reproduced"),
        (60.0, None, "close"),
        (62.0, None, "close"),
        (57.9, None, "off"),
        (58.0, None, "close"),
        (64.0, None, "close"),
        (64.1, 0.5, "off"),
        (59.5, 2.0, "reproduced"),  # the paper's 61.0 lies inside
        (59.5, 1.4, "close"),
        (57.0, 30.0, "off"),  # a wide interval buys no more than the tolerance
    ],
)
def test_verdict(mean, half, word):
    tolerance = {"reproduced": 0.9, "close": 3.0}
    assert verdict(61.0, Estimate(mean, half, 3), tolerance) == word
    assert verdict(61.0, None, tolerance) == "not run"


def test_verdict_is_decided_by_the_printed_digits():
    assert verdict(61.95, Estimate(60.95, None, 1), {"reproduced": 1.0, "close": 3.0}) == "reproduced"


def test_disjoint_needs_two_intervals():
    assert intervals_are_disjoint(Estimate(2.0, 0.4, 2), Estimate(1.0, 0.5, 2))
    assert not intervals_are_disjoint(Estimate(2.0, 0.5, 2), Estimate(1.0, 0.5, 2))
    assert not intervals_are_disjoint(Estimate(2.0, None, 1), Estimate(1.0, 0.1, 2))
