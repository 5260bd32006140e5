"""How a cost grows with the length: its exponent, and the length from which one method costs less than another."""

import math
from collections.abc import Sequence

import numpy as np


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float | None:
    """Slope of log(value) over log(size): 1 is linear, 2 is quadratic. None for fewer than two points."""
    if len(sizes) < 2:
        return None
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def crossover(sizes: Sequence[int], ours: Sequence[float], peer: Sequence[float]) -> float | None:
    """Size from which `ours` stays below `peer`, interpolated in log space; sizes[0] if always, None if never."""
    gaps = [math.log(a / b) for a, b in zip(ours, peer, strict=True)]
    if not gaps or gaps[-1] >= 0:
        return None
    last_above = max((i for i, gap in enumerate(gaps) if gap >= 0), default=None)
    if last_above is None:
        return float(sizes[0])
    fraction = gaps[last_above] / (gaps[last_above] - gaps[last_above + 1])
    low, high = math.log(sizes[last_above]), math.log(sizes[last_above + 1])
    return math.exp(low + fraction * (high - low))
