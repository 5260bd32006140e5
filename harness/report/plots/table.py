"""The picture of a table's page: the scores of its columns, or, for a table that ranks its rows, the heat map."""

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

SCORES, RANKS = SUFFIXES = ("-scores", "-ranks")  # of the files, behind the name of the table


class TablePlot(NamedTuple):
    """`picture`: as the page shows it; None for a plot that shows nothing, whose former file goes."""

    plot: Plot
    picture: Picture | None


def table_plots(
    spec: TableSpec, results: Sequence[ProtocolResults], answers: Sequence[ColumnAnswer], figures: Path, page: Path
) -> list[TablePlot]:
    """The pictures of a table whose page is `page`, in the page's order; none where there is nothing to show."""

    def path(suffix: str) -> tuple[Path]:
        return (figures / f"{spec.name}{suffix}.png",)

    def shown(plot: Plot, heading: str, caption: str) -> TablePlot:
        link = Path(os.path.relpath(plot.paths[0], page.parent)).as_posix()
        return TablePlot(plot, Picture(heading, caption, link))

    if spec.every:
        ranks = ranking(spec, results)
        if not ranks.rows:
            return []
        heat_map = Plot(heat.data(spec.title, ranks), heat.draw, path(RANKS), dpi=180)
        return [shown(heat_map, "Heat map", heat.CAPTION)]
    plot = Plot(scores.data(spec.title, answers), scores.draw, path(SCORES), dpi=130)
    return [TablePlot(plot, None) if plot.shows_nothing else shown(plot, "Scores and intervals", scores.CAPTION)]
