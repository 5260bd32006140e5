"""Tables and figures of do=bench measurements: `conf/table/<name>.yaml` or `conf/figure/<name>.yaml` with
`kind: measured`.

runs:                       # each run is one command, in which the rows alternate
  train: {task: lra/text, protocol: google, what: train, lengths: [1024, 2048], set: {bench.batch: 2}}
reference: Transformer      # speed and memory are relative to this row, within one measurement
rows:
  Transformer: vanilla_math
  Luna-16: {model: luna, set: {model.slots: 16}}
columns:
  speed, 1K: {run: train, length: 1024, value: speedup, column: steps_per_second_relative, condition: input_length=1K}

A run with a task measures the model of that recipe; a run without one, the layer or decoder of its `bench.` keys.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from harness.config.overrides import to_overrides
from harness.config.table_files import Name
from harness.config.validation import StrictModel, TupleOf
from harness.errors import UsageError
from harness.report.spec.parts import Decimals, OfModel, Size, SpecWithFootnotes, require_known

Value = Literal["ms", "s", "memory_mb", "speedup", "memory_ratio", "time_exponent", "memory_exponent"]
SHOWN_MODES = 6  # in a message
EXPONENTS = ("time_exponent", "memory_exponent")
# value of a column -> key of a point
KEYS = {"ms": "ms", "s": "ms", "speedup": "ms", "time_exponent": "ms"}
KEYS |= dict.fromkeys(("memory_mb", "memory_ratio", "memory_exponent"), "memory_mb")


class Run(StrictModel):
    """One do=bench command over several `lengths`, or at one length over `values` of `axis`, a setting of the models.

    `what`: forward, train, decode or generate. `minutes`: duration on two CPU cores, measured or estimated.
    `paper_size`: all sizes are the paper's, so its numbers may be shown beside ours; otherwise `why` names the
    difference. `needs`: required hardware, such as cuda.
    """

    task: Name | None = None
    protocol: Name | None = None
    what: Literal["forward", "train", "decode", "generate"]
    lengths: TupleOf[Size]
    axis: str | None = None
    values: TupleOf[Size] = ()
    set: dict[str, Any] = Field(default_factory=dict)
    minutes: float | None = None
    paper_size: bool = True
    why: str = ""
    needs: str = ""

    @model_validator(mode="after")
    def _is_one_command(self) -> "Run":
        if (self.task is None) != (self.protocol is None):
            raise ValueError("task and protocol come together")
        if (self.axis is None) == bool(self.values) or (self.axis is not None and len(self.lengths) != 1):
            raise ValueError("axis comes with values and one length")
        if not self.lengths:
            raise ValueError("lengths: none")
        for key, kind in (("bench.mode", str), ("bench.batches", int)):
            values = self.set.get(key, [])
            if not isinstance(values, list) or not all(type(value) is kind for value in values):
                raise ValueError(f"set.{key}: a list of {'words' if kind is str else 'numbers'} expected")
        if type(self.set.get("bench.batch", 1)) is not int:
            raise ValueError("set.bench.batch: a number expected")
        return self

    @property
    def overrides(self) -> list[str]:
        """The overrides that a user would type, without the models."""
        recipe = {} if self.task is None else {"task": self.task, "protocol": self.protocol}
        bench = {"bench.lengths": list(self.lengths), "bench.what": [self.what]}
        if self.axis is not None:
            bench |= {"bench.axis": self.axis, "bench.axis_values": list(self.values)}
        return to_overrides({**recipe, **bench, **self.set})

    @property
    def modes(self) -> tuple[tuple[str | None, int | None], ...]:
        """(mode, batch) of each series; (None, None) for a run of a single series."""
        if self.what != "generate":
            return ((None, None),)
        batches = self.set.get("bench.batches") or [self.set.get("bench.batch", 1)]
        return tuple((mode, batch) for mode in self.set.get("bench.mode", ["incremental"]) for batch in batches)

    def series_of(self, batch: int | None) -> list[tuple[str | None, int | None]]:
        """The series with this batch; None stands for any."""
        return [pair for pair in dict.fromkeys(self.modes) if batch in (None, pair[1])]


class MeasuredRow(StrictModel):
    """`set`: settings of the row. `runs`: the runs that measure it, None for all. `ours`: the paper lacks the row.

    `model: null`: a row of the paper whose model is not implemented here.
    """

    model: Name | None
    set: dict[str, Any] = Field(default_factory=dict)
    runs: TupleOf[str] | None = None
    ours: bool = False


class MeasuredColumn(StrictModel):
    """A value of a run at a `length`, or an exponent over all its lengths, of the series of this `batch`.

    `column` and `condition`: the names in the ledger; `column: null`: the paper prints no such number. `device`: cpu or
    cuda, where the paper prints numbers of both; other devices leave the column empty. `over`: the letter of printed
    formulas that the run changes. `sizes`: values of the other letters. `formula_of`: the column with the formula.
    """

    run: str
    value: Value
    length: Size | None = None
    batch: int | None = None
    device: Literal["cpu", "cuda"] | None = None
    column: str | None = ""
    condition: str = ""
    decimals: Decimals = 2
    over: str = "T"
    formula_of: str | None = None
    sizes: dict[str, Size] = Field(default_factory=dict)


class MeasuredRows(SpecWithFootnotes):
    """Runs and rows, which tables and figures share."""

    kind: Literal["measured"]
    reference: str
    runs: dict[str, Run]
    rows: dict[str, Annotated[MeasuredRow, OfModel]]

    def check_names(self) -> None:
        if not self.runs:
            raise ValueError("runs: none")
        require_known("reference", [self.reference], self.rows)
        if self.rows[self.reference].runs is not None:
            raise ValueError(f"rows.{self.reference}.runs: the reference is in every run")
        for label, row in self.rows.items():
            require_known(f"rows.{label}.runs", row.runs or (), self.runs)

    def rows_of(self, run: str) -> dict[str, MeasuredRow]:
        rows = {label: row for label, row in self.rows.items() if row.model is not None}
        return {label: row for label, row in rows.items() if row.runs is None or run in row.runs}


class MeasuredSpec(MeasuredRows):
    """A table. `published`: (row, column) -> text that the paper prints."""

    paper: str
    ledger: str | None
    columns: dict[str, MeasuredColumn]
    published: dict[tuple[str, str], str] = Field(default_factory=dict)

    def check_names(self) -> None:
        super().check_names()
        for name, column in self.columns.items():
            require_known(f"columns.{name}.run", [column.run], self.runs)
            require_known(f"columns.{name}.formula_of", [column.formula_of] if column.formula_of else (), self.columns)
            run = self.runs[column.run]
            if (column.length is None) != (column.value in EXPONENTS):
                raise ValueError(f"columns.{name}: a length is what a value has and an exponent has not")
            if column.length is not None and column.length not in run.lengths:
                raise ValueError(f"columns.{name}: the run {column.run} has no length {column.length}")
            if len(run.series_of(column.batch)) != 1:
                choices = ", ".join(f"mode {mode}, batch {batch}" for mode, batch in run.modes[:SHOWN_MODES])
                raise ValueError(f"columns.{name}: batch chooses one series of the run ({choices})")

    def with_published(self, entries: Sequence[Mapping[str, Any]]) -> "MeasuredSpec":
        """The table with the ledger's numbers. Raises UsageError or ValueError where rows or columns differ from
        those of the ledger."""
        ledger_rows = {entry["row"] for entry in entries}
        require_known("rows", [label for label, row in self.rows.items() if not row.ours], ledger_rows)
        published = {}
        for name, column in self.columns.items():
            if column.column is None:
                continue
            key = (column.column or name, column.condition)
            printed = [entry for entry in entries if (entry["column"], entry["condition"]) == key]
            if not printed:
                raise UsageError(f"columns.{name}: {self.ledger}.csv has no {', '.join(key)}")
            require_known(f"{self.ledger}.csv: rows", {entry["row"] for entry in printed}, self.rows)
            published |= {(entry["row"], name): entry["value"] for entry in printed if entry["value"]}
        return self.model_copy(update={"published": published})

    def prints(self, column: str) -> bool:
        """Whether the paper prints anything in a column."""
        return any((row, column) in self.published for row in self.rows)

    def has_formulas(self, column: str) -> bool:
        """Whether the page shows exponents of printed formulas beside those of a column."""
        return self.columns[column].value in EXPONENTS and self.prints(self.columns[column].formula_of or column)

    def series_of(self, column: MeasuredColumn) -> tuple[str | None, int | None]:
        return self.runs[column.run].series_of(column.batch)[0]
