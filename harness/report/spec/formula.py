"""A closed formula over the numbers of a cell's config, such as `train.max_steps * train.batch_size`, and the tables of
formulas: `conf/table/<name>.yaml`. `kind: formulas` has printed formulas beside those of our code, `kind: counts` has
printed numbers beside the values of both at one choice of sizes.

A formula consists of arithmetic, the functions named here, and dotted keys of the config; nothing else is evaluated.
"""

import ast
import math
import operator
import warnings
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from harness.config.cell import flatten
from harness.config.validation import StrictModel
from harness.errors import UsageError, did_you_mean, one_line
from harness.report.spec.parts import Decimals, Size, SpecWithFootnotes, require_known, require_same

FUNCTIONS = {"ceil": math.ceil, "floor": math.floor, "log2": math.log2, "max": max, "min": min, "sqrt": math.sqrt}
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
LARGEST_EXPONENT = 16
LONGEST = 300  # letters: the parser and `_value` recurse


def evaluate(formula: str, config: Mapping[str, Any]) -> float:
    """The value of a formula for one config, a finite number. Raises UsageError."""
    numbers = {key: value for key, value in flatten(dict(config)).items() if type(value) in (int, float)}
    try:
        if len(formula) > LONGEST:
            raise ValueError(f"{len(formula):,} letters are more than {LONGEST}")
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of the parser, such as for `1or 2`
            tree = ast.parse(formula, mode="eval")
        value = float(_value(tree.body, numbers))
        if not math.isfinite(value):
            raise ValueError(f"its value is {value}")
        return value
    except (SyntaxError, SyntaxWarning, ArithmeticError, ValueError, TypeError) as error:
        shown = formula if len(formula) <= LONGEST else f"{formula[:LONGEST]}..."
        raise UsageError(f"formula '{shown}': {one_line(error)}") from error


def value_of(formula: str, sizes: Mapping[str, float]) -> float:
    """The value of a formula in the notation of papers, `[(n/2)*n]*h` or `n^2`, or of our code. Raises UsageError."""
    return evaluate(formula.replace("[", "(").replace("]", ")").replace("^", "**"), sizes)


def _value(node: ast.expr, numbers: Mapping[str, float]) -> float:
    """In floats: the power of an integer may have any number of digits."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.Name() | ast.Attribute():
            key = ast.unparse(node)
            if key not in numbers:
                raise ValueError(f"the config has no number '{key}': {did_you_mean(key, numbers)}")
            return float(numbers[key])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, numbers)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            first, second = _value(left, numbers), _value(right, numbers)
            if isinstance(op, ast.Pow) and abs(second) > LARGEST_EXPONENT:
                raise ValueError(f"an exponent over {LARGEST_EXPONENT}")
            return OPERATORS[type(op)](first, second)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
            return float(FUNCTIONS[name](*(_value(argument, numbers) for argument in arguments)))
    raise ValueError(f"'{ast.unparse(node)}' is no arithmetic over the config's numbers")


def require_formula(where: str, formula: str, sizes: Mapping[str, float]) -> None:
    """Raises ValueError for a text that has no value at these sizes."""
    try:
        value_of(formula, sizes)
    except UsageError as error:
        raise ValueError(f"{where}: {error}") from error


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
