"""The picture of a table's page: the scores of its columns, or the heat map of a table that ranks its rows."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from harness.report.pages.answer import ColumnAnswer
from harness.report.pages.ranking import ranking
from harness.report.plots import drawn, heat_map, score_plot
from harness.report.plots.drawing import Draw, here
from harness.report.render.layout import Picture
from harness.report.scores.groups import ProtocolResults
from harness.report.spec.table import TableSpec


class TablePlot(NamedTuple):
    """`picture`: as the page shows it; `digest`: of what it shows; `draw` writes the file."""

    path: Path
    picture: Picture
    digest: str
    draw: Callable[[], None]

    def files(self, check: bool, draw: Draw = here) -> list[Path]:
        """Draw it by `draw`, unless it is there already. With `check`, the file if it is out of date."""
        current = drawn.is_current(self.path, self.digest)
        if check:
            return [] if current else [self.path]
        if not current:
            draw(self.draw, [self.path])
        return [self.path]


def plot_of(
    spec: TableSpec,
    results: Sequence[ProtocolResults],
    found: Sequence[ColumnAnswer],
    figures: Path,
    page: Path,
) -> TablePlot | None:
    """The picture of a table whose page is `page`; None where it has nothing to show."""
    plot, shown = (heat_map, ranking(spec, results)) if spec.every else (score_plot, found)
    if not (shown.rows if spec.every else score_plot.panels(found)):
        return None
    path = plot.path_of(spec.name, figures)
    draw = partial(plot.draw, spec.title, shown, path)
    return TablePlot(path, plot.picture(path, page), plot.digest_of(spec.title, shown), draw)
