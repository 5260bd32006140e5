"""Tiers of a column: what the tests against the best row and against the reference say of each row.

    1   the best row, and the rows that nothing keeps from it: no test separates them, their interval holds the best
        mean, and they are at most half of |reference - control| away
    2   a test separates the row from the best row
    3   a test separates the row from the best row, and from the reference, which is better

A row that no test separates from the best row is not thereby as good. Where its interval or its distance speaks
against it, it has no tier: the seeds are too few to tell (low power).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.report.scores.paired import Key, Pair
from harness.report.scores.scores import Score

LOW_POWER = "not separated (low power)"
LARGEST_SHARE = 0.5  # of |reference - control|: the largest distance from the best row within its tier


@dataclass(frozen=True)
class Tiers:
    """`numbers`: row -> 1, 2 or 3; `low_power`: the rows that no test separates from the best row, but that differ."""

    numbers: Mapping[Key, int] = field(default_factory=dict)
    low_power: tuple[Key, ...] = ()


def find_tiers(
    ranked: Sequence[Score], pairs: Sequence[Pair], reference: Score | None = None, scale: float | None = None
) -> Tiers:
    """The tiers of rows from the best down. Rows without a test have none.

    `scale`: |reference - control|, None if unknown.
    """
    by_rows = {frozenset(pair.rows): pair for pair in pairs}
    tested = {key for pair in pairs for key in pair.rows}
    rows = [score for score in ranked if score.key in tested]
    if not rows:
        return Tiers()
    best, numbers, low_power = rows[0], {rows[0].key: 1}, []
    for score in rows[1:]:
        if by_rows[frozenset((best.key, score.key))].is_resolved:
            test = by_rows.get(frozenset((reference.key, score.key))) if reference else None
            is_behind = test is not None and test.is_resolved and reference is not best
            numbers[score.key] = 3 if is_behind and rows.index(score) > rows.index(reference) else 2
        elif _is_near(score, best, scale):
            numbers[score.key] = 1
        else:
            low_power.append(score.key)
    return Tiers(numbers, tuple(low_power))


def _is_near(score: Score, best: Score, scale: float | None) -> bool:
    """Whether the interval of a row holds the best mean, at most half of `scale` away."""
    mean = best.estimate.mean
    low, high = score.estimate.interval
    near = scale is None or abs(score.estimate.mean - mean) <= LARGEST_SHARE * scale
    return low <= mean <= high and near
