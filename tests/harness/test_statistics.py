"""Mean, interval and verdict, against hand computation."""

import pytest

from harness.report.stats.seeds import Estimate, estimate, verdict


def test_statistics_are_the_hand_computed_ones():
    # 61.0, 61.5, 62.0: s = 0.5, t = 4.302653 for two degrees of freedom, over the root of 3
    three = estimate([61.0, 61.5, 62.0])
    assert three.mean == pytest.approx(61.5) and three.n == 3
    assert three.half_width == pytest.approx(4.302653 * 0.5 / 3**0.5, rel=1e-6) == pytest.approx(1.242069, rel=1e-5)
    # 1, 2, 3, 4: s = sqrt(5 / 3), t = 3.182446 for three
    assert estimate([1.0, 2.0, 3.0, 4.0]).half_width == pytest.approx(3.182446 * (5 / 3) ** 0.5 / 2, rel=1e-6)
    with pytest.raises(ValueError, match="no values"):
        estimate([])


def test_fewer_than_three_seeds_have_no_interval():
    assert estimate([40.0, 42.0]) == Estimate(41.0, None, 2) and estimate([40.0, 42.0]).interval is None
    assert estimate([5.0]) == Estimate(5.0, None, 1) and estimate([5.0]).interval is None


@pytest.mark.parametrize(
    "mean, half, word",
    [
        (61.0, None, "reproduced"),
        (62.0, None, "close"),
        (57.9, None, "off"),
        (64.1, 0.5, "off"),
        (59.5, 2.0, "reproduced"),  # the paper's 61.0 lies inside
        (59.5, 1.4, "close"),
        (57.0, 30.0, "off"),  # a wide interval buys no more than the tolerance
        (59.5, None, "close"),  # our own noise is not known
        (60.2, 0.01, "reproduced"),  # a small noise of ours does not narrow it
    ],
)
def test_a_verdict_weighs_our_noise(mean, half, word):
    assert verdict(61.0, Estimate(mean, half, 3), {"reproduced": 0.9, "close": 3.0}) == word


def test_a_verdict_is_decided_by_the_printed_digits_and_takes_a_run():
    assert verdict(61.0, None, {"reproduced": 0.9, "close": 3.0}) == "not run"
    assert verdict(61.95, Estimate(60.95, None, 1), {"reproduced": 1.0, "close": 3.0}) == "reproduced"
