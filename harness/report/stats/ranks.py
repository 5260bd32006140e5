"""Ranks of rows over several tasks, with the uncertainty that comes from the choice of tasks and seeds.

A row's score is the interquartile mean of its scores in all tasks and seeds: the mean of the middle half. Its interval
comes from a bootstrap that is stratified by task: tasks are drawn with replacement, then the seeds of each drawn task.
All rows share their draws, because they have the same tasks and seeds (Agarwal et al., 2021, arXiv 2108.13264).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.report.stats.seeds import LEVEL

DRAWS = 2000
SEED = 0
DIGITS = 9  # means that agree to this many decimals count as equal, on every machine


@dataclass(frozen=True)
class RankedRow:
    """`mean`: the interquartile mean; `interval` and `ranks`: from and to, in 95 % of the draws. Rank 1 is the best."""

    row: str
    mean: float
    interval: tuple[float, float]
    rank: int
    ranks: tuple[int, int]


def rank_rows(rows: Sequence[str], scores: np.ndarray, draws: int = DRAWS) -> list[RankedRow]:
    """Rank rows by their scores (R rows, T tasks, S seeds), best first; a higher score is better.

    Rows with equal means share the best of their ranks. Raises ValueError for scores of another shape and for missing
    scores.
    """
    scores = np.asarray(scores, dtype=float)
    if scores.ndim != 3 or len(rows) != len(scores) or not scores.size:
        raise ValueError(f"scores are (rows, tasks, seeds), {len(rows)} rows, not {scores.shape}")
    if not np.isfinite(scores).all():
        raise ValueError("a score is missing: only complete rows have ranks")
    means = interquartile_mean(scores.reshape(len(rows), -1)).round(DIGITS)
    drawn = bootstrap(scores, draws).round(DIGITS)
    edges = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    low, high = np.quantile(drawn, edges, axis=1)
    first, last = np.quantile(ranks(drawn), edges, axis=1, method="inverted_cdf")
    rank = ranks(means[:, None])[:, 0]
    ranked = [
        RankedRow(row, float(means[i]), (float(low[i]), float(high[i])), int(rank[i]), (int(first[i]), int(last[i])))
        for i, row in enumerate(rows)
    ]
    return sorted(ranked, key=lambda row: (row.rank, row.row))


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """Mean along the last axis (.., K) without the K // 4 lowest and the K // 4 highest."""
    from scipy.stats import trim_mean

    return trim_mean(scores, 0.25, axis=-1)


def bootstrap(scores: np.ndarray, draws: int = DRAWS) -> np.ndarray:
    """Interquartile means (R, draws) of resampled scores (R, T, S): each draw takes T tasks and S seeds per task."""
    _, tasks, seeds = scores.shape
    generator = np.random.RandomState(SEED)  # the same numbers in every version of numpy
    task = generator.randint(tasks, size=(draws, tasks, 1))
    seed = generator.randint(seeds, size=(draws, tasks, seeds))
    return np.stack([interquartile_mean(row[task, seed].reshape(draws, -1)) for row in scores])


def ranks(means: np.ndarray) -> np.ndarray:
    """1 + the number of rows with a higher mean, in each column of (R, draws)."""
    return 1 + (means[None] > means[:, None]).sum(1)
