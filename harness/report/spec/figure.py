"""The schemas of `conf/figure/<name>.yaml`, by `kind`: `lines` of scores; runs of do=bench (`measured`); a committed
`picture`; a figure that cannot be drawn yet (`pending`)."""

from typing import Literal

from pydantic import Field, model_validator

from harness.config.validation import StrictModel, TupleOf
from harness.report.spec.measured import MeasuredRows
from harness.report.spec.parts import require_known
from harness.report.spec.table import TableSpec


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
