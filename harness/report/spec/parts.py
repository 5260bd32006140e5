"""The parts of `conf/table/<name>.yaml`: rows, columns, averages, footnotes and tolerances."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from harness.config.table_files import Name
from harness.config.table_rows import SettingsOfCells
from harness.config.validation import StrictModel, TupleOf
from harness.errors import did_you_mean

RecordField = Literal["parameters", "attention_parameters", "tokens_per_s", "examples_per_s", "peak_memory_mb"]
# quantity -> (unit, decimals, whether higher is better; None: neither)
QUANTITIES: dict[str, tuple[str, int, bool | None]] = {
    "parameters": ("", 0, None),
    "attention_parameters": ("", 0, None),
    "tokens_per_s": ("tokens/s", 0, True),
    "examples_per_s": ("examples/s", 1, True),
    "peak_memory_mb": ("MiB", 0, False),
    "ms": ("ms", 1, False),
    "memory_mb": ("MiB", 1, False),
}
MOST_DECIMALS = 12
MOST_FOOTNOTES = 100
Decimals = Annotated[int, Field(ge=0, le=MOST_DECIMALS)]
Size = Annotated[int, Field(ge=1)]
UNITS = {"M": 1e6}  # units of published numbers that records count in ones


# a name stands for a list of one, and for a row of that model
Names = Annotated[TupleOf[str], BeforeValidator(lambda raw: [raw] if isinstance(raw, str) else raw)]
OfModel = BeforeValidator(lambda raw: {"model": raw} if isinstance(raw, str) else raw)


class Kind(StrEnum):
    """The kind of a published number. A count or a setting needs no training, so it is no result of a run."""

    SCORE = "trained score"
    COST = "measured cost"
    COUNT = "counted size"  # parameters, or steps of attention
    SETTING = "setting"
    FORMULA = "formula"

    @property
    def plural(self) -> str:
        return f"{self}s"


COUNTED_FIELDS = ("parameters", "attention_parameters")  # of a record; its other fields are measured costs


class BenchPoint(StrictModel):
    """A point of do=bench. `measurements`: names of files in `results/bench/`; none stands for all of them. A row takes
    the first that has it, or its model, with its `model.*` settings, and with these `settings` of the layer, of which
    the row may set the width and the heads."""

    measurements: TupleOf[str] = ()
    settings: dict[str, str | int] = Field(default_factory=dict)
    what: Literal["forward", "train", "decode"]
    length: Size
    quantity: Literal["ms", "memory_mb"] = "ms"


class Column(StrictModel):
    """One measured column. It shows its `metric`, `record_field`, `formula` or `bench`; exactly one is set.

    `evaluation`: an additional evaluation that has the metric, instead of the test. `formula`: an expression over the
    numbers of a cell's config (`expressions`). `set`: settings of its cells beyond those of their rows.
    `column` and `condition`: the names in the ledger; by default the key in the yaml. `column: null`: the paper prints
    no such number. `protocol`: replaces that of the rows. `unit` and `higher_is_better`: for a column without published
    numbers. `decimals`: of our numbers; by default as many as the published ones have. `cost`: the metric is no score,
    such as the size of a state. `reaches`: instead of the final score, the column shows the updates after which the
    metric first reaches this value on the validation split. `solved_from`: the score from which on a run solves the
    task; by default half way between control and reference. `control`, `reference`, `block` and `why` replace those of
    the table. `waits`: why runs are missing, such as former data. `ability`: of the columns of one
    ability the leaderboard shows one; by default each column is one.
    """

    task: Name | None = None
    metric: str | None = None
    evaluation: str | None = None
    record_field: RecordField | None = Field(default=None, alias="field")
    formula: str | None = None
    bench: BenchPoint | None = None
    column: str | None = ""
    condition: str = ""
    protocol: Name | None = None
    block: int | None = Field(default=None, ge=1)
    set: SettingsOfCells = Field(default_factory=dict)
    unit: str | None = None
    decimals: Decimals | None = None
    higher_is_better: bool | None = None
    cost: bool = False
    reaches: float | None = None
    solved_from: float | None = None
    ability: str = ""
    control: Names | None = None
    reference: Names | None = None
    why: str = ""
    waits: str = ""

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
        if self.reaches is not None and (self.metric is None or self.evaluation is not None):
            raise ValueError("reaches comes with a metric of the validation split")
        if self.solved_from is not None and not self.ranks:
            raise ValueError("solved_from comes with a metric that ranks rows")
        return self

    @property
    def kind(self) -> Kind:
        if self.formula is not None or self.cost or self.record_field in COUNTED_FIELDS:
            return Kind.COUNT
        return Kind.SCORE if self.metric is not None else Kind.COST

    @property
    def ranks(self) -> bool:
        """Whether tests compare its rows; a cost, such as a number of parameters, is not tested."""
        return self.metric is not None and not self.cost and self.reaches is None

    @property
    def display(self) -> tuple[str, int, bool | None]:
        """(unit, decimals, whether higher is better) of a column without published numbers."""
        quantity = self.bench.quantity if self.bench else self.record_field
        unit, digits, higher = QUANTITIES.get(quantity, ("", 0 if self.formula else 2, None))
        return (
            unit if self.unit is None else self.unit,
            digits if self.decimals is None else self.decimals,
            higher if self.higher_is_better is None else self.higher_is_better,
        )


class Average(StrictModel):
    """The mean of several columns, as the paper prints it. In the yaml, a list gives its `parts`."""

    parts: TupleOf[str]
    column: str = ""
    condition: str = ""


OfParts = BeforeValidator(lambda raw: {"parts": raw} if isinstance(raw, list) else raw)


class Footnote(StrictModel):
    """A known defect of the published numbers in `rows` and `columns`; None stands for all."""

    id: str
    text: str
    rows: TupleOf[str] | None = None
    columns: TupleOf[str] | None = None


class SpecWithFootnotes(StrictModel):
    """The name, title and footnotes of a table. Subclasses have `rows`, and `columns` if footnotes name them."""

    name: str
    title: str
    footnotes: TupleOf[Footnote] = Field(default=(), max_length=MOST_FOOTNOTES)

    def check_names(self) -> None:
        """Raises ValueError for a name that this table does not define."""

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
        """Ids of the footnotes of a row, of a column, of one number (both given) or of the whole table (neither)."""
        notes = (note for note in self.footnotes if _names(note.rows, row) and _names(note.columns, column))
        return tuple(note.id for note in notes)

    def all_footnotes(self, row: str, column: str) -> tuple[str, ...]:
        """Ids of all footnotes that concern one number."""
        shared = (*self.footnotes_of(column=column), *self.footnotes_of(row=row))
        return tuple(dict.fromkeys((*shared, *self.footnotes_of(row=row, column=column), *self.footnotes_of())))


def _names(labels: Collection[str] | None, label: str | None) -> bool:
    """Whether a footnote that names these rows or columns concerns `label`; None matches None alone."""
    return label is None if labels is None else label in labels


def limit_in_unit(limit: float | str, paper: float) -> float:
    """A tolerance in the unit of the published number `paper`. Raises ValueError."""
    try:
        number = float(limit.removesuffix("%")) if isinstance(limit, str) else float(limit)
        if not 0 <= number < math.inf:
            raise ValueError(f"{limit!r} is negative or infinite")
        return abs(paper) * number / 100 if isinstance(limit, str) else number
    except ValueError as error:
        raise ValueError(f"{limit!r} is neither a number nor a percentage like 2 %") from error


def _checked_limit(limit: Any) -> Any:
    if isinstance(limit, str | int | float):
        limit_in_unit(limit, 1.0)
    return limit


Limit = Annotated[float | str, BeforeValidator(_checked_limit)]  # in the column's unit, or relative: "2 %"


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


def require_known(where: str, names: Iterable[str], choices: Iterable[str]) -> None:
    """Raises ValueError for a name that is not among the choices."""
    choices = dict.fromkeys(choices)
    for name in names:
        if name not in choices:
            raise ValueError(f"{where}: there is no '{name}': {did_you_mean(str(name), map(str, choices))}")


def require_same(key: str, names: Iterable[str], ledger: str, entries: Iterable[Mapping[str, Any]]) -> None:
    """Raises ValueError unless a table has exactly the rows, or columns, of its ledger. `key`: row or column."""
    printed = dict.fromkeys(entry[key] for entry in entries)
    require_known(f"{key}s", names, printed)
    require_known(f"{ledger}.csv: {key}s", printed, names)
