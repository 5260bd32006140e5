"""The tables of formulas, `conf/table/<name>.yaml`: `kind: formulas` has printed formulas beside those of our code,
`kind: counts` has printed numbers beside the values of both at one choice of sizes (`harness.report.spec.expressions`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from harness.config.validation import StrictModel
from harness.errors import UsageError
from harness.report.spec.expressions import require_formula
from harness.report.spec.parts import Decimals, Size, SpecWithFootnotes, require_known, require_same


class CodeFormulas(StrictModel):
    """`computed`: number of scores that our code computes. `visible`: number that its masks leave."""

    computed: str
    visible: str


class FormulasSpec(SpecWithFootnotes):
    """Printed formulas. `rows`: row of the ledger -> our formulas. `sizes`: the sizes at which both are evaluated.

    `scale`: divides the values, which are shown in `unit`.
    """

    kind: Literal["formulas"]
    paper: str
    ledger: str
    column: str
    sizes: dict[str, Size]
    scale: Annotated[float, Field(gt=0)]
    unit: str
    rows: dict[str, CodeFormulas]
    printed: dict[str, str] = Field(default_factory=dict)

    def check_names(self) -> None:
        for label, ours in self.rows.items():
            for key, formula in ours:
                require_formula(f"rows.{label}.{key}", formula, self.sizes)

    @property
    def all_columns(self) -> tuple[str]:
        return (self.column,)

    def with_published(self, entries: Sequence[Mapping[str, Any]]) -> "FormulasSpec":
        """The table with the ledger's formulas. Raises ValueError where the rows of the two differ."""
        entries = [entry for entry in entries if entry["column"] == self.column]
        require_same("row", self.rows, self.ledger, entries)
        for entry in entries:
            require_formula(f"sizes, with {self.ledger}.csv", entry["value"], self.sizes)
        return self.model_copy(update={"printed": {entry["row"]: entry["value"] for entry in entries}})


class CountColumn(StrictModel):
    """`formula`: over the sizes and `count`, the value of a row's formula."""

    formula: str
    unit: str
    decimals: Decimals


class CountsSpec(SpecWithFootnotes):
    """Printed values of closed forms. `formulas`: the table of the formulas, named in the yaml. `rows`: row of the
    ledger -> row of that table."""

    kind: Literal["counts"]
    paper: str
    ledger: str
    formulas: FormulasSpec
    sizes: dict[str, Size]
    rows: dict[str, str]
    columns: dict[str, CountColumn]
    printed: dict[tuple[str, str], str] = Field(default_factory=dict)

    def check_names(self) -> None:
        for name, column in self.columns.items():
            require_formula(f"columns.{name}.formula", column.formula, self.sizes | {"count": 1})

    def with_published(self, entries: Sequence[Mapping[str, Any]]) -> "CountsSpec":
        """The table with the ledger's numbers. Raises UsageError or ValueError where rows, columns or sizes differ from
        those of the ledger."""
        require_known("rows", self.rows.values(), self.formulas.rows)
        require_same("row", self.rows, self.ledger, entries)
        require_same("column", self.columns, self.ledger, entries)
        sizes = ";".join(f"{name}={value}" for name, value in self.sizes.items())
        if unequal := [entry for entry in entries if entry["condition"] != sizes]:
            raise UsageError(f"sizes: {sizes}, but {self.ledger}.csv has {unequal[0]['condition']}")
        if texts := [entry["value"] for entry in entries if math.isnan(entry["number"])]:
            raise UsageError(f"{self.ledger}.csv: '{texts[0]}' is no number")
        for row in self.rows.values():
            require_formula(f"sizes, with {self.formulas.ledger}.csv", self.formulas.printed[row], self.sizes)
        printed = {(entry["row"], entry["column"]): entry["value"] for entry in entries}
        return self.model_copy(update={"printed": printed})
