"""Learning curves in a picture, with panels for the metric, the training loss and the learning rate."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.config.cell import values_at
from harness.config.search import RATE
from harness.config.table_rows import row_name
from harness.records.curves import Curve, Panel
from harness.report.plots import style
from harness.report.plots.file import Plot
from harness.report.plots.lines import draw, spread


def curves_plot(title: str, shown: Sequence[Panel], path: Path) -> Plot:
    """The panels below each other, validation metric on the left and training loss on the right, as a PNG.

    The right side is left out where there is no training loss, as in records alone. The best validation metric against
    the learning rate follows where a model has runs at several rates.
    """
    sides = ["val", "loss"] if any(curve.loss for panel in shown for curve in _curves(panel)) else ["val"]
    panels = [panel | {"series": list(lines)} for of_runs in shown for panel, lines in _sides(of_runs, sides)]
    panels += [panel for of_runs in shown if (panel := _rates(of_runs))["series"]]
    several = any(len(line.curves) > 1 for panel in shown for line in panel.lines)
    if several:
        title += "\nthick: mean over seeds, thin: each seed"
    return Plot({"title": title, "panels": style.with_looks(panels)}, draw, (path,), dpi=130)


def _sides(panel: Panel, sides: Sequence[str]) -> Iterator[tuple[dict[str, Any], Iterator[dict[str, Any]]]]:
    """The panels of `harness.report.plots.style` for `val` and `loss`, and their series."""
    arrow = "↑" if panel.higher_is_better else "↓"
    labels = {"val": f"validation {panel.metric} {arrow}", "loss": "training loss ↓"}
    for quantity in sides:
        is_left = quantity == "val"
        side = {"title": panel.title if is_left else "", "side": "left", "x": "step", "y": labels[quantity]}
        side["log_x"] = False
        side["notes"] = []
        side["log_y"] = spread(list(_values_of(panel, quantity)))
        if is_left and panel.chance is not None:
            side["chance"] = panel.chance
        yield side, _series(panel, quantity)


def _rates(panel: Panel) -> dict[str, Any]:
    """The best metric of each model's runs against the learning rate, mean over the runs at a rate."""
    models: dict[str, dict[float, list[float]]] = {}
    for curve in _curves(panel):
        rate, best = values_at(curve.config, [RATE]).get(RATE), curve.best(panel.higher_is_better)
        if rate and math.isfinite(best):
            models.setdefault(curve.model, {}).setdefault(float(rate), []).append(best)
    series = [
        {"name": row_name(model), "model": model, "role": "", "x": sorted(found), "thin": [], "marked": True}
        | {"y": [statistics.fmean(found[rate]) for rate in sorted(found)]}
        for model, found in models.items()
        if len(found) > 1
    ]
    arrow = "↑" if panel.higher_is_better else "↓"
    axes = {"x": "learning rate", "y": f"best validation {panel.metric} {arrow}", "log_x": True, "log_y": False}
    ticks = sorted({rate for found in models.values() for rate in found})
    return {"title": panel.title, "side": "left", "notes": [], "series": series, "ticks": ticks} | axes


def _series(panel: Panel, quantity: str) -> Iterator[dict[str, Any]]:
    for line in panel.lines:
        line = replace(line, curves=tuple(curve for curve in line.curves if getattr(curve, quantity)))
        if not line.curves:
            continue
        x, y = line.mean(quantity)
        thin = [[curve.steps, getattr(curve, quantity)] for curve in line.curves] if len(line.curves) > 1 else []
        name = {"name": line.label, "model": line.curves[0].model, "role": ""}
        yield name | {"x": x, "y": y, "thin": thin, "marked": False}


def _curves(panel: Panel) -> Iterator[Curve]:
    return (curve for line in panel.lines for curve in line.curves)


def _values_of(panel: Panel, quantity: str) -> Iterator[float]:
    return (value for curve in _curves(panel) for value in getattr(curve, quantity))
