"""Digests of the source that a cell's numbers come from: that of its model, backbone and task, and of the training.

The first covers the modules that define these classes, and all modules of `models` and `tasks` that those import in
turn. For a class of another package it covers only the file of the class.
The second covers loss, loaders, schedules, optimizers and evaluation: all modules of `harness.training`, those that
build objects, what these import of `models` and `tasks`, and the kernels in C++. Which kernels run is a condition
(`harness.training.conditions`). Comments, docstrings and the layout of the text have no effect.
"""

import ast
import functools
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from harness.config.places import ROOT
from harness.config.schema import PARTS
from harness.errors import UsageError, did_you_mean

OWN = ("models", "tasks")
NATIVE = "models/ops/native"  # what `resources.kernels=native` compiles
TRAINING = "harness/training"
BUILDING = ("harness/config/build.py", "harness/config/instantiate.py")
HAVE_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_of(cfg: DictConfig) -> str | None:
    """The digest of a cell's source: 16 hexadecimal digits; None if a file of it cannot be found or read."""
    targets = []
    for part in (cfg[name] for name in PARTS):
        keys = (part.get("declares") or {}).get("identity_by_source", ())  # of arguments that are classes themselves
        classes = [part, *filter(OmegaConf.is_dict, map(part.get, keys))]
        targets += [str(entry.get("_target_")) for entry in classes]
    return source_digest(tuple(targets))


@functools.cache
def training_code(root: Path = ROOT) -> str | None:
    """The digest of the training's source: 16 hexadecimal digits; None if a file of it cannot be read."""
    paths = [*sorted((root / TRAINING).rglob("*.py")), *(root / name for name in BUILDING)]
    files = {".".join(path.relative_to(root).with_suffix("").parts): path for path in paths}
    try:
        files |= with_imports(dict(pair for path in paths for pair in imports_of(path, root)), root)
        kernels = sorted(file for file in (root / NATIVE).iterdir() if file.suffix in (".cpp", ".h"))
        return digest_of(files, [(file.name, file.read_text(encoding="utf-8")) for file in kernels])
    except (OSError, SyntaxError, ValueError):
        return None


@functools.cache
def source_digest(targets: tuple[str, ...], root: Path = ROOT) -> str | None:
    files: dict[str, Path] = {}
    try:
        for target in targets:
            files |= closure(target, root)
        return digest_of(files)
    except (OSError, SyntaxError, ValueError, ImportError):
        return None


def digest_of(files: Mapping[str, Path], texts: Iterable[tuple[str, str]] = ()) -> str:
    """16 hexadecimal digits. `texts`: (name, content) of sources that are not Python's."""
    shapes = [*((name, shape_of(file)) for name, file in sorted(files.items())), *texts]
    return hashlib.sha256(repr(shapes).encode()).hexdigest()[:16]


def closure(target: str, root: Path) -> dict[str, Path]:
    """{module: file} of the module of a class and of all its imports from this project. Raises ImportError."""
    if target.split(".")[0] not in OWN or (module := module_of(target, root)) is None:
        return foreign(target)
    return with_imports(dict([module]), root)


def check_class(key: str, target: str) -> None:
    """Raises UsageError for a name without a package, and for a class of this project that no file defines.

    A cell's identity has only the name of such a class, so that files can move: the cell would be that of the class.
    """
    if set(target) & set(":/"):
        dotted = re.sub(r"(\.py)?[:/]+", ".", target.removeprefix("./")).strip(".")
        raise UsageError(f"{key}={target}: a class is named with dots: {key}={dotted}")
    module, dot, name = target.rpartition(".")
    if not dot:
        raise UsageError(f"{key}={target}: a class is named with its module: {key}=mypkg.{target}")
    if target.split(".")[0] not in OWN:
        return
    module_read, file = module_of(target, ROOT) or ("", None)
    if file is None or module_read != module:
        raise UsageError(f"{key}={target}: there is no such module")
    classes = {node.name for node in tree_of(file).body if isinstance(node, ast.ClassDef)}
    if name not in classes:
        raise UsageError(f"{key}={target}: {did_you_mean(name, classes)}")


def with_imports(new: dict[str, Path], root: Path) -> dict[str, Path]:
    """These modules of `models` and `tasks` and all that they import in turn."""
    modules: dict[str, Path] = {}
    while new:
        modules |= new
        imported = dict(pair for file in new.values() for pair in imports_of(file, root))
        new = {name: file for name, file in imported.items() if name not in modules}
    return modules


def module_of(name: str, root: Path) -> tuple[str, Path] | None:
    """The longest prefix of a dotted name that is a module below a folder, and its file."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        path = root.joinpath(*parts[:length])
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return ".".join(parts[:length]), file
    return None


def foreign(target: str) -> dict[str, Path]:
    """The file of a class of another package, which is not imported."""
    module = next(filter(None, (module_of(target, Path(folder)) for folder in sys.path)), None)
    if module is None:
        raise ImportError(f"no source of {target}")
    return dict([module])


@functools.cache
def imports_of(file: Path, root: Path) -> tuple[tuple[str, Path], ...]:
    names = []
    for node in statements(tree_of(file)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            # an imported name may be a module itself, and its package is executed as well
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    modules = (module_of(name, root) for name in names if name.split(".")[0] in OWN)
    return tuple(dict.fromkeys(filter(None, modules)))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements below a node at any depth; expressions, which are most of a tree, have none."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


@functools.cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes())


@functools.cache
def shape_of(file: Path) -> str:
    return shape(tree_of(file))


def shape(node: Any) -> str:
    """A syntax tree as text, without line numbers, docstrings and empty fields, which differ between Pythons."""
    if isinstance(node, list):
        return f"[{', '.join(map(shape, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = []
    for name in node._fields:
        value = getattr(node, name, None)
        if name == "body" and isinstance(node, HAVE_DOCSTRING) and is_text(value[:1]):
            value = value[1:]
        if value not in (None, []) and name not in ("kind", "type_comment"):
            fields.append(f"('{name}', {shape(value)})")
    return f"('{type(node).__name__}', [{', '.join(fields)}])"


def is_text(statements: list[ast.stmt]) -> bool:
    values = [statement.value for statement in statements if isinstance(statement, ast.Expr)]
    return any(isinstance(value, ast.Constant) and isinstance(value.value, str) for value in values)
