"""Interactive charts of the site: cost against length, score against length, score against speed and memory.

The same panels that `harness.report` draws into pictures, as series of points.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.report.pages import bench_tables
from harness.report.scores import lines, tradeoff
from harness.report.scores.measurements import describe_setting
from harness.report.spec.figure import FigureSpec

if TYPE_CHECKING:
    import os

    import pandas as pd

DIGITS = 4  # all machines agree on these
FEW = 3  # models in a title
COSTS = {"ms": "ms", "memory_mb": "MiB"}


def of_measurement(name: str, measured: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Time and memory of every model against the length, a chart for each thing that was timed."""
    found = []
    if measured["kind"] != "bench":
        return found
    for what, by_model in bench_tables.measures(dict(measured)):
        for key, unit in COSTS.items():
            series = []
            for model, points in by_model.items():
                ended = [p for p in points if p["status"] == "ok" and isinstance(p.get(key), int | float)]
                kept = [(bench_tables.place(p), p[key]) for p in ended if p[key] > 0]  # a logarithm has no place for 0
                if kept:
                    series.append(_series(model, [x for x, _ in kept], [y for _, y in kept]))
            if series:
                title = f"{bench_tables.title_of(what)}, {unit}: {_names(list(by_model))}"
                found.append(
                    _chart(f"bench-{name}-{what}-{key}", title, "length, tokens", unit, series, True, True)
                    | {"note": describe_setting(dict(measured)), "picture": f"figures/bench/{name}.png"}
                )
    return found


def _names(models: list[str]) -> str:
    """Measurements differ in their models first: `lavo, latte and 5 more`."""
    few = models if len(models) <= FEW + 1 else [*models[:FEW], f"{len(models) - FEW} more"]
    return ", ".join(few[:-1]) + " and " * (len(few) > 1) + few[-1]


def of_figure(figure: Any, cells: "pd.DataFrame", paper_root: "str | os.PathLike[str]") -> list[dict[str, Any]]:
    """The panels of a figure of lines or of bubbles; nothing of any other, which is a picture alone."""
    picture = {"picture": f"figures/{figure.name}.png"}
    if isinstance(figure, lines.LineFigure):
        return [
            _line_chart(figure, place, panel) | picture
            for place, panel in enumerate(lines.panels(figure, cells))
            if panel.lines
        ]
    if isinstance(figure, FigureSpec):
        return [
            _bubble_chart(figure, place, panel) | picture
            for place, panel in enumerate(tradeoff.panels(figure, cells, paper_root))
            if panel.bubbles
        ]
    return []


def _line_chart(figure: lines.LineFigure, place: int, panel: lines.LinePanel) -> dict[str, Any]:
    series = []
    for line in panel.lines:
        points = line.points
        one = _series(line.label, [p.x for p in points], [p.y for p in points], [p.label for p in points])
        series.append(one | {"low": _rounded([p.low for p in points]), "high": _rounded([p.high for p in points])})
    name = f"{figure.name.replace('/', '-')}-{place}"
    title = f"{figure.title}: {panel.title}"
    note = " ".join(panel.notes)
    return _chart(name, title, figure.x_label, figure.y_label, series, figure.log_x, False) | {"note": note}


def _bubble_chart(figure: FigureSpec, place: int, panel: tradeoff.Panel) -> dict[str, Any]:
    series = [
        _series(b.label, [b.speed], [b.accuracy]) | {"size": _rounded([b.memory]), "mark": b.kind}
        for b in panel.bubbles
    ]
    name = f"{figure.name.replace('/', '-')}-{place}"
    title = f"{figure.title}: {' '.join(panel.title.split())}"
    x = f"speed relative to {figure.reference}; size: memory"
    return _chart(name, title, x, figure.accuracy, series, False, False) | {"note": " ".join(panel.lines)}


def _series(name: str, x: list[float], y: list[float], labels: list[str] | None = None) -> dict[str, Any]:
    return {"name": name, "x": _rounded(x), "y": _rounded(y)} | ({"labels": labels} if any(labels or ()) else {})


def _rounded(values: list[float]) -> list[float]:
    """Whole numbers, such as lengths, stay as they are."""
    return [value if isinstance(value, int) else float(f"{value:.{DIGITS}g}") for value in values]


def _chart(
    name: str, title: str, x: str, y: str, series: list[dict[str, Any]], log_x: bool, log_y: bool
) -> dict[str, Any]:
    return {"name": name, "title": title, "x": x, "y": y, "log_x": log_x, "log_y": log_y, "series": series}
