"""Figures of cost against length: `conf/figure/<name>.yaml` with `kind: measured`, drawn from what do=bench measured.

A panel for time and one for memory, of each run on each machine, both axes logarithmic. A point that was not measured
but extrapolated or added up is hollow. A run without a measurement is a panel that says the command that makes it.
`kind: pending` is a figure that nothing here can draw yet: its one panel says what it needs.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.config.validation import StrictModel
from harness.report.plots import drawn
from harness.report.plots.bubble_plot import wrapped
from harness.report.plots.cost_axes import LOOK, cost_axes
from harness.report.plots.line_plot import COLOURS, MARKERS, REFERENCE, WIDTH
from harness.report.scores.measurements import describe_setting, has_series, label_of, of_run, series, slope
from harness.report.spec.measured import MeasuredRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DIGITS = 4  # all machines agree on these
VALUES = {"ms": "time, ms", "memory_mb": "memory, MiB"}


class MeasuredFigure(MeasuredRows):
    """The keys of the yaml. `x_label`: of the axis below; the length unless a run changes a setting."""

    x_label: str = "length, tokens"


class PendingFigure(StrictModel):
    """`needs`: what is missing. `command`: what makes it, if a command does."""

    name: str
    kind: Literal["pending"]
    title: str
    needs: str
    command: str = ""


@dataclass(frozen=True)
class CostLine:
    """`solid`: of each point, whether it was measured. `exponent`: of the upper half, as text."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    solid: tuple[bool, ...]
    exponent: str
    reference: bool = False


@dataclass(frozen=True)
class CostPanel:
    title: str
    y_label: str
    lines: tuple[CostLine, ...]
    notes: tuple[str, ...]


def panels(
    figure: MeasuredFigure | PendingFigure, measurements: Mapping[str, Mapping[str, Any]] | None
) -> list[CostPanel]:
    """One panel at least."""
    if isinstance(figure, PendingFigure):
        notes = [figure.needs, *([f"Command: {figure.command}"] if figure.command else [])]
        return [CostPanel("", "", (), tuple(notes))]
    found = [panel for run in figure.runs for panel in _of_run(figure, run, measurements or {})]
    return found


def _of_run(figure: MeasuredFigure, name: str, measurements: Mapping[str, Mapping[str, Any]]) -> Iterator[CostPanel]:
    run = figure.runs[name]
    found = of_run(run, measurements)
    if not found:
        need = {"cuda": "It needs a GPU."}.get(run.needs, run.needs)
        command = f"Not measured yet: python run.py do=bench figure={figure.name} bench.run={name}"
        yield CostPanel(name, "", (), tuple(filter(None, [command, need])))
    for measured in _fullest(figure, name, found):
        there = [each for each in run.modes if has_series(measured, run.what, *each)]
        for mode, batch in there:
            notes = [f"{describe_setting(dict(measured))}."]
            if not run.paper_size:
                notes.append(f"Not at the paper's size: {run.why}.")
            for key, y_label in VALUES.items():
                lines = tuple(_lines(figure, name, measured, mode, batch, key))
                title = ", ".join(filter(None, [name, mode, f"batch {batch}" if batch else ""]))
                yield CostPanel(title, y_label, lines, tuple(notes))


def _fullest(figure: MeasuredFigure, run: str, found: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Of each machine's measurements those with the most rows: one of a single model is part of a whole one."""
    rows = figure.rows_of(run).items()
    counts = [sum(label_of(row, name, each) is not None for name, row in rows) for each in found]
    for each, count in zip(found, counts, strict=True):
        pairs = zip(found, counts, strict=True)
        if count == max(many for other, many in pairs if other["hardware"] == each["hardware"]):
            yield each


def _lines(
    figure: MeasuredFigure, run: str, measured: Mapping[str, Any], mode: str | None, batch: int | None, key: str
) -> Iterator[CostLine]:
    for name, row in figure.rows_of(run).items():
        if (label := label_of(row, name, measured)) is None:
            continue
        points = series(measured, label, figure.runs[run].what, mode, batch)
        shown = [(p.get("value", p["length"]), p[key], p["status"] == "ok") for p in points if p.get(key, 0) > 0]
        if not shown:
            continue
        x, y, solid = zip(*shown, strict=True)
        fitted = slope(points, key)
        exponent = "" if fitted.value is None else f"{fitted.value:z.2f}{fitted.mark}"
        yield CostLine(name, x, tuple(map(_rounded, y)), solid, exponent, name == figure.reference)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def digest_of(figure: MeasuredFigure | PendingFigure, shown: Sequence[CostPanel]) -> str:
    """What these panels show, as 64 hexadecimal digits, which the files hold."""
    content = [LOOK, figure.title, getattr(figure, "x_label", ""), *(asdict(panel) for panel in shown)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def draw(figure: MeasuredFigure | PendingFigure, shown: Sequence[CostPanel], paths: Sequence[Path]) -> None:
    """Draw the panels, two in a row, into files."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(2, len(shown))
    rows = math.ceil(len(shown) / columns)
    tall = 3.9 if any(panel.lines for panel in shown) else 1.4
    size = (2 * WIDTH, 0.7 + tall * rows)
    page, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axis in grid.flat[len(shown) :]:
        axis.axis("off")
    for axis, panel in zip(grid.flat, shown, strict=False):
        _panel(axis, panel, getattr(figure, "x_label", ""), 2 // columns)
    page.suptitle(figure.title, fontsize=10)
    digest = digest_of(figure, shown)
    for path in paths:
        drawn.save(page, path, digest, dpi=200)
    plt.close(page)


def _panel(axis: "Axes", panel: CostPanel, x_label: str, upcast: int) -> None:
    axis.set_title(panel.title, fontsize=9)
    text = wrapped("\n".join(panel.notes), 60 * upcast)
    if not panel.lines:
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_color("0.8")
        axis.text(0.03, 0.97, text, transform=axis.transAxes, fontsize=7.5, va="top")
        return
    for place, line in enumerate(panel.lines):
        colour = REFERENCE if line.reference else COLOURS[place % len(COLOURS)]
        marker = "X" if line.reference else MARKERS[place % len(MARKERS)]
        label = line.label.replace("$", r"\$") + (f" (exponent {line.exponent})" if line.exponent else "")
        axis.plot(line.x, line.y, color=colour, linestyle="--" if line.reference else "-", linewidth=1.2)
        for solid in (True, False):
            kept = [(x, y) for x, y, measured in zip(line.x, line.y, line.solid, strict=True) if measured is solid]
            face = colour if solid else "none"
            x, y = zip(*kept, strict=True) if kept else ((), ())
            look = {"color": colour, "marker": marker, "markerfacecolor": face, "markersize": 4.5, "linestyle": "none"}
            axis.plot(x, y, **look)
        axis.plot([], [], color=colour, marker=marker, linestyle="--" if line.reference else "-", label=label)
    if not all(all(line.solid) for line in panel.lines):
        axis.plot([], [], "o", color="0.4", markerfacecolor="none", label="hollow: extrapolated or added up")
    points = [point for line in panel.lines for point in zip(line.x, line.y, strict=True)]
    cost_axes(axis, points, legend=len(panel.lines))
    axis.tick_params(labelsize=7)
    axis.set_xlabel(x_label, fontsize=8)
    axis.set_ylabel(panel.y_label, fontsize=8)
    axis.legend(fontsize=6.5, loc="upper left")
    axis.text(0, -0.22, text, transform=axis.transAxes, fontsize=6, color="0.25", va="top")
