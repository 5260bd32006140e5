"""Figures of lines: `conf/figure/<name>.yaml` with `kind: lines` -> the lines of each panel.

A line shows how a score changes. Either the columns of a table are its points, each at a place that the yaml gives
(`points`: a line for each row), or the rows are, at their score in another column (`against`: a line for each model,
through its rows, and a panel for each of `columns`). Each budget has panels of its own. A point is the mean over seeds
of the unchanged recipe; its bar reaches from the lowest to the highest seed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from harness.config.validation import StrictModel, TupleOf
from harness.report.scores.scores import chances
from harness.report.scores.select import select
from harness.report.spec.parts import require_known
from harness.report.spec.table import TableSpec

if TYPE_CHECKING:
    import pandas as pd


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
        if bool(self.points) == (self.against is not None and bool(self.columns)):
            raise ValueError("a figure of lines has points, or against and columns")
        known = self.table.columns
        require_known("points", self.points, known)
        require_known("against", [self.against] if self.against else (), known)
        require_known("columns", self.columns, known)
        for key in ("rows", "reference"):
            require_known(key, getattr(self, key) or (), self.table.rows)
        return self


@dataclass(frozen=True)
class Point:
    """`low` and `high`: of the seeds. `label`: what tells it from the other points of its line, if anything does."""

    x: float
    y: float
    low: float
    high: float
    label: str = ""


@dataclass(frozen=True)
class Line:
    label: str
    points: tuple[Point, ...]
    reference: bool = False


@dataclass(frozen=True)
class LinePanel:
    """`chance`: the score of guessing, None where it is not known. `notes` stand below."""

    title: str
    lines: tuple[Line, ...]
    chance: float | None
    notes: tuple[str, ...]


def panels(figure: LineFigure, cells: "pd.DataFrame") -> list[LinePanel]:
    """One panel at least; an empty one says which command fills it. `cells`: the frame of all records."""
    found = [panel for protocol in figure.table.protocols for panel in _panels_of(figure, protocol, cells)]
    command = f"Not run yet: python run.py table={figure.table.name} budget=reduced"
    return found or [LinePanel(figure.title, (), None, (command,))]


def _panels_of(figure: LineFigure, protocol: str, cells: "pd.DataFrame") -> Iterator[LinePanel]:
    columns = select(cells, figure.table)[protocol]
    part = figure.table.for_protocol(protocol)
    budgets = sorted({budget for name in (*figure.points, *figure.columns) for budget in columns[name]["budget"]})
    for budget in budgets:
        here = {name: _measured(column, budget) for name, column in columns.items()}
        if figure.points:
            yield _by_columns(figure, part, budget, here)
        else:
            for name in figure.columns:
                yield _by_rows(figure, part, budget, name, here)


def _measured(column: "pd.DataFrame", budget: str) -> "pd.DataFrame":
    """The scores of one budget by the unchanged recipe."""
    kept = (column["budget"] == budget) & (column["status"] == "done") & (column["setting"] == "")
    return column[kept & column["score"].notna()]


def _by_columns(figure: LineFigure, part: TableSpec, budget: str, columns: "Mapping[str, pd.DataFrame]") -> LinePanel:
    lines, seeds = [], set()
    for row in _rows(figure, part):
        points = []
        for name, x in sorted(figure.points.items(), key=lambda item: item[1]):
            scores = columns[name].loc[columns[name]["row"] == row, "score"]
            if len(scores):
                points.append(_point(x, scores))
                seeds.add(len(scores))
        if points:
            lines.append(Line(row, tuple(points), row in figure.reference))
    return LinePanel(
        f"{budget} budget", tuple(lines), _chance(columns, figure.points), _notes(figure, part, lines, seeds)
    )


def _by_rows(
    figure: LineFigure, part: TableSpec, budget: str, name: str, columns: "Mapping[str, pd.DataFrame]"
) -> LinePanel:
    by_model: dict[str, list[tuple[str, Point]]] = {}
    seeds = set()
    for row in _rows(figure, part):
        scores, places = (columns[c].loc[columns[c]["row"] == row, "score"] for c in (name, figure.against))
        if len(scores) and len(places):
            by_model.setdefault(part.rows[row].model, []).append((row, _point(float(places.mean()), scores, row)))
            seeds.add(len(scores))
    lines = []
    for found in by_model.values():
        points = tuple(point for _, point in sorted(found, key=lambda item: item[1].x))
        lines.append(Line(found[0][0], points, found[0][0] in figure.reference))
    title = f"{name}, {budget} budget"
    return LinePanel(title, tuple(lines), _chance(columns, [name]), _notes(figure, part, lines, seeds))


def _rows(figure: LineFigure, part: TableSpec) -> list[str]:
    return [row for row in part.rows if figure.rows is None or row in figure.rows]


def _point(x: float, scores: "pd.Series", label: str = "") -> Point:
    return Point(round(x, 4), *(round(float(value), 4) for value in (scores.mean(), scores.min(), scores.max())), label)


def _chance(columns: "Mapping[str, pd.DataFrame]", names: "Mapping[str, float] | list[str]") -> float | None:
    """What guessing scores in these columns, where that is known."""
    known = [next(iter(of_data.values())) for name in names if (of_data := chances(columns[name]))]
    return round(sum(known) / len(known), 4) if known else None


def _notes(figure: LineFigure, part: TableSpec, lines: list[Line], seeds: set[int]) -> tuple[str, ...]:
    drawn = {line.label for line in lines} | {point.label for line in lines for point in line.points}
    missing = [row for row in _rows(figure, part) if row not in drawn]
    span = " to ".join(str(count) for count in sorted({min(seeds), max(seeds)})) if seeds else "no"
    notes = [f"Mean of {span} seeds; bars from the lowest to the highest."]
    return (*notes, f"Not run: {', '.join(missing)}.") if missing else tuple(notes)
