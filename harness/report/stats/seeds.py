"""Statistics over a few seeds: their mean, its interval, and the verdict on a published number."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEVEL = 0.95
MIN_SEEDS = 3  # the t interval of two seeds is 9 times as wide as their difference: it says nothing


@dataclass(frozen=True)
class Estimate:
    """A mean over n seeds; `half_width` of its 95 % interval, None for fewer than MIN_SEEDS.

    `limits`: of the metric's scale.
    """

    mean: float
    half_width: float | None
    n: int
    limits: tuple[float, float] = (-math.inf, math.inf)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval within the scale of the metric."""
        if self.half_width is None:
            return None
        return max(self.mean - self.half_width, self.limits[0]), min(self.mean + self.half_width, self.limits[1])

    @property
    def is_clipped(self) -> bool:
        """Whether the interval would leave the scale of the metric."""
        half = self.half_width
        return half is not None and self.interval != (self.mean - half, self.mean + half)


def estimate(
    values: Sequence[float],
    limits: tuple[float, float] = (-math.inf, math.inf),
    noise: tuple[float, float] = (0.0, 0.0),
) -> Estimate:
    """Mean and half width of the 95 % t interval, s t_{n-1} / sqrt(n). Raises ValueError for no values.

    `limits`: of the metric's scale, which no interval leaves. `noise`: typical variance of the column and its degrees
    of freedom. A smaller variance of these values is raised towards it, as in the tests of pairs (Smyth 2004): seeds of
    skewed scores that miss the long tail have too small a variance.
    """
    n = len(values)
    if n == 0:
        raise ValueError("no values to average")
    mean = math.fsum(values) / n
    if n < MIN_SEEDS:
        return Estimate(mean, None, n, limits)
    from scipy.special import stdtrit  # scipy.stats takes half a second to import

    variance, freedom = math.fsum((value - mean) ** 2 for value in values) / (n - 1), n - 1
    typical, shared = noise
    if 0 < variance < typical:
        variance = (shared * typical + freedom * variance) / (shared + freedom)
        freedom += shared
    return Estimate(mean, float(stdtrit(freedom, (1 + LEVEL) / 2)) * math.sqrt(variance / n), n, limits)


def verdict(paper: float, ours: Estimate | None, tolerance: Mapping[str, float]) -> str:
    """`reproduced`, `close`, `off` or `not run`.

    A number is reproduced if it is within `tolerance["reproduced"]` of the paper, or within `tolerance["close"]` and
    our interval holds the paper's number. A noisy result outside `close` is thus never reproduced.
    """
    if ours is None:
        return "not run"
    # round first: 61.2 has no exact binary form, and a printed difference of 1.0 must count as 1.0
    difference = round(abs(ours.mean - paper), 9)
    explained = ours.half_width is not None and difference <= ours.half_width
    if difference <= tolerance["reproduced"] or (explained and difference <= tolerance["close"]):
        return "reproduced"
    return "close" if difference <= tolerance["close"] else "off"


def p_value(p: float) -> str:
    """Two significant digits, or `< 0.001`."""
    return "< 0.001" if p < 0.001 else significant(p, 2)


def p_text(p: float) -> str:
    """`p = 0.03`, `p < 0.001`"""
    text = p_value(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def significant(value: float, digits: int = 3) -> str:
    """`0.0123`, `45.6`, `1,230`: `digits` significant digits, thousands separated, never an exponent."""
    return f"{float(f'{value:.{digits}g}'):,.15g}"
