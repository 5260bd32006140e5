"""Differences between the rows of a column, paired by seed and by test example.

    d_si = mean + seed effect + example effect + residual      of two rows, seed s of S, test example i of n
    var  = (MS_seed + MS_example - MS_residual) / (S n)        of the mean difference

A hierarchical bootstrap (draw seeds, then examples) tends to this variance as the number of draws grows. The formula
avoids its two errors for few seeds: the factor (S - 1) / S, and the residual that it counts three times (Owen, The
pigeonhole bootstrap, 2007). The quantile is Student's with Satterthwaite's degrees of freedom.

Three to five seeds measure the noise between seeds badly, and a pair whose seeds agree by chance would look resolved.
A noise below the column's typical noise is therefore raised towards it, the more so the better the rows of the column
agree on their noise (Smyth 2004, known from limma); a larger noise stays as measured. Without scores of examples
(n = 1) and with fewer than MIN_ROWS rows this is the paired t test over seeds.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from scipy.special import digamma, polygamma, stdtr, stdtrit

from harness.report.scores.scores import Score
from harness.report.stats.seeds import LEVEL, MIN_SEEDS

MIN_ROWS = 4  # rows needed to estimate the typical noise of a column
MOST_FREEDOM = 100.0  # degrees of freedom that the column's typical noise may add
ROUNDING = 1e-12  # differences below this share of the largest score are rounding errors
BY_EXAMPLE, BY_SEED = "seed and example", "seed"
Key = tuple[str, str]  # row, setting


@dataclass(frozen=True)
class Pair:
    """`difference`: the first row's mean minus the second's, over `seeds`; `half_width` of its 95 % interval.

    `p_holm` is corrected for the hypotheses of the column, and None for a pair that is none of them. `p_all` is
    corrected for all pairs. A `half_width` of 0 means that no noise was measured.
    """

    rows: tuple[Key, Key]
    difference: float
    half_width: float
    p: float
    seeds: int
    pairing: str
    p_holm: float | None = None
    p_all: float = 1.0

    @property
    def is_hypothesis(self) -> bool:
        return self.p_holm is not None

    @property
    def is_resolved(self) -> bool:
        return self.p_holm is not None and self.p_holm < 1 - LEVEL


class SeedNoise(NamedTuple):
    """The typical variance between seeds in a column; `freedom`: how well its rows agree on it."""

    typical: float = 0.0
    freedom: float = 0.0


def compare_rows(
    scores: Sequence[Score],
    best: Key | None = None,
    reference: Key | None = None,
    searched: Collection[Key] | None = None,
) -> list[Pair]:
    """Every pair of rows with enough seeds.

    Pairs with the `best` row or the `reference` are the hypotheses, corrected together. Without both, all pairs are.
    `searched`: the only rows that hypotheses are about; None for all.
    """
    rows = [score for score in scores if len(score.by_seed) >= MIN_SEEDS]
    pairs = tested_pairs(combinations(rows, 2), seed_noise(rows))
    sides = {best, reference} - {None}
    tested = [
        index
        for index, pair in enumerate(pairs)
        if (not sides or sides & set(pair.rows)) and (searched is None or set(pair.rows) <= set(searched))
    ]
    # the scores choose the best row among all: counted once, its pairs err in 7.1 % of tables of 8 or 16 equal rows
    counts = [1 + (best != reference and best in pairs[index].rows) for index in tested]
    p_holm = dict(zip(tested, holm([pairs[index].p for index in tested], counts), strict=True))
    p_all = holm([pair.p for pair in pairs])
    if sum(counts) > len(pairs):  # of few rows: all pairs are fewer hypotheses
        p_holm = {index: p_all[index] for index in tested}
    return [replace(pair, p_holm=p_holm.get(index), p_all=p_all[index]) for index, pair in enumerate(pairs)]


def with_noise(scores: Sequence[Score]) -> list[Score]:
    """The rows of a column, whose intervals know the column's typical noise."""
    noise = seed_noise([score for score in scores if len(score.by_seed) >= MIN_SEEDS])
    return [replace(score, noise=noise) for score in scores]


def compare_with_baselines(scores: Sequence[Score], baselines: Sequence[Score]) -> list[Pair]:
    """Every row with every baseline, whose score is the same for each seed. Not corrected."""
    rows = [score for score in scores if len(score.by_seed) >= MIN_SEEDS]
    return tested_pairs(product(rows, baselines), seed_noise(rows))


def tested_pairs(pairs: Iterable[tuple[Score, Score]], noise: SeedNoise) -> list[Pair]:
    """The tests of the pairs with MIN_SEEDS common seeds on the same test examples, ordered by their rows."""
    tested = []
    for a, b in pairs:
        seeds = sorted(a.by_seed.keys() & b.by_seed.keys())
        if len(seeds) >= MIN_SEEDS and all(a.data.get(seed) == b.data.get(seed) for seed in seeds):
            tested.append(_tested(a, b, seeds, noise))
    return sorted(tested, key=lambda pair: pair.rows)


