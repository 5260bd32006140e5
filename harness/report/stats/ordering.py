"""Two orderings of the same rows: Kendall's tau, its interval and its test."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.report.stats.seeds import LEVEL, MIN_SEEDS

MIN_ROWS = 3  # two rows are always in the same or in the opposite order
RESAMPLES = 9999
DRAWS = 2000  # of the bootstrap
DIGITS = 9  # means that agree to this many decimals count as equal, on every machine


@dataclass(frozen=True)
class Agreement:
    """Kendall's tau-b between two orderings, and `p` from a permutation test over rows.

    `note` says why `tau` and `p` are None.
    """

    tau: float | None
    p: float | None
    rows: int
    note: str = ""


def agreement(ours: Mapping[str, float], theirs: Mapping[str, float]) -> Agreement:
    """Do our means (row -> mean) order the rows as the published numbers do?

    The test asks how often a random order of the rows agrees or disagrees at least as strongly. Rows that only one side
    has are left out.
    """
    from scipy.stats import kendalltau

    rows = sorted(set(ours) & set(theirs))
    if len(rows) < MIN_ROWS:
        return Agreement(None, None, len(rows), f"takes at least {MIN_ROWS} shared rows; there are {len(rows)}")
    means, published = (np.array([side[row] for row in rows], dtype=float) for side in (ours, theirs))
    tau = float(kendall(means[None], published)[0])
    if math.isnan(tau):
        return Agreement(None, None, len(rows), "undefined: one side is all ties")
    tied = len(set(means)) < len(rows) or len(set(published)) < len(rows)
    # the distribution of tau is known in closed form without ties only
    p = _permutation_p(means, published) if tied else kendalltau(means, published, method="exact").pvalue
    return Agreement(tau, float(p), len(rows))


def bootstrap_interval(ours: Mapping[str, Sequence[float]], theirs: Mapping[str, float]) -> tuple[float, float] | None:
    """Where Kendall's tau lies in 95 % of the draws if the seeds of each row (row -> scores) are drawn again.

    The published numbers stay as they are. Means of n drawn seeds vary too little, by the factor sqrt((n - 1) / n);
    their deviations are enlarged accordingly (Rao and Wu, 1988). None with fewer than MIN_ROWS shared rows, with fewer
    than MIN_SEEDS seeds in any of them, and where one side is all ties.
    """
    rows = sorted(set(ours) & set(theirs))
    if len(rows) < MIN_ROWS or min(len(ours[row]) for row in rows) < MIN_SEEDS:
        return None
    generator = np.random.RandomState(0)  # the same numbers in every version of numpy
    draws = []
    for row in rows:
        scores = np.asarray(ours[row], dtype=float)
        means = scores[generator.randint(len(scores), size=(DRAWS, len(scores)))].mean(1)
        draws.append(scores.mean() + (means - scores.mean()) * math.sqrt(len(scores) / (len(scores) - 1)))
    taus = kendall(np.stack(draws, axis=1).round(DIGITS), np.array([theirs[row] for row in rows], dtype=float))
    if np.isnan(taus).all():
        return None
    edges = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    low, high = np.nanquantile(taus, edges, method="inverted_cdf")
    return float(low), float(high)


def _permutation_p(means: np.ndarray, published: np.ndarray) -> float:
    """Over all orders of a few rows, or over random orders from a fixed generator."""
    from scipy.stats import permutation_test

    def statistic(draws: np.ndarray, axis: int) -> np.ndarray:
        rows = np.moveaxis(draws, axis, -1)
        return kendall(rows.reshape(-1, rows.shape[-1]), published).reshape(rows.shape[:-1])

    generator = np.random.default_rng(0)
    settings = {"permutation_type": "pairings", "vectorized": True, "n_resamples": RESAMPLES}
    return float(permutation_test((means,), statistic, random_state=generator, **settings).pvalue)


def kendall(draws: np.ndarray, published: np.ndarray) -> np.ndarray:
    """Kendall's tau-b of each row of `draws` (S, R) with `published` (R,): (S,), nan where one side is all ties."""
    first, second = np.triu_indices(len(published), k=1)
    ours = np.sign(draws[:, first] - draws[:, second])  # (S, pairs)
    theirs = np.sign(published[first] - published[second])
    untied = np.abs(ours).sum(1) * np.abs(theirs).sum()
    with np.errstate(invalid="ignore"):
        return (ours * theirs).sum(1) / np.sqrt(untied)
