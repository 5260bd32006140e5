"""What `conf/table/<name>.yaml` says with `kind: formulas`, printed formulas beside those of our code, and with
`kind: counts`, printed numbers beside what both give at one choice of sizes."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from harness.config.validation import StrictModel
from harness.errors import UsageError
from harness.report.spec.parts import SpecWithFootnotes, require_known, require_same


class CodeFormulas(StrictModel):
    """`computed`: scores that our code computes; `visible`: those that its masks leave."""

    computed: str
    visible: str


class FormulasSpec(SpecWithFootnotes):
    """Printed formulas. `rows`: the ledger's row -> ours. `sizes`: where both are evaluated, in units of `unit`."""

    kind: Literal["formulas"]
    paper: str
    ledger: str
    column: str
    sizes: dict[str, int]
    scale: float
    unit: str
    rows: dict[str, CodeFormulas]
    printed: dict[str, str] = Field(default_factory=dict)

    @property
    def all_columns(self) -> tuple[str]:
        return (self.column,)

    def with_published(self, entries: Sequence[Mapping[str, Any]]) -> "FormulasSpec":
        """The table with the ledger's formulas. Raises ValueError for a row that the ledger lacks, or the table."""
        entries = [entry for entry in entries if entry["column"] == self.column]
        require_same("row", self.rows, self.ledger, entries)
        return self.model_copy(update={"printed": {entry["row"]: entry["value"] for entry in entries}})


class CountColumn(StrictModel):
    """`formula`: over the sizes and `count`, what a row's formula gives."""

    formula: str
    unit: str
    decimals: int


class CountsSpec(SpecWithFootnotes):
    """Printed numbers of closed forms. `formulas`: the table that has the formulas, which the yaml names; `rows`: the
    ledger's row -> its row."""

    kind: Literal["counts"]
    paper: str
    ledger: str
    formulas: FormulasSpec
    sizes: dict[str, int]
    rows: dict[str, str]
    columns: dict[str, CountColumn]
    printed: dict[tuple[str, str], str] = Field(default_factory=dict)

    def with_published(self, entries: Sequence[Mapping[str, Any]]) -> "CountsSpec":
        """The table with the ledger's numbers. Raises UsageError and ValueError for rows, columns or sizes that the
        ledger lacks, or the table."""
        require_known("rows", self.rows.values(), self.formulas.rows)
        require_same("row", self.rows, self.ledger, entries)
        require_same("column", self.columns, self.ledger, entries)
        sizes = ";".join(f"{name}={value}" for name, value in self.sizes.items())
        if unequal := [entry for entry in entries if entry["condition"] != sizes]:
            raise UsageError(f"sizes: {sizes}, but {self.ledger}.csv has {unequal[0]['condition']}")
        printed = {(entry["row"], entry["column"]): entry["value"] for entry in entries}
        return self.model_copy(update={"printed": printed})
