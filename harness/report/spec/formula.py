"""A closed formula over the numbers of a cell's config, such as `train.max_steps * train.batch_size`.

Arithmetic, the functions named here, and dotted keys of the config; nothing else is evaluated.
"""

import ast
import math
import operator
from collections.abc import Mapping
from typing import Any

from harness.config.cell import flatten
from harness.errors import UsageError, did_you_mean

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


def evaluate(formula: str, config: Mapping[str, Any]) -> float:
    """The value of a formula for one config. Raises UsageError."""
    numbers = {key: value for key, value in flatten(dict(config)).items() if type(value) in (int, float)}
    try:
        return float(_value(ast.parse(formula, mode="eval").body, numbers))
    except (SyntaxError, ArithmeticError, ValueError, TypeError) as error:
        raise UsageError(f"formula '{formula}': {error}") from error


def _value(node: ast.expr, numbers: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name() | ast.Attribute():
            key = ast.unparse(node)
            if key not in numbers:
                raise ValueError(f"the config has no number '{key}': {did_you_mean(key, numbers)}")
            return numbers[key]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, numbers)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            one, other = _value(left, numbers), _value(right, numbers)
            if isinstance(op, ast.Pow) and abs(other) > LARGEST_EXPONENT:
                raise ValueError(f"an exponent over {LARGEST_EXPONENT}")
            return OPERATORS[type(op)](one, other)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
            return FUNCTIONS[name](*(_value(argument, numbers) for argument in arguments))
    raise ValueError(f"'{ast.unparse(node)}' is no arithmetic over the config's numbers")
