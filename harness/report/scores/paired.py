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

from collections.abc import Collection, Sequence
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
    pairs = tested_pairs(list(combinations(rows, 2)), seed_noise(rows))
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
    return tested_pairs(list(product(rows, baselines)), seed_noise(rows))


def tested_pairs(pairs: Sequence[tuple[Score, Score]], noise: SeedNoise) -> list[Pair]:
    """The tests of the pairs with MIN_SEEDS common seeds on the same test examples, ordered by their rows."""
    batches: dict[tuple[tuple[int, ...], int], list[tuple[Score, Score]]] = {}
    for a, b in pairs:
        seeds = tuple(sorted(set(a.by_seed) & set(b.by_seed)))
        if len(seeds) >= MIN_SEEDS and all(a.data.get(seed) == b.data.get(seed) for seed in seeds):
            batches.setdefault((seeds, _example_count((a, b), seeds)), []).append((a, b))
    tested = [pair for (seeds, n), batch in batches.items() for pair in _paired(batch, seeds, n, noise)]
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
    seeds = tuple(sorted(score.by_seed))
    between = float(np.var([score.by_seed[seed] for seed in seeds], ddof=1))
    if n := _example_count([score], seeds):
        _, _, residual = _mean_squares(_array([score], seeds, n))
        between = max(between, float(residual[0, 0]) / n)
    return between


def _example_count(scores: Sequence[Score], seeds: Sequence[int]) -> int:
    """The number of test examples with a score in all of `scores` and seeds; 0 where a score lacks them."""
    sizes = {len(score.examples.get(seed, ())) for score in scores for seed in seeds}
    return sizes.pop() if len(sizes) == 1 else 0


def _array(scores: Sequence[Score], seeds: Sequence[int], n: int) -> np.ndarray:
    """Scores of the examples (R, S, n), or the mean of each seed (R, S, 1) where n is 0."""
    if n:
        return np.array([[score.examples[seed] for seed in seeds] for score in scores], dtype=float)
    return np.array([[[score.by_seed[seed]] for seed in seeds] for score in scores], dtype=float)


def _mean_squares(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Covariances (R, R) of seeds, examples and residuals for x (R, S, n): their differences are mean squares."""
    rows, seeds, n = x.shape
    seed_means, example_means, mean = x.mean(2), x.mean(1), x.mean((1, 2))
    by_seed = n * np.cov(seed_means).reshape(rows, rows)
    if n == 1:
        return by_seed, np.zeros_like(by_seed), np.zeros_like(by_seed)
    by_example = seeds * np.cov(example_means).reshape(rows, rows)
    rest = x - seed_means[:, :, None]
    rest -= example_means[:, None, :]  # in place: memory for each of the terms takes most of the time
    rest += mean[:, None, None]
    rest = rest.reshape(rows, seeds * n)
    return by_seed, by_example, rest @ rest.T / ((seeds - 1) * (n - 1))


def _paired(pairs: Sequence[tuple[Score, Score]], seeds: Sequence[int], n: int, noise: SeedNoise) -> list[Pair]:
    """The paired test of pairs that share their seeds and their number of examples."""
    scores = list({score.key: score for pair in pairs for score in pair}.values())
    index = {score.key: i for i, score in enumerate(scores)}
    x = _array(scores, seeds, n)
    count, n = len(seeds), x.shape[2]
    first, second = (np.array([index[pair[side].key] for pair in pairs]) for side in (0, 1))

    def of_difference(covariance: np.ndarray) -> np.ndarray:
        variance = covariance.diagonal()
        return np.maximum(variance[first] + variance[second] - 2 * covariance[first, second], 0)

    by_seed, by_example, residual = map(of_difference, _mean_squares(x))
    # a row with equal scores for all seeds adds no noise between seeds
    varies = np.array([len({score.by_seed[seed] for seed in seeds}) > 1 for score in scores])
    typical = n * noise.typical * (varies[first].astype(float) + varies[second])
    freedom = np.full(len(pairs), count - 1.0)
    low = by_seed < typical
    raised = (noise.freedom * typical + (count - 1) * by_seed) / (noise.freedom + count - 1)
    by_seed, freedom = np.where(low, raised, by_seed), np.where(low, freedom + noise.freedom, freedom)
    by_seed = np.maximum(by_seed, residual)  # its expectation is at least the residual's
    beyond = np.maximum(by_example - residual, 0)
    error = np.sqrt((by_seed + beyond) / (count * n))
    inverse = by_seed**2 / freedom
    if n > 1:
        inverse += np.where(beyond > 0, by_example**2 / (n - 1) + residual**2 / ((count - 1) * (n - 1)), 0)
    exact = error <= ROUNDING * np.abs(x).max()  # the same difference for every seed and example
    freedom = np.where(exact, freedom, (by_seed + beyond) ** 2 / np.where(exact, 1, inverse))
    mean = x.mean((1, 2))
    difference = mean[first] - mean[second]
    error = np.where(exact, 0, error)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.abs(difference) / error
    # without noise there is no t test: the p-value of S equal differences is that of the sign-flip test
    flips = np.where(np.abs(difference) <= ROUNDING * np.abs(x).max(), 1.0, 2.0 ** (1 - count))
    p = np.where(exact, flips, 2 * stdtr(freedom, -np.where(exact, 0, ratio)))
    half = stdtrit(freedom, (1 + LEVEL) / 2) * error
    pairing = BY_EXAMPLE if n > 1 else BY_SEED
    numbers = zip(difference.tolist(), half.tolist(), p.tolist(), strict=True)
    return [Pair((a.key, b.key), *number, count, pairing) for (a, b), number in zip(pairs, numbers, strict=True)]


def holm(p: Sequence[float], counts: Sequence[int] | None = None) -> list[float]:
    """p-values corrected by Holm's method: smallest first, times the number of hypotheses that remain.

    `counts`: for how many hypotheses each p-value counts, by default 1.
    """
    order = np.argsort(p, kind="stable")
    remaining = np.cumsum((np.ones(len(p)) if counts is None else np.asarray(counts))[order][::-1])[::-1]
    corrected = np.empty(len(p))
    corrected[order] = np.maximum.accumulate(remaining * np.asarray(p)[order]).clip(max=1.0)
    return corrected.tolist()
