"""The figures of `conf/figure`: of each kind, which module draws it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.config.places import below
from harness.errors import UsageError
from harness.report.plots import bubbles, costs, lines, matrix
from harness.report.plots.file import SUFFIXES, Plot, Sources
from harness.report.scores.lines import LineFigure
from harness.report.scores.matrices import MatrixFigure
from harness.report.spec.figure import FigureSpec, MeasuredFigure, PendingFigure

# each has `data(figure, sources)`, all that the picture shows as a plain mapping, and `draw(data)`
MOST_PANELS = 60
KINDS = {
    FigureSpec: bubbles,
    LineFigure: lines,
    MatrixFigure: matrix,
    MeasuredFigure: costs,
    PendingFigure: costs,
}


def figure_plot(figure: Any, sources: Sources, folder: Path) -> Plot:
    """The picture of a figure, `<folder>/<name>.{png,pdf}`. Raises UsageError."""
    kind = KINDS[type(figure)]
    data = kind.data(figure, sources)
    if len(data["panels"]) > MOST_PANELS:
        raise UsageError(f"{len(data['panels']):,} panels are more than {MOST_PANELS}; make several figures of it")
    return Plot(data, kind.draw, tuple(below(folder, f"{figure.name}.{suffix}") for suffix in SUFFIXES))


def without_numbers(
    figures: Sequence[Any], sources: Sources, made: Mapping[str, Plot] = {}
) -> list[tuple[Any, dict[str, Any]]]:
    """The figures that no run or measurement fills, each with what its panel says. `made`: plots that are known."""
    filled = (figure for figure in figures if not isinstance(figure, MatrixFigure))
    plots = [(figure, made.get(figure.name) or figure_plot(figure, sources, Path())) for figure in filled]
    return [(figure, dict(plot.data)) for figure, plot in plots if plot.shows_nothing]
