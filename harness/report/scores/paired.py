"""Differences between the rows of a column, paired by seed and by test example.

    d_si = mean + seed effect + example effect + residual      of two rows, seed s of S, test example i of n
    var  = (MS_seed + MS_example - MS_residual) / (S n)        of the mean difference

This is the variance that a hierarchical bootstrap (draw seeds, then examples) tends to with ever more draws, without
its two errors for few seeds: the factor (S - 1) / S, and the residual that it counts three times (Owen, The pigeonhole
bootstrap, 2007). The quantile is Student's with Satterthwaite's degrees of freedom.

Three to five seeds measure the noise between seeds badly, and a pair whose seeds agree by chance would look resolved.
A noise below the column's typical one is therefore raised towards it, by as much as the rows of the column agree on
their noise (Smyth 2004, known from limma); a larger one stays as measured. Without scores of examples (n = 1) and with
fewer than MIN_ROWS rows this is the paired t test over seeds.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import TYPE_CHECKING

from harness.report.scores.scores import Score
from harness.report.stats.seeds import LEVEL, MIN_SEEDS

if TYPE_CHECKING:
    import numpy as np

MIN_ROWS = 4  # rows that say how much seeds differ in a column
MOST_FREEDOM = 100.0  # degrees of freedom that the other rows may add
BY_EXAMPLE, BY_SEED, UNPAIRED = "seed and example", "seed", "not paired"
Key = tuple[str, str]  # row, setting


@dataclass(frozen=True)
class Pair:
    """`difference` is the first row's mean minus the second's, over `seeds`; `half_width` of its 95 % interval.

    `p_holm` is corrected for all pairs of the column.
    """

    rows: tuple[Key, Key]
    difference: float
    half_width: float
    p: float
    seeds: int
    pairing: str
    p_holm: float = 1.0

    @property
    def is_resolved(self) -> bool:
        return self.p_holm < 1 - LEVEL


@dataclass(frozen=True)
class SeedNoise:
    """What the rows of a column say about the variance between seeds: its typical value and their agreement on it."""

    typical: float = 0.0
    freedom: float = 0.0


def compare(scores: Sequence[Score]) -> list[Pair]:
    """Every pair of rows that have enough seeds, corrected together by Holm's method."""
    lines = [score for score in scores if len(score.by_seed) >= MIN_SEEDS]
    pairs = differences(list(combinations(lines, 2)), seed_noise(lines))
    corrected = holm([pair.p for pair in pairs])
    return [replace(pair, p_holm=p) for pair, p in zip(pairs, corrected, strict=True)]


def compare_with(scores: Sequence[Score], fixed: Sequence[Score]) -> list[Pair]:
    """Every row with every one of `fixed`, which have the same score for each seed. Not corrected."""
    lines = [score for score in scores if len(score.by_seed) >= MIN_SEEDS]
    return differences(list(product(lines, fixed)), seed_noise(lines))


def differences(pairs: Sequence[tuple[Score, Score]], noise: SeedNoise) -> list[Pair]:
    """The pairs in order of their rows. Rows with too few common seeds, or with other test examples, are not paired."""
    batches: dict[tuple[tuple[int, ...], int], list[tuple[Score, Score]]] = {}
    found = []
    for one, other in pairs:
        seeds = tuple(sorted(set(one.by_seed) & set(other.by_seed)))
        if len(seeds) < MIN_SEEDS or any(one.data.get(seed) != other.data.get(seed) for seed in seeds):
            found.append(_unpaired(one, other))
        else:
            batches.setdefault((seeds, _examples(one, other, seeds)), []).append((one, other))
    for (seeds, n), batch in batches.items():
        found += _paired(batch, seeds, n, noise)
    return sorted(found, key=lambda pair: pair.rows)


def seed_noise(scores: Sequence[Score]) -> SeedNoise:
    """The variances of the rows fitted by a scaled inverse chi squared distribution (Smyth 2004, section 6.2).

    A row whose seeds are all equal says nothing.
    """
    import numpy as np
    from scipy.special import digamma, polygamma

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
    """Between seeds; no less than what the residual of the examples alone makes of it."""
    import numpy as np

    seeds = tuple(sorted(score.by_seed))
    between = float(np.var([score.by_seed[seed] for seed in seeds], ddof=1))
    if n := _examples(score, score, seeds):
        _, _, residual = _mean_squares(_array([score], seeds, n))
        between = max(between, float(residual[0, 0]) / n)
    return between


def _examples(one: Score, other: Score, seeds: Sequence[int]) -> int:
    """Test examples that both rows have scores of, for each of the seeds; 0 if there are none."""
    sizes = {len(score.examples.get(seed, ())) for score in (one, other) for seed in seeds}
    return sizes.pop() if len(sizes) == 1 else 0


def _array(scores: Sequence[Score], seeds: Sequence[int], n: int) -> "np.ndarray":
    """(R, S, n), or the mean of each seed (R, S, 1)."""
    import numpy as np

    if n:
        return np.array([[score.examples[seed] for seed in seeds] for score in scores], dtype=float)
    return np.array([[[score.by_seed[seed]] for seed in seeds] for score in scores], dtype=float)


