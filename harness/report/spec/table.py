"""The schema of `conf/table/<name>.yaml`. `harness.report.spec_files` reads it and adds the published numbers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from harness.config.overrides import to_overrides
from harness.config.table_rows import (
    PAPER,
    Row,
    Settings,
    as_composed,
    cell_settings,
    row_hours,
    row_name,
    runs,
    settings_key,
)
from harness.config.untrusted import check_shared
from harness.config.validation import TupleOf
from harness.errors import UsageError, did_you_mean
from harness.records.ledger import decimals
from harness.report.spec.parts import (
    Average,
    Column,
    Kind,
    Names,
    OfParts,
    PublishedNumber,
    SpecWithFootnotes,
    Tolerance,
    limit_in_unit,
    require_known,
)
from harness.report.stats.grouping import grouped

Pattern = Literal["noncausal_self", "causal_self", "noncausal_cross", "causal_cross"]


@dataclass(frozen=True)
class ResolvedColumn:
    """A column or an average as pages show it. `is_printed`: the paper prints it alone, not only within an average.

    `short_name`: the name without the last words that all parts of its average share, `ETTh1 S` for `ETTh1 S MSE`.
    `notes`: ids of its footnotes.
    """

    name: str
    short_name: str
    unit: str
    decimals: int
    higher_is_better: bool | None
    notes: tuple[str, ...]
    is_printed: bool

    @property
    def arrow(self) -> str:
        return {True: "↑", False: "↓", None: ""}[self.higher_is_better]

    @property
    def heading(self) -> str:
        """`Text, accuracy % ↑`"""
        unit = f", {self.unit}" if self.unit and self.unit != self.name else ""
        return f"{self.name}{unit} {self.arrow}".rstrip()

    def unsigned(self, value: float) -> str:
        return f"{value:.{self.decimals}f}"

    def signed(self, value: float | None) -> str:
        """`+0.42`; zero is `+0.00`, never `-0.00`; a dash for None."""
        return "–" if value is None else f"{value:+z.{self.decimals}f}"


class TableSpec(SpecWithFootnotes):
    """A table: the keys of its yaml, its `name`, and the `published` numbers by (row, column).

    `ledger: null`: our own table, without published numbers. `rows`: label in the ledger -> model and settings.
    `protocol`: the default of the rows. `gpu_hours`: per row and seed, one number or one per protocol. `unit`: of every
    column; by default that of the ledger. `only_rows`: an ablation on another table's task: cells that match no row are
    left out instead of shown under the name of their model. `elsewhere`: tables of the same cells, named in the yaml;
    cells of their rows are shown only there.

    `control`: models without any method. `reference`: models that all others are compared with. Of each, the first that
    has a row under a protocol counts. `why`: why tests do not separate the control, where that is known. `every`:
    patterns; every model with one of them has a row, named in `rows` or not. `without`: {model: why it has no row}.
    `budget`: the default budget of its cells. `search`: whether its rows search their learning rates, where the budget
    says so.

    `leaderboard`: the heading of its rows on the leaderboard; empty for a table that is not there.

    `block`: number of neighbouring test examples that are resampled together, because they overlap.
    """

    ledger: str | None
    protocol: str
    rows: dict[str, Row]
    columns: dict[str, Column]
    seeds: TupleOf[int]
    gpu_hours: float | dict[str, float] | None = None
    paper: str = ""
    tolerance: Tolerance | None = None
    unit: str = ""
    gpu: str = "GPU"
    chance: bool = False
    only_rows: bool = False
    elsewhere: "tuple[TableSpec, ...]" = ()
    averages: dict[str, Annotated[Average, OfParts]] = Field(default_factory=dict)
    control: Names = ()
    reference: Names = ()
    why: str = ""
    every: TupleOf[Pattern] = ()
    without: dict[str, str] = Field(default_factory=dict)
    budget: str = "reduced"
    search: bool = True
    leaderboard: str = ""
    block: int = Field(default=1, ge=1)
    published: dict[tuple[str, str], PublishedNumber] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, raw: Any) -> Any:
        """A row may be the name of its model; its protocol is that of the table by default."""
        if not isinstance(raw, dict) or not isinstance(raw.get("rows"), dict):
            return raw
        default = {"protocol": raw["protocol"]} if "protocol" in raw else {}
        rows = {label: {"model": row} if isinstance(row, str) else row for label, row in raw["rows"].items()}
        return raw | {"rows": {label: default | row if isinstance(row, dict) else row for label, row in rows.items()}}

    def check_names(self) -> None:
        for name, average in self.averages.items():
            require_known(f"averages.{name}", average.parts, self.columns)
            if not average.parts:
                raise ValueError(f"averages.{name} has no columns")
        for label, row in self.rows.items():
            require_known(f"rows.{label}.columns", row.columns or (), self.columns)
            require_known(f"rows.{label}.same_as", [row.same_as] if row.same_as else [], set(self.rows) - {label})
        models = {row.model for row in self.rows.values()}
        for key in ("control", "reference"):
            require_known(key, getattr(self, key), models)
            for name, column in self.columns.items():
                require_known(f"columns.{name}.{key}", getattr(column, key) or (), models)
        if isinstance(self.gpu_hours, dict):
            require_known("gpu_hours", self.protocols, self.gpu_hours)
        for key in ("tolerance", "gpu_hours"):
            if self.ledger is not None and getattr(self, key) is None:
                raise ValueError(f"{key}: missing")
        for name in self.own_columns:
            column = self.columns[name]
            if column.metric is not None and (column.unit is None or column.higher_is_better is None):
                raise ValueError(
                    f"columns.{name}: a metric that is published neither here nor in an average (column: null) takes "
                    "unit and higher_is_better"
                )
        for name in self._published_names:
            if self.columns[name].bench is not None:
                raise ValueError(f"columns.{name}: a bench column is ours: add column: null")

    @property
    def all_columns(self) -> tuple[str, ...]:
        """Columns and averages, in order."""
        return (*self.columns, *self.averages)

    @property
    def unpublished(self) -> tuple[str, ...]:
        """Columns whose numbers are published only within an average."""
        parts = {part for average in self.averages.values() for part in average.parts}
        return tuple(name for name in self.columns if name in parts and name not in self._published_names)

    @property
    def own_columns(self) -> tuple[str, ...]:
        """Columns that are neither published nor part of an average."""
        return tuple(name for name in self.columns if name not in {*self._published_names, *self.unpublished})

    @property
    def _published_names(self) -> set[str]:
        return {name for name, column in self.columns.items() if self.ledger is not None and column.column is not None}

    @property
    def verdict_columns(self) -> tuple[str, ...]:
        """Columns and averages whose printed numbers get a verdict; a mean of printed numbers adds no information."""
        unpublished = set(self.unpublished)
        means = (name for name, average in self.averages.items() if unpublished & set(average.parts))
        return (*(name for name in self.columns if name in self._published_names), *means)

    @property
    def protocols(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.protocol for row in self.rows.values()))

    def with_published(self, entries: Sequence[Mapping[str, Any]]) -> "TableSpec":
        """The table with the published numbers.

        Raises UsageError or ValueError unless every row of the ledger has a row here and every column a number.
        """
        left_out, published = {*self.unpublished, *self.own_columns}, {}
        for name, column in (self.columns | self.averages).items():
            if name in left_out:
                continue
            key = (column.column or name, column.condition)
            printed = [entry for entry in entries if (entry["column"], entry["condition"]) == key]
            if not printed:
                hint = did_you_mean(name, {entry["column"] for entry in entries})
                raise UsageError(f"columns: {self.ledger}.csv has no {name}: {hint}")
            papers = [label for label, row in self.rows.items() if not row.ours]
            require_known("rows", papers, {entry["row"] for entry in entries})
            require_known(f"{self.ledger}.csv: rows", {entry["row"] for entry in printed}, self.rows)
            numbers = [entry for entry in printed if not math.isnan(entry["number"])]
            if not numbers:
                raise UsageError(f"columns: {self.ledger}.csv prints no number in {name}")
            for entry in numbers:
                is_better = bool(entry["higher_is_better"])
                number = PublishedNumber(entry["value"], entry["number"], is_better, entry["unit"])
                published[entry["row"], name] = number
        return self.model_copy(update={"published": published})

    def for_protocol(self, protocol: str) -> "TableSpec":
        """A table of the rows of one protocol: rows of different protocols are never compared."""
        rows = {label: row for label, row in self.rows.items() if row.protocol == protocol}
        return self.model_copy(update={"protocol": protocol, "rows": rows})

    def hours_of(self, columns: Iterable[str]) -> float:
        """GPU-hours per row and seed in these columns."""
        return row_hours(self.gpu_hours or 0.0, self.protocol) * self._runs(columns) / self._runs(self.columns)

    def all_hours(self) -> float:
        """GPU-hours per seed of all rows, each in the columns that it is run in."""
        return sum(self.hours_of([name for name in self.columns if self.has(row, name)]) for row in self.rows)

    def _runs(self, columns: Iterable[str]) -> int:
        chosen = (self.columns[name] for name in columns)
        return runs((column.task, column.set) for column in chosen if column.task)

    def meanings(self, task: str) -> dict[tuple[str, Settings], list[tuple[str, str]]]:
        """(model, settings of its cells, at any budget) -> the (row, column) pairs of a task with exactly these."""
        columns = {name: column.set for name, column in self.columns.items() if column.task == task}
        return grouped(
            ((row.model, key), (label, name))
            for label, row in self.rows.items()
            for name, settings in columns.items()
            for key in {
                settings_key(as_composed(row.model, of_cells))
                for of_cells in ({**row.set, **settings}, cell_settings(row, settings, PAPER))
            }
        )

    def paper_recipe(self, row: str, column: str) -> tuple[str, ...]:
        """The overrides, without the model, that compose a row's cells in a column at the paper's budget. Raises
        UsageError for settings that a table may not make."""
        of_column, of_row = self.columns[column], self.rows[row]
        settings = to_overrides(cell_settings(of_row, of_column.set, PAPER))
        check_shared(settings, f"{row}, {column}: set")
        names = (f"task={of_column.task}", f"protocol={of_column.protocol or of_row.protocol}", "budget=paper")
        return (*names, *settings)

    def row_of_model(self, model: str) -> str | None:
        """The label of a model: its row with the fewest settings; None if no row has the model."""
        labels = [label for label, row in self.rows.items() if row.model == model]
        return min(labels, key=lambda label: len(self.rows[label].set), default=None)

    def row_of(self, side: Literal["control", "reference"], column: str) -> str | None:
        """The control row of a column, or the row that all others are compared with, in a table of one protocol; None
        without one."""
        models = getattr(self.columns[self.parts_of(column)[0]], side) or getattr(self, side)
        return next((row for model in models if (row := self.row_of_model(model)) is not None), None)

    def kind_of(self, column: str) -> Kind:
        """The kind of the numbers of a column or an average."""
        return self.columns[self.parts_of(column)[0]].kind

    def parts_of(self, column: str) -> tuple[str, ...]:
        """The columns of an average; of any other column itself alone."""
        return self.averages[column].parts if column in self.averages else (column,)

    def has(self, row: str, column: str) -> bool:
        """Whether a row is run in a column, or in every part of an average."""
        return self.rows[row].columns is None or set(self.parts_of(column)) <= set(self.rows[row].columns)

    def is_ours(self, row: str) -> bool:
        """Whether the paper's table lacks a row: a control, or a model of this repository."""
        return row not in self.rows or self.rows[row].ours

    def same_as(self, row: str) -> str:
        """The row with the same computation, which stands for both in tests; empty for any other row."""
        return self.rows[row].same_as if row in self.rows else ""

    def row_name(self, row: str) -> str:
        name = row_name(row)
        return f"{name} (not in the paper)" if self.is_ours(row) and self.paper else name

    def short_name(self, column: str) -> str:
        parts = next((average.parts for average in self.averages.values() if column in average.parts), ())
        if column not in self.unpublished or len(parts) < 2:
            return column
        from_behind = zip(*(part.split()[::-1] for part in parts), strict=False)
        shared = sum(1 for _ in takewhile(lambda words: len(set(words)) == 1, from_behind))
        return " ".join(column.split()[:-shared]) if shared else column

    def resolve(self, name: str) -> ResolvedColumn:
        """A column or an average as pages show it."""
        column = self.columns.get(name)
        if name in self.own_columns:
            unit, digits, higher_is_better = column.display
        else:
            # of a column that is printed within averages alone, these
            of_part = {mean for mean, average in self.averages.items() if name in average.parts}
            names = of_part if name in self.unpublished else {name}
            printed = [number for (_, column_name), number in self.published.items() if column_name in names]
            unit, higher_is_better = self.unit or printed[0].unit, printed[0].higher_is_better
            digits = column.decimals if column else None
            digits = max(decimals(number.text) for number in printed) if digits is None else digits
        notes, is_printed = self.footnotes_of(column=name), name not in self.unpublished
        return ResolvedColumn(name, self.short_name(name), unit, digits, higher_is_better, notes, is_printed)

    def unit_of(self, column: str) -> str:
        return self.resolve(column).unit

    def tolerances(self, paper: float) -> dict[str, float]:
        """{verdict: largest distance from a published number}, in its unit."""
        return {verdict: limit_in_unit(limit, paper) for verdict, limit in self.tolerance}
