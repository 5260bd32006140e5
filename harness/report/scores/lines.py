"""Figures of lines: `conf/figure/<name>.yaml` with `kind: lines` -> the lines of each panel.

A line shows how a score changes. Either the columns of a table are its points, each at a place that the yaml gives
(`points`: a line for each row), or the rows are, at their score in another column (`against`: a line for each model,
through its rows, and a panel for each of `columns`). Each budget has panels of its own. A point is the mean over seeds
of the unchanged recipe; its bar reaches from the lowest to the highest seed.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from harness.config.validation import StrictModel, TupleOf
from harness.report.scores.scores import chances
from harness.report.scores.select import select
from harness.report.spec.parts import require_known
from harness.report.spec.table import TableSpec

if TYPE_CHECKING:
    import pandas as pd

DIGITS = 4  # behind the point: what all machines agree on
Panel = dict[str, Any]  # of series, as `harness.report.plots.style` says


class LineFigure(StrictModel):
    """The keys of the yaml, its `name`, and the `table` that it names. `rows`: those that are drawn, None for all."""

    name: str
    kind: Literal["lines"]
    title: str
    table: TableSpec
    x_label: str
    y_label: str
    points: dict[str, float] = Field(default_factory=dict)
    against: str | None = None
    columns: TupleOf[str] = ()
    rows: TupleOf[str] | None = None
    reference: TupleOf[str] = ()
    log_x: bool = True

    @model_validator(mode="after")
    def _names_exist(self) -> "LineFigure":
        for key in ("columns", "rows", "reference"):
            names = getattr(self, key) or ()
            if len(set(names)) < len(names):
                raise ValueError(f"{key}: a name stands there twice")
        if bool(self.points) == (self.against is not None and bool(self.columns)):
            raise ValueError("a figure of lines has points, or against and columns")
        columns = self.table.columns
        require_known("points", self.points, columns)
        require_known("against", [self.against] if self.against else (), columns)
        require_known("columns", self.columns, columns)
        for key in ("rows", "reference"):
            require_known(key, getattr(self, key) or (), self.table.rows)
        return self


def panels(figure: LineFigure, cells: "pd.DataFrame") -> list[Panel]:
    """One panel at least; an empty one says which command fills it. `cells`: the frame of all records."""
    filled = [panel for protocol in figure.table.protocols for panel in _panels_of_protocol(figure, protocol, cells)]
    command = f"Not run yet: python run.py table={figure.table.name} budget=reduced"
    return filled or [_line_panel(figure, "", [], None, [command])]


def _line_panel(figure: LineFigure, title: str, series: list[dict], chance: float | None, notes: list[str]) -> Panel:
    panel = {"title": title, "x": figure.x_label, "y": figure.y_label, "log_x": figure.log_x, "log_y": False}
    return panel | {"series": series, "notes": notes} | ({} if chance is None else {"chance": chance})


def _panels_of_protocol(figure: LineFigure, protocol: str, cells: "pd.DataFrame") -> Iterator[Panel]:
    columns = select(cells, figure.table)[protocol]
    part = figure.table.for_protocol(protocol)
    budgets = sorted({budget for name in (*figure.points, *figure.columns) for budget in columns[name]["budget"]})
    for budget in budgets:
        measured = {name: _measured(column, budget) for name, column in columns.items()}
        if figure.points:
            yield _by_columns(figure, part, budget, measured)
        else:
            for name in figure.columns:
                yield _by_rows(figure, part, budget, name, measured)


def _measured(column: "pd.DataFrame", budget: str) -> "pd.DataFrame":
    """The scores of one budget by the unchanged recipe."""
    kept = (column["budget"] == budget) & (column["status"] == "done") & (column["setting"] == "")
    return column[kept & column["score"].notna()]


def _by_columns(figure: LineFigure, part: TableSpec, budget: str, columns: "Mapping[str, pd.DataFrame]") -> Panel:
    """A line for each row, through the columns."""
    lines = {}
    places = sorted(figure.points.items(), key=lambda item: item[1])
    for row in _rows_on_line(figure, part):
        scores = [(x, columns[name].loc[columns[name]["row"] == row, "score"], "") for name, x in places]
        if points := [point for point in scores if len(point[1])]:
            lines[row] = points
    return _filled(figure, part, f"{budget} budget", lines, _chance(columns, figure.points))


def _by_rows(
    figure: LineFigure, part: TableSpec, budget: str, name: str, columns: "Mapping[str, pd.DataFrame]"
) -> Panel:
    """A line for each model, through its rows by their places; it is called as the first row of the table."""
    by_model: dict[str, list[tuple[float, pd.Series, str]]] = {}
    for row in _rows_on_line(figure, part):
        scores, places = (columns[c].loc[columns[c]["row"] == row, "score"] for c in (name, figure.against))
        if len(scores) and len(places):
            by_model.setdefault(part.rows[row].model, []).append((float(places.mean()), scores, row))
    lines = {points[0][2]: sorted(points, key=lambda point: point[0]) for points in by_model.values()}
    return _filled(figure, part, f"{name}, {budget} budget", lines, _chance(columns, [name]))


def _filled(
    figure: LineFigure,
    part: TableSpec,
    title: str,
    lines: "Mapping[str, list[tuple[float, pd.Series, str]]]",
    chance: float | None,
) -> Panel:
    """`lines`: (place, scores of the seeds, label) of the points of each line; the label tells points apart."""
    series = []
    for name, points in lines.items():
        line = {"name": name, "model": part.rows[name].model}
        line["role"] = "reference" if name in figure.reference else ""
        line["x"] = [round(x, DIGITS) for x, _, _ in points]
        for key, statistic in (("y", "mean"), ("low", "min"), ("high", "max")):
            line[key] = [round(float(getattr(scores, statistic)()), DIGITS) for _, scores, _ in points]
        line["labels"] = [label for _, _, label in points]
        series.append(line)
    seeds = {len(scores) for points in lines.values() for _, scores, _ in points}
    span = " to ".join(str(count) for count in sorted({min(seeds), max(seeds)})) if seeds else "no"
    notes = [f"Mean of {span} seeds; bars from the lowest to the highest."]
    drawn = {*lines, *(label for points in lines.values() for _, _, label in points)}
    if missing := [row for row in _rows_on_line(figure, part) if row not in drawn]:
        notes.append(f"Not run: {', '.join(missing)}.")
    return _line_panel(figure, title, series, chance, notes)


def _rows_on_line(figure: LineFigure, part: TableSpec) -> list[str]:
    return [row for row in part.rows if figure.rows is None or row in figure.rows]


def _chance(columns: "Mapping[str, pd.DataFrame]", names: Iterable[str]) -> float | None:
    """The mean score of guessing in those of these columns where it is known."""
    by_column = [next(iter(of_data.values())) for name in names if (of_data := chances(columns[name]))]
    return round(sum(by_column) / len(by_column), DIGITS) if by_column else None
