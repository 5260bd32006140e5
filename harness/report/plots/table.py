"""The picture of a table's page: the scores of its columns, or the heat map of a table that ranks its rows."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from harness.report.pages.answer import ColumnAnswer
from harness.report.pages.ranking import ranking
from harness.report.plots import heat, scores
from harness.report.plots.file import Plot
from harness.report.render.layout import Picture
from harness.report.scores.groups import ProtocolResults
from harness.report.spec.table import TableSpec


class TablePlot(NamedTuple):
    """`picture`: as the page shows it."""

    plot: Plot
    picture: Picture


def scores_plot(
    spec: TableSpec, results: Sequence[ProtocolResults], answers: Sequence[ColumnAnswer], figures: Path, page: Path
) -> TablePlot | None:
    """The picture of a table whose page is `page`; None where it has nothing to show."""
    if spec.every:
        ranks = ranking(spec, results)
        if not ranks.rows:
            return None
        plot = Plot(heat.data(spec.title, ranks), heat.draw, (figures / f"{spec.name}-ranks.png",), dpi=180)
        heading, caption = "Heat map", heat.CAPTION
    else:
        shown = scores.data(spec.title, answers)
        if not shown["panels"]:
            return None
        plot = Plot(shown, scores.draw, (figures / f"{spec.name}-scores.png",), dpi=130)
        heading, caption = "Scores and intervals", scores.CAPTION
    link = Path(os.path.relpath(plot.paths[0], page.parent)).as_posix()
    return TablePlot(plot, Picture(heading, caption, link))
