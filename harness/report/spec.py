"""What `conf/table/<name>.yaml` says: rows, columns, averages, footnotes.

The classes are the keys of the file. `harness.report.spec_files` reads it and adds the published numbers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from harness.config.table_rows import Settings, row_hours, runs, settings_key
from harness.config.validation import StrictModel, TupleOf
from harness.errors import did_you_mean
from harness.records.ledger import decimals

RecordField = Literal["parameters", "attention_parameters", "tokens_per_s", "examples_per_s", "peak_memory_mb"]
# quantity -> unit, digits after the point, higher is better (None: neither way)
QUANTITIES: dict[str, tuple[str, int, bool | None]] = {
    "parameters": ("", 0, None),
    "attention_parameters": ("", 0, None),
    "tokens_per_s": ("tokens/s", 0, True),
    "examples_per_s": ("examples/s", 1, True),
    "peak_memory_mb": ("MiB", 0, False),
    "ms": ("ms", 1, False),
    "memory_mb": ("MiB", 1, False),
}


class BenchPoint(StrictModel):
    """What do=bench measured at one length. `measurements`: names of files in `results/bench/`; a row takes the first
    one that has its model with its `model.*` settings."""

    measurements: TupleOf[str]
    what: Literal["forward", "train", "decode"]
    length: int
    quantity: Literal["ms", "memory_mb"] = "ms"


class Column(StrictModel):
    """One measured column; exactly one of `metric`, `record_field`, `formula` and `bench` says what it shows.

    `evaluation`: the metric is of this further evaluation, not of the test. `formula`: an expression over the numbers
    of a cell's config (`harness.report.formula`). `set`: what its cells set on top of their rows. `column` and
    `condition` are the ledger's, where they are not the yaml's own key; `column: null`: the paper prints no such
    number. `unit`, `decimals` and `higher_is_better`: where no number is published.
    """

    task: str | None = None
    metric: str | None = None
    evaluation: str | None = None
    record_field: RecordField | None = Field(default=None, alias="field")
    formula: str | None = None
    bench: BenchPoint | None = None
    column: str | None = ""
    condition: str = ""
    set: dict[str, Any] = Field(default_factory=dict)
    unit: str | None = None
    decimals: int | None = None
    higher_is_better: bool | None = None

    @model_validator(mode="after")
    def _is_one_kind(self) -> "Column":
        kinds = {"metric": self.metric, "field": self.record_field, "formula": self.formula, "bench": self.bench}
        given = [name for name, value in kinds.items() if value is not None]
        if len(given) != 1:
            raise ValueError(f"one of {', '.join(kinds)} is expected, not {' and '.join(given) or 'none'}")
        if (self.bench is None) == (self.task is None):
            raise ValueError("a column has a task, or bench without a task")
        if self.evaluation is not None and self.metric is None:
            raise ValueError("evaluation comes with the metric of it")
        return self

    @property
    def display(self) -> tuple[str, int, bool | None]:
        """Unit, digits after the point, and whether higher is better, of a column without published numbers."""
        quantity = self.bench.quantity if self.bench else self.record_field
        unit, digits, higher = QUANTITIES.get(quantity, ("", 0 if self.formula else 2, None))
        return (
            unit if self.unit is None else self.unit,
            digits if self.decimals is None else self.decimals,
            higher if self.higher_is_better is None else self.higher_is_better,
        )


class Average(StrictModel):
    """The mean of some columns, as the paper prints it; a list in the yaml is its `parts` alone."""

    parts: TupleOf[str]
    column: str = ""
    condition: str = ""


class Footnote(StrictModel):
    """A known defect of published numbers: of these rows and columns, None for all."""

    id: str
    text: str
    rows: TupleOf[str] | None = None
    columns: TupleOf[str] | None = None


class RowSpec(StrictModel):
    """As `harness.config.table_rows.Row`. `protocol` is the table's unless the row names one."""

    model: str
    protocol: str
    set: dict[str, Any] = Field(default_factory=dict)
    ours: bool = False


def limit_in_unit(limit: float | str, paper: float) -> float:
    """A tolerance in the unit of the published number. Raises ValueError."""
    try:
        return abs(paper) * float(limit.removesuffix("%")) / 100 if isinstance(limit, str) else float(limit)
    except ValueError as error:
        raise ValueError(f"{limit!r} is neither a number nor a percentage like 2 %") from error


