"""The parts of `conf/table/<name>.yaml`: its rows, columns, averages, footnotes and tolerances."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from harness.config.validation import StrictModel, TupleOf
from harness.errors import did_you_mean

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
UNITS = {"M": 1e6}  # what a published number counts in, where a record counts ones


def one_or_more(raw: Any, *keys: str) -> Any:
    """A mapping whose `keys` may hold a name instead of a list of names."""
    if not isinstance(raw, dict):
        return raw
    return raw | {key: [raw[key]] for key in keys if isinstance(raw.get(key), str)}


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
    of a cell's config (`harness.report.spec.formula`). `set`: what its cells set on top of their rows. `column` and
    `condition` are the ledger's, where they are not the yaml's own key; `column: null`: the paper prints no such
    number. `protocol`: of its cells, whatever their rows name. `unit` and `higher_is_better`: where no number is
    published; `decimals`: of our numbers, as many as of the published ones unless given. `cost`: a metric that is no
    score, such as the size of a state. `control`, `reference`, `block` and `why` are the table's unless the column has
    its own.
    """

    task: str | None = None
    metric: str | None = None
    evaluation: str | None = None
    record_field: RecordField | None = Field(default=None, alias="field")
    formula: str | None = None
    bench: BenchPoint | None = None
    column: str | None = ""
    condition: str = ""
    protocol: str | None = None
    block: int | None = Field(default=None, ge=1)
    set: dict[str, Any] = Field(default_factory=dict)
    unit: str | None = None
    decimals: int | None = None
    higher_is_better: bool | None = None
    cost: bool = False
    control: TupleOf[str] | None = None
    reference: TupleOf[str] | None = None
    why: str = ""

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, raw: Any) -> Any:
        return one_or_more(raw, "control", "reference")

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
    def ranks(self) -> bool:
        """Whether its rows are compared by tests; a cost, such as a number of parameters, is not."""
        return self.metric is not None and not self.cost

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


class SpecWithFootnotes(StrictModel):
    """What all tables have: a name, a title and footnotes. Subclasses have `rows`, and `columns` if notes name them."""

    name: str
    title: str
    footnotes: TupleOf[Footnote] = ()

    def check_names(self) -> None:
        """Raises ValueError for a name that stands for nothing in this table."""

    @model_validator(mode="after")
    def _names_exist(self) -> "SpecWithFootnotes":
        self.check_names()
        for note in self.footnotes:
            require_known(f"footnotes.{note.id}.rows", note.rows or (), self.rows)
            require_known(f"footnotes.{note.id}.columns", note.columns or (), self.all_columns)
        return self

    @property
    def all_columns(self) -> Iterable[str]:
        """The columns that a footnote may name."""
        return getattr(self, "columns", ())

    def footnotes_of(self, *, row: str | None = None, column: str | None = None) -> tuple[str, ...]:
        """Ids of the footnotes of a row, of a column, of that one number with both given, or of the whole table."""
        notes = (note for note in self.footnotes if _names(note.rows, row) and _names(note.columns, column))
        return tuple(note.id for note in notes)

    def all_footnotes(self, row: str, column: str) -> tuple[str, ...]:
        """Ids of all footnotes that bear on one number."""
        shared = (*self.footnotes_of(column=column), *self.footnotes_of(row=row))
        return tuple(dict.fromkeys((*shared, *self.footnotes_of(row=row, column=column), *self.footnotes_of())))


def _names(labels: Collection[str] | None, label: str | None) -> bool:
    """Whether a footnote with these rows or columns is about `label`; None stands for no limit."""
    return label is None if labels is None else label in labels


class RowSpec(StrictModel):
    """As `harness.config.table_rows.Row`. `protocol` is the table's unless the row names one."""

    model: str
    protocol: str
    set: dict[str, Any] = Field(default_factory=dict)
    ours: bool = False
    columns: TupleOf[str] | None = None


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


def require_known(where: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raises ValueError for a name that is not known."""
    known = list(known)
    for name in names:
        if name not in known:
            raise ValueError(f"{where}: there is no '{name}': {did_you_mean(str(name), map(str, known))}")


def require_same(key: str, names: Iterable[str], ledger: str, entries: Iterable[Mapping[str, Any]]) -> None:
    """Raises ValueError unless a table has the rows, or the columns, of its ledger. `key`: row or column."""
    printed = dict.fromkeys(entry[key] for entry in entries)
    require_known(f"{key}s", names, printed)
    require_known(f"{ledger}.csv: {key}s", printed, names)
