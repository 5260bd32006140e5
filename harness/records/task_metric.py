"""The metric of a task of this clone, read from the source of its class: nothing is imported, so no code runs."""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.cell import class_name
from harness.config.compose import option_config
from harness.config.places import ROOT
from harness.config.source_code import OWN, module_of, tree_of


@dataclass(frozen=True)
class TaskMetric:
    """`target`: the name of the task's class."""

    target: str
    name: str
    higher_is_better: bool


@functools.cache
def task_metric(task: str) -> TaskMetric | None:
    """None for a task without a yaml, and for a class that is not of this project or sets its metric later."""
    try:
        target = str(option_config("task", task)["_target_"])
    except (FileNotFoundError, KeyError):
        return None
    name, higher_is_better = (constant(target, attribute) for attribute in ("metric", "higher_is_better"))
    if not isinstance(name, str) or not isinstance(higher_is_better, bool):
        return None
    return TaskMetric(class_name(target), name, higher_is_better)


def constant(target: str, name: str, root: Path = ROOT) -> Any:
    """The attribute of a class, `models.a.B`, or of its bases, if it is a constant; else None."""
    module, _, short = target.rpartition(".")
    if target.split(".")[0] not in OWN or (source := module_of(target, root)) is None:
        return None
    tree = tree_of(source[1])
    body = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if short not in body:
        return None
    for attribute, value in (pair for statement in body[short].body for pair in assignments(statement)):
        if attribute == name:
            return value.value if isinstance(value, ast.Constant) else None
    imported = {
        alias.asname or alias.name: f"{statement.module}.{alias.name}"
        for statement in tree.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    bases = [base.id for base in body[short].bases if isinstance(base, ast.Name)]
    values = (constant(imported.get(base, f"{module}.{base}"), name, root) for base in bases)
    return next((value for value in values if value is not None), None)


def assignments(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """(name, value) of `a = 1`, `a: int = 1` and `a, b = 1, 2`."""
    value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    for target in targets:
        if isinstance(target, ast.Name) and value is not None:
            yield target.id, value
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            yield from ((name.id, item) for name, item in zip(target.elts, value.elts, strict=False))