def seed_noise(scores: Sequence[Score]) -> SeedNoise:
    """A scaled inverse chi squared distribution fitted to the variances of the rows (Smyth 2004, section 6.2).

    A row with equal scores for all seeds does not count.
    """
    measured = [(_variance(score), len(score.by_seed) - 1) for score in scores]
    measured = [(variance, freedom) for variance, freedom in measured if variance > 0]
    if len(measured) < MIN_ROWS:
        return SeedNoise()
    variances, freedom = np.array(measured).T
    logs = np.log(variances) - digamma(freedom / 2) + np.log(freedom / 2)
    spread = logs.var(ddof=1) - polygamma(1, freedom / 2).mean()
    shared = MOST_FREEDOM
    if spread > polygamma(1, MOST_FREEDOM / 2):
        from scipy.optimize import brentq

        shared = 2 * brentq(lambda half: polygamma(1, half) - spread, 1e-4, MOST_FREEDOM)
    return SeedNoise(float(np.exp(logs.mean() + digamma(shared / 2) - np.log(shared / 2))), float(shared))


def _variance(score: Score) -> float:
    """The variance between seeds, at least the part of it that the residual of the examples explains."""
    seeds = sorted(score.by_seed)
    n = _example_count([score], seeds)
    between = float(_scores(score, seeds, 0).var(ddof=1))
    return max(between, _mean_squares(_scores(score, seeds, n))[2] / n) if n else between


def _example_count(scores: Sequence[Score], seeds: Sequence[int]) -> int:
    """The number of test examples with a score in all of `scores` and seeds; 0 where a score lacks them."""
    sizes = {len(score.examples.get(seed, ())) for score in scores for seed in seeds}
    return sizes.pop() if len(sizes) == 1 else 0


def _scores(score: Score, seeds: Sequence[int], n: int) -> np.ndarray:
    """Scores of the examples (S, n), or the mean of each seed (S, 1) where n is 0."""
    return np.array([score.examples[seed] if n else [score.by_seed[seed]] for seed in seeds], dtype=float)


def _mean_squares(x: np.ndarray) -> tuple[float, float, float]:
    """Mean squares of seeds, examples and residuals of scores, or of their differences, x (S, n)."""
    seeds, n = x.shape
    by_seed = n * x.mean(1).var(ddof=1)
    if n == 1:
        return by_seed, 0.0, 0.0
    by_example = seeds * x.mean(0).var(ddof=1)
    rest = x - x.mean(1, keepdims=True) - x.mean(0) + x.mean()
    return by_seed, by_example, (rest**2).sum() / ((seeds - 1) * (n - 1))


def _tested(a: Score, b: Score, seeds: Sequence[int], noise: SeedNoise) -> Pair:
    """The paired test of two rows over these seeds."""
    n = _example_count((a, b), seeds)
    x, y = (_scores(score, seeds, n) for score in (a, b))
    count, n = x.shape
    difference, rounding = float(x.mean() - y.mean()), ROUNDING * max(np.abs(x).max(), np.abs(y).max())
    by_seed, by_example, residual = _mean_squares(x - y)
    # a row with equal scores for all seeds adds no noise between seeds
    varying = sum(len({score.by_seed[seed] for seed in seeds}) > 1 for score in (a, b))
    typical, freedom = n * noise.typical * varying, count - 1.0
    if by_seed < typical:
        by_seed = (noise.freedom * typical + freedom * by_seed) / (noise.freedom + freedom)
        freedom += noise.freedom
    by_seed = max(by_seed, residual)  # its expectation is at least the residual's
    beyond = max(by_example - residual, 0.0)
    error = math.sqrt((by_seed + beyond) / (count * n))
    if error <= rounding:
        # without noise there is no t test: the p-value of S equal differences is that of the sign-flip test
        p, half = 1.0 if abs(difference) <= rounding else 2.0 ** (1 - count), 0.0
    else:
        inverse = by_seed**2 / freedom
        if beyond:
            inverse += by_example**2 / (n - 1) + residual**2 / ((count - 1) * (n - 1))
        freedom = (by_seed + beyond) ** 2 / inverse
        p, half = float(2 * stdtr(freedom, -abs(difference) / error)), float(stdtrit(freedom, (1 + LEVEL) / 2) * error)
    return Pair((a.key, b.key), difference, half, p, count, BY_EXAMPLE if n > 1 else BY_SEED)


def holm(p: Sequence[float], counts: Sequence[int] | None = None) -> list[float]:
    """p-values corrected by Holm's method: smallest first, times the number of hypotheses that remain.

    `counts`: for how many hypotheses each p-value counts, by default 1.
    """
    order = np.argsort(p, kind="stable")
    remaining = np.cumsum((np.ones(len(p)) if counts is None else np.asarray(counts))[order][::-1])[::-1]
    corrected = np.empty(len(p))
    corrected[order] = np.maximum.accumulate(remaining * np.asarray(p)[order]).clip(max=1.0)
    return corrected.tolist()
