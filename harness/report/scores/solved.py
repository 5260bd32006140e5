"""Columns whose runs solve a task or fail: how many runs of a row do, its interval, and a test over all rows.

A score with two limits, such as an accuracy, may be near its floor with one seed and near its ceiling with the next.
Such a column has few runs between the two; where many rows have a score of their own there, one row whose seeds differ
does not make it one.
Its mean then has no useful t interval, and few seeds have no useful t test. A run counts as solved if its score reaches
a threshold: that of the table, or half way between control and reference. What is compared are shares of solved runs.

    interval   of a share: Wilson's with continuity correction (Newcombe 1998, method 4). Without the correction it
               misses a share of 0.8 in 10 % of samples of 3 runs
    pair       Fisher's exact test
    reference  each row is tested against it by an exact closed test (`exact_tests`): a permutation of all rows would
               treat equal rows as if they differed as much as the others do
    all pairs  Holm's method. Where another row is the best one, pairs with it are a second family, and p counts twice
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.report.scores.exact_tests import closed_test, fisher
from harness.report.scores.paired import Key, Pair, holm
from harness.report.scores.scores import Score
from harness.report.stats.seeds import LEVEL

SOLVED = "solved runs"  # the pairing of such a test
LEAST_DISTANCE = 0.1  # of the scale: below it, control and reference are no floor and no ceiling
LARGEST_SPREAD = 1 / 3  # of the distance between floor and ceiling: a row with more, on both sides, solves or fails
MIDDLE = (1 / 3, 2 / 3)  # from the lowest to the highest run: one between them neither solves nor fails
MOST_BETWEEN = 0.1  # of all runs: with more of them, means say more than shares of solved runs


@dataclass(frozen=True)
class SolvedRuns:
    """`counts`: row -> its solved runs and all its runs; `threshold`: in the unit of the column.

    `between`: what the threshold is half way between; empty if the table states the threshold.
    """

    threshold: float
    between: str
    counts: Mapping[Key, tuple[int, int]]
    flags: Mapping[Key, Mapping[int, bool]]

    def share(self, key: Key) -> float:
        solved, runs = self.counts[key]
        return solved / runs

    def interval(self, key: Key) -> tuple[float, float]:
        """The 95 % interval of the share of solved runs, from 0 to 1."""
        return share_interval(*self.counts[key])

    def text(self, key: Key) -> str:
        """`1/3 solved, 2 to 87 %`"""
        low, high = (f"{100 * end:.0f}" for end in self.interval(key))
        return f"{self.counts[key][0]}/{self.counts[key][1]} solved, {low} to {high} %"


def solved_runs(
    scores: Sequence[Score],
    control: Score | None,
    reference: Score | None,
    higher: bool,
    solved_from: float | None = None,
) -> SolvedRuns | None:
    """The solved runs of a column in which some row solves and fails; None for any other column.

    `solved_from`: the threshold that the table states.
    """
    low, high = scores[0].limits
    if not math.isfinite(high - low):
        return None
    ends, between = ((low, high) if higher else (high, low)), "the limits of the scale"
    if control and reference:
        distance = (reference.estimate.mean - control.estimate.mean) * (1 if higher else -1)
        if distance >= LEAST_DISTANCE * (high - low):
            ends, between = (control.estimate.mean, reference.estimate.mean), "control and reference"
    threshold, distance = sum(ends) / 2, abs(ends[1] - ends[0])
    if solved_from is not None:
        threshold, between = solved_from, ""
    flags = {
        score.key: {seed: value >= threshold if higher else value <= threshold for seed, value in score.by_seed.items()}
        for score in scores
    }
    # some row has seeds that are far apart and on both sides of the threshold
    split = [score.by_seed.values() for score in scores if len(set(flags[score.key].values())) == 2]
    if not any(max(values) - min(values) > LARGEST_SPREAD * distance for values in split):
        return None
    runs = [value for score in scores for value in score.by_seed.values()]
    unclear = sum(MIDDLE[0] < (value - min(runs)) / (max(runs) - min(runs)) < MIDDLE[1] for value in runs)
    if solved_from is None and unclear > MOST_BETWEEN * len(runs):
        return None
    counts = {key: (sum(by_seed.values()), len(by_seed)) for key, by_seed in flags.items()}
    return SolvedRuns(threshold, between, counts, flags)


@functools.cache
def share_interval(solved: int, runs: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share, with continuity correction (Newcombe 1998)."""
    from scipy.stats import binomtest  # takes half a second to import

    interval = binomtest(solved, runs).proportion_ci(LEVEL, method="wilsoncc")
    return float(interval.low), float(interval.high)


def compare_solved(pairs: Sequence[Pair], runs: SolvedRuns, reference: Key | None, best: Key | None) -> list[Pair]:
    """The pairs of a column with the tests of their solved runs; differences and intervals stay those of the scores."""
    single = [fisher(*(runs.counts[key] for key in pair.rows)) for pair in pairs]
    others = {key for pair in pairs if pair.is_hypothesis and reference in pair.rows for key in pair.rows} - {reference}
    closed = closed_test(runs.counts[reference], (runs.counts[key] for key in others)) if others else {}
    families = 1 if reference == best or not others else 2
    tested = []
    for pair, p, p_all in zip(pairs, single, holm(single), strict=True):
        other = next(iter(others.intersection(pair.rows)), None) if reference in pair.rows else None
        corrected = p_all if other is None else closed[runs.counts[other]]
        p_holm = min(1.0, families * corrected) if pair.is_hypothesis else None
        tested.append(replace(pair, p=p, p_holm=p_holm, p_all=p_all, pairing=SOLVED))
    return tested
