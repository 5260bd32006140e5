"""The house: imports go down the floors only, without a circle, and no file is more than one thing."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# each imports only those before it; harness.errors and harness.progress are the ground floor of the harness
FLOORS = [
    *("models.ops", "models.layers", "models.attention", "models.backbones", "models.generation"),
    *("tasks", "harness.errors", "harness.progress"),
    *("harness.config", "harness.records", "harness.report", "harness.training", "harness.launch", "harness.commands"),
    "run",
]
FILES = sorted(path for folder in ("models", "tasks", "harness") for path in (ROOT / folder).rglob("*.py"))


def module_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path) for path in FILES}


def floor(module):
    return max((i for i, name in enumerate(FLOORS) if module == name or module.startswith(name + ".")), default=-1)


def imported(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_go_down(path):
    own = floor(module_of(path))
    climbing = [module for module in imported(path) if floor(module) > own >= 0]
    assert not climbing


def test_no_module_imports_itself_by_a_detour():
    packages = {name.rpartition(".")[0] for name in MODULES}
    graph = {module_of(path): {m for m in imported(path) if m in MODULES - packages} for path in FILES}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_model_or_task_is_named_in_the_harness(path):
    """The harness reaches models and tasks through `_target_` alone; only the two interfaces are known to it."""
    if path.relative_to(ROOT).parts[0] != "harness":
        return
    known = ("models.attention.base", "tasks.base")
    reached = [m for m in imported(path) if m.startswith(("models", "tasks")) and not m.startswith(known)]
    assert not reached


@pytest.mark.parametrize(
    "path", [*FILES, *sorted((ROOT / "tests").rglob("*.py"))], ids=lambda path: path.relative_to(ROOT).as_posix()
)
def test_no_file_is_over_400_lines(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_the_entry_point_is_short():
    assert len((ROOT / "run.py").read_text(encoding="utf-8").splitlines()) <= 60
