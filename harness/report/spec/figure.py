"""The schema of `conf/figure/<name>.yaml`: a table whose rows are bubbles, with the paper's costs; runs of do=bench
(`kind: measured`); or a figure that cannot be drawn yet (`kind: pending`)."""

from typing import Literal

from pydantic import Field, model_validator

from harness.config.validation import StrictModel, TupleOf
from harness.report.spec.measured import MeasuredRows
from harness.report.spec.parts import require_known
from harness.report.spec.table import TableSpec


class LedgerColumn(StrictModel):
    """A column of a published table."""

    column: str
    condition: str = ""


class PaperCosts(StrictModel):
    """Where the ledger has speed and memory. `rows`: label in the table -> label in the ledger, where they differ."""

    ledger: str
    source: str
    speed: LedgerColumn
    memory: LedgerColumn
    rows: dict[str, str] = Field(default_factory=dict)


class FigureSpec(StrictModel):
    """A figure: the keys of its yaml, its `name`, and the `table` that the yaml names.

    `own`: labels of the paper's own method. `reference`: the model whose speed and memory are 1.
    """

    name: str
    title: str
    table: TableSpec
    accuracy: str
    reference: str
    own: TupleOf[str] = ()
    paper: PaperCosts | None = None

    @model_validator(mode="after")
    def _names_exist(self) -> "FigureSpec":
        require_known("accuracy", [self.accuracy], self.table.all_columns)
        require_known("reference", [self.reference], {row.model for row in self.table.rows.values()})
        require_known("own", self.own, self.table.rows)
        require_known("paper.rows", self.paper.rows if self.paper else (), self.table.rows)
        return self

    @property
    def parts(self) -> tuple[str, ...]:
        """The columns whose mean is the accuracy."""
        averages = self.table.averages
        return averages[self.accuracy].parts if self.accuracy in averages else (self.accuracy,)


class MeasuredFigure(MeasuredRows):
    """`x_label`: label of the x axis; the length unless a run changes a setting."""

    x_label: str = "length, tokens"


class PendingFigure(StrictModel):
    """`needs`: what is missing. `command`: the command that provides it, if there is one."""

    name: str
    kind: Literal["pending"]
    title: str
    needs: str
    command: str = ""
