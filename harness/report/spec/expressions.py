"""A closed formula over the numbers of a config, such as `train.max_steps * train.batch_size`.

A formula consists of arithmetic, the functions named here, and dotted keys of the config; nothing else is evaluated.
"""

import ast
import math
import operator
import warnings
from collections.abc import Mapping
from typing import Any

from harness.config.cell import flatten
from harness.errors import UsageError, did_you_mean, one_line

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
