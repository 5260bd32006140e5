"""Which module draws what: each kind of figure of `conf/figure`, and the pictures of a table's page: the scores of its
columns and the searches of its learning rates or, for a table of every model, the heat map."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.config.places import below
from harness.errors import UsageError
from harness.report.pages.answer import ColumnAnswer
from harness.report.plots import costs, heat, lines, rates, scores
from harness.report.plots.file import SUFFIXES, Plot, Sources
from harness.report.render.layout import Picture
from harness.report.scores.tuning import Selected
from harness.report.spec.figure import LineFigure, MeasuredFigure, PendingFigure, PictureFigure
from harness.report.spec.table import TableSpec

# of the files, behind the name of the table
SCORES, RATES, ABILITIES = TABLE_SUFFIXES = ("-scores", "-rates", "-abilities")
# each has `data(figure, sources)`, all that the picture shows as a plain mapping, and `draw(data)`
MOST_PANELS = 60
KINDS = {LineFigure: lines, MeasuredFigure: costs, PendingFigure: costs}


def figure_plot(figure: Any, sources: Sources, folder: Path) -> Plot:
    """The picture of a figure, `<folder>/<name>.{png,pdf}`. Raises UsageError."""
    if isinstance(figure, PictureFigure):
        raise UsageError(f"{figure.source} draws this figure; do=report leaves its picture as it is")
    kind = KINDS[type(figure)]
    data = kind.data(figure, sources)
    if len(data["panels"]) > MOST_PANELS:
        raise UsageError(f"{len(data['panels']):,} panels are more than {MOST_PANELS}; make several figures of it")
    return Plot(data, kind.draw, tuple(below(folder, f"{figure.name}.{suffix}") for suffix in SUFFIXES))


def figure_pictures(figures: Sequence[LineFigure], plots: Mapping[str, Plot], page: Path) -> list[Picture]:
    """What the page of a table shows of its figures: those with numbers."""
    pictures = []
    for figure in figures:
        if not (plot := plots[figure.name]).shows_nothing:
            link = Path(os.path.relpath(plot.paths[0], page.parent)).as_posix()
            pictures.append(Picture(figure.title, "", link, message=plot.data["title"]))
    return pictures


def without_numbers(
    figures: Sequence[Any], sources: Sources, made: Mapping[str, Plot] = {}
) -> list[tuple[Any, dict[str, Any]]]:
    """The figures that no run or measurement fills, each with what its panel says. `made`: plots that are known."""
    filled = (figure for figure in figures if not isinstance(figure, PictureFigure))
    plots = [(figure, made.get(figure.name) or figure_plot(figure, sources, Path())) for figure in filled]
    return [(figure, dict(plot.data)) for figure, plot in plots if plot.shows_nothing]


def table_plots(
    spec: TableSpec,
    selected: Selected,
    answers: Sequence[ColumnAnswer],
    figures: Path,
    page: Path,
) -> list[tuple[Plot, Picture | None]]:
    """The plots of a table whose page is `page`, each with the picture that the page shows: None of a plot that shows
    nothing, whose former file goes. `selected`: as `select` returns it."""
    if spec.every:
        kinds = [("Abilities", rates, ABILITIES, heat.data(spec.title, answers))]
    else:
        ranking_rows = [answer for answer in answers if answer.tests.ranks]  # of others a picture tells nothing
        kinds = [
            ("Scores and intervals", scores, SCORES, scores.data(spec.title, ranking_rows)),
            ("Scores by learning rate", rates, RATES, rates.data(spec, selected)),
        ]
    plots = []
    for heading, kind, suffix, data in kinds:
        plot = Plot(data, kind.draw, (figures / f"{spec.name}{suffix}.png",), dpi=130)
        link = Path(os.path.relpath(plot.paths[0], page.parent)).as_posix()
        picture = Picture(heading, "", link, message=data["title"])
        plots.append((plot, None if plot.shows_nothing else picture))
    return plots
