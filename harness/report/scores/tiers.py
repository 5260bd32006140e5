"""Tiers of a column: what the tests against the best row and against the reference say of each row.

    1   the best row, and the rows that nothing keeps from it: no test separates them, their interval holds the best
        mean, and they are at most a tenth of |reference - control| away
    2   a test separates the row from the best row
    3   a test separates the row from the best row, and from the reference, which is better

A row that no test separates from the best row is not thereby as good. Where its interval or its distance speaks
against it, it has no tier: the seeds are too few to tell (low power).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from harness.report.scores.paired import Key, Pair
from harness.report.scores.scores import Score
from harness.report.scores.solved import SolvedRuns

LOW_POWER = "not separated (low power)"
LARGEST_SHARE = 0.1  # of |reference - control|: the largest distance from the best row within its tier


class Tiers(NamedTuple):
    """`numbers`: row -> 1, 2 or 3; `low_power`: the rows that no test separates from the best row, but that differ."""

    numbers: Mapping[Key, int]
    low_power: tuple[Key, ...]


def find_tiers(
    ranked: Sequence[Score],
    pairs: Sequence[Pair],
    best: Score | None,
    reference: Score | None = None,
    scale: float | None = None,
    runs: SolvedRuns | None = None,
) -> Tiers:
    """The tiers of rows from the best mean down, by their tests against `best`. Rows without a test have none.

    `scale`: |reference - control|, None if unknown. `runs`: the solved runs, if shares of them are compared.
    """
    by_rows = {frozenset(pair.rows): pair for pair in pairs}
    tested = {key for pair in pairs for key in pair.rows}
    rows = [score for score in ranked if score.key in tested and best is not None]
    numbers: dict[Key, int] = {}
    low_power: list[Key] = []
    for score in rows:
        if score is best:
            numbers[score.key] = 1
        elif by_rows[frozenset((best.key, score.key))].is_resolved:
            test = by_rows.get(frozenset((reference.key, score.key))) if reference else None
            is_behind = test is not None and test.is_resolved and reference in rows and reference is not best
            numbers[score.key] = 3 if is_behind and rows.index(score) > rows.index(reference) else 2
        elif _is_near(score, best, scale, runs):
            numbers[score.key] = 1
        else:
            low_power.append(score.key)
    return Tiers(numbers, tuple(low_power))


def _is_near(score: Score, best: Score, scale: float | None, runs: SolvedRuns | None) -> bool:
    """Whether the interval of a row holds the best mean, at most a tenth of `scale` away; of its share of solved runs,
    if these are compared, that of the best row, at most a tenth of all away."""
    if runs is None:
        ours, others, (low, high) = score.estimate.mean, best.estimate.mean, score.estimate.interval
    else:
        ours, others, (low, high), scale = *map(runs.share, (score.key, best.key)), runs.interval(score.key), 1
    return low <= others <= high and (scale is None or abs(ours - others) <= LARGEST_SHARE * scale)
