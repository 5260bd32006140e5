"""A generated series like ETT: a daily and a weekly cycle, a slow trend, and autoregressive noise.

x_c(t) = a_c sin(2 pi t / day + phi_c) + b_c sin(2 pi t / week + psi_c) + trend_c(t) + e_c(t)
e_c(t) = rho_c e_c(t - 1) + s_c N(0, 1),    trend_c: a sum of three sinusoids of D to 4 D days, D = `trend_days`

The cycles follow from the time alone, the level from the past. With 100 days, half a year of test rows has a level
that the training rows never had; with 20 days it does not, and scores separate a model that reads the past from one
that does not. Each data set has a series of its own.

n rows, C columns
"""

import zlib
from collections.abc import Sequence

import numpy as np
from scipy.signal import lfilter

from tasks.forecasting.series import Series

VERSION = 2  # raised when the same seed gives another series
START = np.datetime64("2016-07-01T00:00:00")


def generate(
    rows: int, columns: Sequence[str], minutes: int, *, name: str, seed: int, trend_days: float = 100
) -> Series:
    """A function of its arguments alone, the same on every machine."""
    draw = np.random.Generator(np.random.PCG64([seed, VERSION, zlib.crc32(name.encode())]))
    channels = len(columns)
    days = np.arange(rows)[:, None] * (minutes / (24 * 60))  # (n, 1)

    def waves(periods: np.ndarray, low: float, high: float) -> np.ndarray:
        size, phase = draw.uniform(low, high, channels), draw.uniform(0, 2 * np.pi, channels)
        return size * np.sin(2 * np.pi * days / periods + phase)

    values = waves(np.ones(channels), 0.5, 1.5) + waves(np.full(channels, 7.0), 0.2, 0.6)
    for _ in range(3):
        values += waves(draw.uniform(trend_days, 4 * trend_days, channels), 0.2, 0.8)
    memory, size = draw.uniform(0.7, 0.98, channels), draw.uniform(0.05, 0.2, channels)
    noise = size * draw.standard_normal((rows, channels))
    for channel in range(channels):
        values[:, channel] += lfilter([1.0], [1.0, -memory[channel]], noise[:, channel])
    times = START + np.arange(rows) * np.timedelta64(minutes * 60, "s")
    return Series(times.astype("datetime64[s]"), values, tuple(columns))
