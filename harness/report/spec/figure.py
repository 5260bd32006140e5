"""The schemas of `conf/figure/<name>.yaml`, by `kind`: a table whose rows are bubbles, with the paper's costs; `lines`
of scores; runs of do=bench (`measured`); a committed `picture`; a figure that cannot be drawn yet (`pending`)."""

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
        return self.table.parts_of(self.accuracy)


class LineFigure(StrictModel):
    """The keys of the yaml, its `name`, and the `table` that it names, whose rows are drawn."""

    name: str
    kind: Literal["lines"]
    title: str
    table: TableSpec
    x_label: str
    y_label: str
    points: dict[str, float] = Field(default_factory=dict)
    against: str | None = None
    columns: TupleOf[str] = ()
    reference: TupleOf[str] = ()
    front: bool = False

    @model_validator(mode="after")
    def _names_exist(self) -> "LineFigure":
        columns, rows = self.table.columns, self.table.rows
        choices = {"points": columns, "columns": columns, "reference": rows}
        for key, names in ((key, list(getattr(self, key) or ())) for key in choices):
            require_known(key, names, choices[key])
            if len(set(names)) < len(names):
                raise ValueError(f"{key}: a name stands there twice")
        require_known("against", [self.against] if self.against else (), columns)
        if bool(self.points) == (self.against is not None and bool(self.columns)):
            raise ValueError("a figure of lines has points, or against and columns")
        if self.front and self.against is None:
            raise ValueError("front: only a figure with against has one")
        return self


class PictureFigure(StrictModel):
    """A picture in `results/figures` that do=report leaves as it is. `source`: what draws it, a file of the clone."""

    name: str
    kind: Literal["picture"]
    title: str
    source: str


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
