"""Forecasts of one column, drawn over the past and the future."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

PAST, FUTURE, FORECAST = "#8c8c8c", "#1f1f1f", "#d1495b"


def draw(past: np.ndarray, future: np.ndarray, forecast: np.ndarray, *, numbers: Sequence[int], target: str) -> Figure:
    """past (B, S), future and forecast (B, P), windows one above another by their numbers."""
    figure = Figure(figsize=(7, 1.7 * len(past)), layout="constrained")
    axes = figure.subplots(len(past), sharex=True, squeeze=False)[:, 0]
    length = past.shape[1]
    ahead = np.arange(length, length + future.shape[1]) - length
    for axis, number, before, future_line, forecast_line in zip(axes, numbers, past, future, forecast, strict=True):
        axis.plot(np.arange(length) - length, before, color=PAST, linewidth=0.8, label="past")
        axis.plot(ahead, future_line, color=FUTURE, linewidth=0.8, label="future")
        axis.plot(ahead, forecast_line, color=FORECAST, linewidth=1.2, label="forecast")
        axis.axvline(0, color=PAST, linewidth=0.5, linestyle=":")
        error = float(np.square(forecast_line - future_line).mean())
        axis.set_title(f"test window {number:,} · MSE {error:.3f}", fontsize=8, loc="left")
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(fontsize=7, frameon=False, ncols=3, loc="upper right", bbox_to_anchor=(1.0, 1.35))
    axes[-1].set_xlabel("rows from now", fontsize=8)
    figure.supylabel(f"{target}, standardised", fontsize=8)
    return figure