def _mean_squares(x: "np.ndarray") -> "tuple[np.ndarray, np.ndarray, np.ndarray]":
    """Covariances (R, R) whose differences are the mean squares of seeds, examples and residuals: x (R, S, n)."""
    import numpy as np

    rows, seeds, n = x.shape
    of_seeds, of_examples, mean = x.mean(2), x.mean(1), x.mean((1, 2))
    by_seed = n * np.cov(of_seeds).reshape(rows, rows)
    if n == 1:
        return by_seed, np.zeros_like(by_seed), np.zeros_like(by_seed)
    by_example = seeds * np.cov(of_examples).reshape(rows, rows)
    rest = x - of_seeds[:, :, None] - of_examples[:, None, :] + mean[:, None, None]
    rest = rest.reshape(rows, seeds * n)
    return by_seed, by_example, rest @ rest.T / ((seeds - 1) * (n - 1))


def _paired(pairs: Sequence[tuple[Score, Score]], seeds: Sequence[int], n: int, noise: SeedNoise) -> list[Pair]:
    import numpy as np
    from scipy.special import stdtr, stdtrit

    lines = list({score.key: score for pair in pairs for score in pair}.values())
    place = {score.key: index for index, score in enumerate(lines)}
    x = _array(lines, seeds, n)
    count, n = len(seeds), x.shape[2]
    first, second = (np.array([place[pair[side].key] for pair in pairs]) for side in (0, 1))

    def of_difference(covariance: "np.ndarray") -> "np.ndarray":
        own = covariance.diagonal()
        return np.maximum(own[first] + own[second] - 2 * covariance[first, second], 0)

    by_seed, by_example, residual = map(of_difference, _mean_squares(x))
    # a row that is equal for all seeds brings no noise of seeds
    varies = np.array([len({score.by_seed[seed] for seed in seeds}) > 1 for score in lines])
    typical = n * noise.typical * (varies[first].astype(float) + varies[second])
    freedom = np.full(len(pairs), count - 1.0)
    low = by_seed < typical
    raised = (noise.freedom * typical + (count - 1) * by_seed) / (noise.freedom + count - 1)
    by_seed, freedom = np.where(low, raised, by_seed), np.where(low, freedom + noise.freedom, freedom)
    by_seed = np.maximum(by_seed, residual)  # its expectation is no less
    beyond = np.maximum(by_example - residual, 0)
    error = np.sqrt((by_seed + beyond) / (count * n))
    inverse = by_seed**2 / freedom
    if n > 1:
        inverse += np.where(beyond > 0, by_example**2 / (n - 1) + residual**2 / ((count - 1) * (n - 1)), 0)
    exact = error <= 1e-12 * np.abs(x).max()  # the same difference for every seed and example
    freedom = np.where(exact, freedom, (by_seed + beyond) ** 2 / np.where(exact, 1, inverse))
    mean = x.mean((1, 2))
    difference = mean[first] - mean[second]
    error = np.where(exact, 0, error)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.abs(difference) / error
    ratio = np.where(exact & (np.abs(difference) <= 1e-12 * np.abs(x).max()), 0, ratio)
    p, half = 2 * stdtr(freedom, -ratio), stdtrit(freedom, (1 + LEVEL) / 2) * error
    pairing = BY_EXAMPLE if n > 1 else BY_SEED
    return [
        Pair((one.key, other.key), float(difference[i]), float(half[i]), float(p[i]), count, pairing)
        for i, (one, other) in enumerate(pairs)
    ]


def _unpaired(one: Score, other: Score) -> Pair:
    """Welch's test over the seeds of each row."""
    from scipy.stats import ttest_ind

    mine, theirs = (list(score.by_seed.values()) for score in (one, other))
    with warnings.catch_warnings():  # of rows whose seeds are equal up to rounding
        warnings.simplefilter("ignore", RuntimeWarning)
        test = ttest_ind(mine, theirs, equal_var=False)
    difference = math.fsum(mine) / len(mine) - math.fsum(theirs) / len(theirs)
    interval = test.confidence_interval(LEVEL)
    half, p = (float(interval.high) - float(interval.low)) / 2, float(test.pvalue)
    if math.isnan(p):  # no seed differs from another
        half, p = 0.0, float(difference == 0)
    return Pair((one.key, other.key), difference, half, p, min(len(mine), len(theirs)), UNPAIRED)


def holm(p: Sequence[float]) -> list[float]:
    """p-values corrected by Holm's method: smallest first, times the number of hypotheses that are left."""
    corrected, largest = [0.0] * len(p), 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        largest = max(largest, min(1.0, (len(p) - rank) * p[place]))
        corrected[place] = largest
    return corrected


def tiers(ranked: Sequence[Score], pairs: Sequence[Pair]) -> Mapping[Key, int]:
    """(row, setting) -> 1 for the best tier, 2, ...: no test separates two rows of one tier.

    From the best row down, a row opens a new tier if a test separates it from any row of the tier above. Rows without
    a test have no tier.
    """
    tested = {key for pair in pairs for key in pair.rows}
    apart = {frozenset(pair.rows) for pair in pairs if pair.is_resolved}
    found: dict[Key, int] = {}
    tier, members = 0, []
    for score in ranked:
        if score.key not in tested:
            continue
        if not members or any(frozenset((score.key, member)) in apart for member in members):
            tier, members = tier + 1, []
        members.append(score.key)
        found[score.key] = tier
    return found