def _checked_limit(limit: Any) -> Any:
    if isinstance(limit, str):
        limit_in_unit(limit, 1.0)
    return limit


Limit = Annotated[float | str, BeforeValidator(_checked_limit)]  # in the column's unit, or of the paper's number: "2 %"


class Tolerance(StrictModel):
    reproduced: Limit
    close: Limit


@dataclass(frozen=True)
class PublishedNumber:
    """A published number, as printed."""

    text: str
    number: float
    higher_is_better: bool
    unit: str


class TableSpec(StrictModel):
    """A table: the keys of its yaml, its `name`, and the `published` numbers of its (row, column) pairs.

    `ledger: null`: a table of ours without published numbers. `rows`: the ledger's label -> what runs there.
    `protocol`: of the rows that name none. `gpu_hours`: of one row and seed, or {protocol: of one of its rows}.
    `unit`: of every column; without it each has the ledger's.
    """

    name: str
    title: str
    ledger: str | None
    protocol: str
    rows: dict[str, RowSpec]
    columns: dict[str, Column]
    seeds: TupleOf[int]
    gpu_hours: float | dict[str, float]
    paper: str = ""
    tolerance: Tolerance | None = None
    unit: str = ""
    gpu: str = "GPU"
    chance: bool = False
    averages: dict[str, Average] = Field(default_factory=dict)
    footnotes: TupleOf[Footnote] = ()
    published: dict[tuple[str, str], PublishedNumber] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, raw: Any) -> Any:
        """A row may be the name of its model, an average the list of its parts."""
        if not isinstance(raw, dict):
            return raw
        raw = dict(raw)
        if isinstance(raw.get("rows"), dict):
            default = {"protocol": raw["protocol"]} if "protocol" in raw else {}
            rows = {label: {"model": row} if isinstance(row, str) else row for label, row in raw["rows"].items()}
            raw["rows"] = {label: default | row if isinstance(row, dict) else row for label, row in rows.items()}
        if isinstance(raw.get("averages"), dict):
            averages = raw["averages"].items()
            raw["averages"] = {name: {"parts": each} if isinstance(each, list) else each for name, each in averages}
        return raw

    @model_validator(mode="after")
    def _names_exist(self) -> "TableSpec":
        for name, average in self.averages.items():
            require_known(f"averages.{name}", average.parts, self.columns)
        for note in self.footnotes:
            require_known(f"footnotes.{note.id}.rows", note.rows or (), self.rows)
            require_known(f"footnotes.{note.id}.columns", note.columns or (), self.all_columns)
        if isinstance(self.gpu_hours, dict):
            require_known("gpu_hours", self.protocols, self.gpu_hours)
        if self.ledger is not None and self.tolerance is None:
            raise ValueError("tolerance: missing")
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
        return self

    @property
    def all_columns(self) -> tuple[str, ...]:
        """Columns and averages, in order."""
        return (*self.columns, *self.averages)

    @property
    def unpublished(self) -> tuple[str, ...]:
        """Columns that are published in their average alone."""
        parts = {part for average in self.averages.values() for part in average.parts}
        return tuple(name for name in self.columns if name in parts and name not in self._published_names)

    @property
    def own_columns(self) -> tuple[str, ...]:
        """Columns of ours: neither published nor part of an average."""
        return tuple(name for name in self.columns if name not in {*self._published_names, *self.unpublished})

    @property
    def compared_columns(self) -> tuple[str, ...]:
        """Columns that are published, alone or in their average."""
        return tuple(name for name in self.columns if name not in self.own_columns)

    @property
    def _published_names(self) -> set[str]:
        return {name for name, column in self.columns.items() if self.ledger is not None and column.column is not None}

    @property
    def verdict_columns(self) -> tuple[str, ...]:
        """Columns and averages whose printed numbers count; a mean of printed numbers says nothing new."""
        unpublished = set(self.unpublished)
        means = (name for name, average in self.averages.items() if unpublished & set(average.parts))
        return (*(name for name in self.columns if name in self._published_names), *means)

    @property
    def protocols(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.protocol for row in self.rows.values()))

    def for_protocol(self, protocol: str) -> "TableSpec":
        """The rows of one protocol as a table of their own: rows of two are never compared."""
        rows = {label: row for label, row in self.rows.items() if row.protocol == protocol}
        return self.model_copy(update={"protocol": protocol, "rows": rows})

    def hours_of(self, columns: Iterable[str]) -> float:
        """GPU-hours of one row and seed in these columns."""
        return row_hours(self.gpu_hours, self.protocol) * self._runs(columns) / self._runs(self.columns)

    def _runs(self, columns: Iterable[str]) -> int:
        chosen = (self.columns[name] for name in columns)
        return runs((column.task, column.set) for column in chosen if column.task)

    def meanings(self, task: str) -> dict[tuple[str, Settings], list[tuple[str, str]]]:
        """(model, what its cells set) -> the (row, column) pairs of a task that mean just that."""
        found: dict[tuple[str, Settings], list[tuple[str, str]]] = {}
        for label, row in self.rows.items():
            for name, column in self.columns.items():
                if column.task == task:
                    found.setdefault((row.model, settings_key({**row.set, **column.set})), []).append((label, name))
        return found

    def row_of_model(self, model: str) -> str | None:
        """The paper's name of a model, of its plainest row; None if its table has no such row."""
        labels = [label for label, row in self.rows.items() if row.model == model]
        return min(labels, key=lambda label: len(self.rows[label].set), default=None)

    def is_ours(self, row: str) -> bool:
        """A row that the paper's table lacks: a control, or a model of ours."""
        return row not in self.rows or self.rows[row].ours

    def short_name(self, column: str) -> str:
        """`ETTh1 S` of `ETTh1 S MSE`: without the last words that it shares with all parts of its mean."""
        parts = next((average.parts for average in self.averages.values() if column in average.parts), ())
        if column not in self.unpublished or len(parts) < 2:
            return column
        from_behind = zip(*(part.split()[::-1] for part in parts), strict=False)
        shared = sum(1 for _ in takewhile(lambda words: len(set(words)) == 1, from_behind))
        return " ".join(column.split()[:-shared]) if shared else column

    def _published_in(self, column: str) -> list[PublishedNumber]:
        """The paper's numbers of a column; of the means that it is part of, where it has none."""
        names = {column}
        if column in self.unpublished:
            names = {name for name, average in self.averages.items() if column in average.parts}
        return [number for (_, name), number in self.published.items() if name in names]

    def decimals(self, column: str) -> int:
        if column in self.own_columns:
            return self.columns[column].display[1]
        return max(decimals(number.text) for number in self._published_in(column))

    def higher_is_better(self, column: str) -> bool | None:
        if column in self.own_columns:
            return self.columns[column].display[2]
        return self._published_in(column)[0].higher_is_better

    def unit_of(self, column: str) -> str:
        if column in self.own_columns:
            return self.columns[column].display[0]
        return self.unit or self._published_in(column)[0].unit

    def tolerances(self, paper: float) -> dict[str, float]:
        """How far from a published number `reproduced` and `close` reach, in its unit."""
        return {verdict: limit_in_unit(limit, paper) for verdict, limit in self.tolerance}

    def footnotes_of(self, *, row: str | None = None, column: str | None = None) -> tuple[str, ...]:
        """Footnotes of a row, of a column, or, with both given, of that one number alone."""
        found = []
        for note in self.footnotes:
            by_row, by_column = note.rows is not None, note.columns is not None
            if (by_row, by_column) != (row is not None, column is not None):
                continue
            if (not by_row or row in note.rows) and (not by_column or column in note.columns):
                found.append(note.id)
        return tuple(found)

    def all_footnotes(self, row: str, column: str) -> tuple[str, ...]:
        """Every footnote that bears on one published number."""
        of_lines = (*self.footnotes_of(column=column), *self.footnotes_of(row=row))
        found = (*of_lines, *self.footnotes_of(row=row, column=column))
        return tuple(dict.fromkeys(found))


def require_known(where: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raises ValueError for a name that is not known."""
    known = list(known)
    for name in names:
        if name not in known:
            raise ValueError(f"{where}: there is no '{name}': {did_you_mean(str(name), map(str, known))}")
