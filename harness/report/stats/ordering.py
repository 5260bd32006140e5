"""Two orderings of the same rows: Kendall's tau with a permutation test, and what a published column can tell apart."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from harness.report.stats.seeds import normal_quantile

if TYPE_CHECKING:
    import numpy as np

MIN_ROWS = 3  # two rows are always in the same or in the opposite order
RESAMPLES = 9999


@dataclass(frozen=True)
class Agreement:
    """Kendall's tau-b between two orderings; `p` of a permutation test over rows. `note` says what is missing."""

    tau: float | None
    p: float | None
    rows: int
    note: str = ""


def agreement(ours: Mapping[str, float], theirs: Mapping[str, float]) -> Agreement:
    """Do our means (row -> mean) order the rows as the published numbers do?

    The test asks how often rows in a random order agree as well, or disagree as much. Rows that either side lacks are
    left out.
    """
    import numpy as np
    from scipy.stats import kendalltau

    rows = sorted(set(ours) & set(theirs))
    if len(rows) < MIN_ROWS:
        return Agreement(None, None, len(rows), f"takes at least {MIN_ROWS} shared rows; there are {len(rows)}")
    means, published = (np.array([side[row] for row in rows], dtype=float) for side in (ours, theirs))
    tau = float(kendall(means[None], published)[0])
    if math.isnan(tau):
        return Agreement(None, None, len(rows), "undefined: one side is all ties")
    tied = len(set(means)) < len(rows) or len(set(published)) < len(rows)
    # the distribution of tau without ties is known; with ties it is drawn
    p = _drawn_p(means, published) if tied else kendalltau(means, published, method="exact").pvalue
    return Agreement(tau, float(p), len(rows))


def _drawn_p(means: "np.ndarray", published: "np.ndarray") -> float:
    """All orders of few rows, random ones of more, from a fixed generator."""
    import numpy as np
    from scipy.stats import permutation_test

    def statistic(draws: "np.ndarray", axis: int) -> "np.ndarray":
        rows = np.moveaxis(draws, axis, -1)
        return kendall(rows.reshape(-1, rows.shape[-1]), published).reshape(rows.shape[:-1])

    generator = np.random.default_rng(0)
    settings = {"permutation_type": "pairings", "vectorized": True, "n_resamples": RESAMPLES}
    return float(permutation_test((means,), statistic, random_state=generator, **settings).pvalue)


def kendall(draws: "np.ndarray", published: "np.ndarray") -> "np.ndarray":
    """Kendall's tau-b of each row of `draws` (S, R) with `published` (R,): (S,), nan where one side is all ties."""
    import numpy as np

    first, second = np.triu_indices(len(published), k=1)
    ours = np.sign(draws[:, first] - draws[:, second])  # (S, pairs)
    theirs = np.sign(published[first] - published[second])
    untied = np.abs(ours).sum(1) * np.abs(theirs).sum()
    with np.errstate(invalid="ignore"):
        return (ours * theirs).sum(1) / np.sqrt(untied)


def told_apart(numbers: Sequence[tuple[float, float]]) -> tuple[int, int]:
    """How many pairs of published numbers, each with its standard error, differ at 5 %; of how many."""
    pairs = list(combinations(numbers, 2))
    quantile = normal_quantile()
    return sum(abs(one - other) > quantile * math.hypot(a, b) for (one, a), (other, b) in pairs), len(pairs)


def binomial_error(percent: float, n: int) -> float:
    """Standard error of an accuracy in percent over n examples."""
    share = min(max(percent / 100, 0.0), 1.0)
    return 100 * math.sqrt(share * (1 - share) / n)
