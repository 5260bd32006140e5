"""A metric in each category of the test examples, where its task measures them apart: `cd_l1/airplane` of `cd_l1`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.report.describe import heading
from harness.report.layout import Block, Cell
from harness.report.render.tidy_csv import tidy_row
from harness.report.score import Score, scores, winner
from harness.report.spec import Spec

if TYPE_CHECKING:
    import pandas as pd


def by_category(
    spec: Spec, column: str, cells: "pd.DataFrame", configs: Mapping[str, dict[str, Any]]
) -> dict[str, list[Score]]:
    """Category -> scores as `scores` has them; empty for a metric that is not measured so. `cells` are the column's."""
    start = f"{spec.columns[column].metric}/"
    names = sorted({name.removeprefix(start) for each in cells["tested"] for name in each if name.startswith(start)})
    return {
        name: scores(cells.assign(score=[tested.get(start + name) for tested in cells["tested"]]), configs)
        for name in names
    }


def grid(spec: Spec, column: str, found: Mapping[str, Sequence[Score]], order: Sequence[Score], where: str) -> Block:
    """A line for each category, of which there may be many, and a column for each row that has a score, in `order`."""
    order = [score for score in order if score.estimate]
    names = [score.row + (f" ({score.setting})" if score.setting else "") for score in order]
    header = [Cell("category"), *map(Cell, names)]  # short: a page of LaTeX holds six of them
    decimals, body = spec.decimals(column), []
    for category, measured in found.items():
        of = {(score.row, score.setting): score for score in measured}
        best = winner(measured, spec.higher_is_better(column))
        shown = [of[score.row, score.setting] for score in order]
        body.append((Cell(category), *(Cell(each.text(decimals), bold=each is best) for each in shown)))
    return Block(f"{heading(spec, column)} · by category · {where}", tuple(header), tuple(body), "l" + "r" * len(order))


def tidy_rows(spec: Spec, column: str, found: Mapping[str, Sequence[Score]], **place: Any) -> list[dict[str, str]]:
    """Rows of the long CSV, of the column `<column>/<category>`. A baseline is known for the metric alone."""
    place |= {"beside_paper": False, "level": None}  # the paper prints none of them
    return [
        tidy_row(spec, score.row, f"{column}/{name}", score, **place)
        for name, measured in found.items()
        for score in measured
    ]
