"""Statistics over a few seeds: mean and interval, agreement of two orderings, verdict on a published number."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEVEL = 0.95
RESAMPLES = 2000
MIN_ROWS = 3  # two rows are always in the same or in the opposite order
MIN_SEEDS = 2


@dataclass(frozen=True)
class Estimate:
    """A mean over n seeds; `half_width` of its 95 % interval, None for a single seed."""

    mean: float
    half_width: float | None
    n: int

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.half_width is None else (self.mean - self.half_width, self.mean + self.half_width)


@dataclass(frozen=True)
class Agreement:
    """Kendall's tau-b between two orderings; `interval` is the 95 % bootstrap interval. `note` says what is missing."""

    tau: float | None
    interval: tuple[float, float] | None
    rows: int
    note: str = ""


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and half width of the 95 % t interval, s t_{n-1} / sqrt(n). Raises ValueError for no values."""
    n = len(values)
    if n == 0:
        raise ValueError("no values to average")
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean, None, 1)
    from scipy.special import stdtrit  # scipy.stats takes half a second to import

    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    return Estimate(mean, float(stdtrit(n - 1, (1 + LEVEL) / 2)) * deviation / math.sqrt(n), n)


def agreement(ours: Mapping[str, Sequence[float]], theirs: Mapping[str, float]) -> Agreement:
    """Do our scores (row -> score of each seed) order the rows as the published ones do?

    The interval comes from resampling the seeds within each row (Efron's percentile bootstrap, fixed generator).
    Rows that either side lacks are left out.
    """
    import numpy as np

    rows = sorted(row for row in ours if row in theirs and len(ours[row]))
    if len(rows) < MIN_ROWS:
        return Agreement(None, None, len(rows), f"takes at least {MIN_ROWS} shared rows; there are {len(rows)}")
    scores = [np.asarray(ours[row], dtype=float) for row in rows]
    published = np.array([theirs[row] for row in rows])
    tau = kendall(np.array([[seeds.mean() for seeds in scores]]), published)[0]
    if math.isnan(tau):
        return Agreement(None, None, len(rows), "undefined: one side is all ties")
    if min(len(seeds) for seeds in scores) < MIN_SEEDS:
        return Agreement(float(tau), None, len(rows), f"an interval takes at least {MIN_SEEDS} seeds in every row")
    generator = np.random.default_rng(0)
    means = [seeds[generator.integers(len(seeds), size=(RESAMPLES, len(seeds)))].mean(1) for seeds in scores]
    drawn = kendall(np.stack(means, axis=1), published)
    low, high = np.nanquantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Agreement(float(tau), (float(low), float(high)), len(rows))


def kendall(draws, published):
    """Kendall's tau-b of each row of `draws` (S, R) with `published` (R,): (S,), nan where one side is all ties."""
    import numpy as np

    first, second = np.triu_indices(len(published), k=1)
    ours = np.sign(draws[:, first] - draws[:, second])  # (S, pairs)
    theirs = np.sign(published[first] - published[second])
    untied = np.abs(ours).sum(1) * np.abs(theirs).sum()
    with np.errstate(invalid="ignore"):
        return (ours * theirs).sum(1) / np.sqrt(untied)


def verdict(paper: float, ours: Estimate | None, tolerance: Mapping[str, float]) -> str:
    """`reproduced`, `close`, `off` or `not run`.

    Reproduced: within `tolerance["reproduced"]` of the paper, or within `tolerance["close"]` with the paper's value in
    our interval. A wide interval therefore gains nothing beyond `close`.
    """
    if ours is None:
        return "not run"
    # the printed digits decide: 1.0 off is not more than 1.0 off because 61.2 has no binary form
    difference = round(abs(ours.mean - paper), 9)
    inside = ours.half_width is not None and difference <= ours.half_width
    if difference <= tolerance["reproduced"] or (inside and difference <= tolerance["close"]):
        return "reproduced"
    return "close" if difference <= tolerance["close"] else "off"


def intervals_are_disjoint(one: Estimate, other: Estimate) -> bool:
    """The two intervals do not overlap. A single seed has none, so the answer is no."""
    if one.half_width is None or other.half_width is None:
        return False
    return abs(one.mean - other.mean) > one.half_width + other.half_width
