"""Helpers for tests of the ListOps task: a small grammar, prepared tasks."""

from collections.abc import Sequence

from tasks.lra.listops import ListOps
from tasks.lra.listops_generator import END, END_ID, FIRST_OPERATOR, SYMBOLS
from tests.helpers.tasks import ready

SMALL = {"max_length": 64, "min_length": 20, "max_depth": 6, "max_args": 5, "train": 300, "val": 40, "test": 50}
NEXT = "do=prepare task=lra/listops"


def small(root, **changes) -> ListOps:
    return ListOps(data_root=root, **{**SMALL, **changes})


def loaded(root, **changes) -> ListOps:
    return ready(small(root, **changes))


def format_expression(tokens: Sequence[int]) -> str:
    """LRA's text form of token ids: each argument, and the end, closes one of the parentheses before its operator."""
    open_operators: list[list[str]] = [[]]
    for token in map(int, tokens):
        if token == END_ID:
            operator, *parts = open_operators.pop()
            parts = [f" {part} )" for part in (*parts, END)]
            open_operators[-1].append("( " * len(parts) + operator + "".join(parts))
        elif token < FIRST_OPERATOR:
            open_operators[-1].append(SYMBOLS[token])
        else:
            open_operators.append([SYMBOLS[token]])
    return " ".join(open_operators[0])
