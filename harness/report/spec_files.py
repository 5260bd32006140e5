"""Reads `conf/table/<name>.yaml` and `conf/figure/<name>.yaml` and looks up the published numbers that they name; reads
the claims and questions `conf/finding/<name>.yaml`.

`conf` is one folder of configuration, or several in search order (`--config-dir` adds folders).
"""

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.config import table_files
from harness.config.validation import parse, shortened
from harness.errors import UsageError, did_you_mean
from harness.records import ledger
from harness.report.spec.figure import LineFigure, MeasuredFigure, PendingFigure, PictureFigure
from harness.report.spec.finding import FINDINGS, Asked
from harness.report.spec.formula import CountsSpec, FormulasSpec
from harness.report.spec.measured import MeasuredSpec
from harness.report.spec.settings import SettingsSpec
from harness.report.spec.table import TableSpec

CELLS = "cells"  # kind of a table whose yaml names none
TABLES = {
    CELLS: TableSpec,
    "settings": SettingsSpec,  # printed hyper-parameters beside those of our composed recipes
    "formulas": FormulasSpec,  # printed formulas beside those of our code
    "counts": CountsSpec,  # what printed formulas give at one choice of sizes, beside what ours give
    "measured": MeasuredSpec,  # printed time and memory beside what do=bench measured
}
FIGURES = {"lines": LineFigure, "measured": MeasuredFigure, "pending": PendingFigure, "picture": PictureFigure}
AnyTableSpec = TableSpec | SettingsSpec | FormulasSpec | CountsSpec | MeasuredSpec
Folders = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def available(conf: Folders, group: str = "table") -> list[str]:
    """Names of the tables or figures."""
    return table_files.names(group, _folders(conf))


def _folders(conf: Folders) -> list[Path]:
    return [Path(conf)] if isinstance(conf, str | os.PathLike) else [Path(folder) for folder in conf]


def load_table(name: str, conf: Folders, paper_root: str | os.PathLike[str]) -> AnyTableSpec:
    """The table `<conf>/table/<name>.yaml` and its published numbers. Raises UsageError for what does not fit."""
    with _reading(name, conf, "table") as raw:
        kind = raw.get("kind", CELLS)
        schema = _schema(kind, TABLES)
        if kind == CELLS:
            raw = raw | {"elsewhere": _others(raw.get("elsewhere", ()), conf)}
        if kind == "counts" and "formulas" in raw:
            formulas = _name_in(raw, "formulas")
            with _reading(formulas, conf, "table") as other:
                if other.get("kind") != "formulas":
                    raise UsageError(f"formulas: {formulas} is no table with kind: formulas")
            raw = raw | {"formulas": load_table(formulas, conf, paper_root)}
        spec = parse(schema, raw, "")
        if spec.ledger is None:
            return spec
        return spec.with_published(ledger.entries(spec.ledger, paper_root))


def _schema(kind: Any, schemas: Mapping[str, Any]) -> Any:
    """Raises UsageError for a kind that is not there."""
    if kind not in list(schemas):
        raise UsageError(f"kind: there is no {shortened(kind)}: {did_you_mean(str(kind), schemas)}")
    return schemas[kind]


def _others(names: Any, conf: Folders) -> tuple[TableSpec, ...]:
    """The tables named in `elsewhere`; only their rows count, so they have no published numbers and no `elsewhere`."""
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ValueError("elsewhere: a list of tables' names expected")
    others = []
    for name in names:
        with _reading(name, conf, "table") as raw:
            others.append(parse(TableSpec, raw | {"elsewhere": ()}, ""))
    return tuple(others)


def load_figure(
    name: str, conf: Folders, paper_root: str | os.PathLike[str]
) -> LineFigure | MeasuredFigure | PendingFigure | PictureFigure:
    """The figure `<conf>/figure/<name>.yaml`. Raises UsageError for what does not fit its table or the ledger."""
    with _reading(name, conf, "figure") as raw:
        schema = _schema(raw.get("kind"), FIGURES)
        if "table" in raw:
            raw["table"] = load_table(_name_in(raw, "table"), conf, paper_root)
        return parse(schema, raw, "")


def figures_of(tables: Collection[str], conf: Folders) -> list[str]:
    """The names of the figures of lines that show rows of these tables."""
    found = []
    for name in available(conf, "figure"):
        with _reading(name, conf, "figure") as raw:
            found += [name] if raw.get("kind") == "lines" and raw.get("table") in tables else []
    return found


def load_asked(conf: Folders) -> list[Asked]:
    """The claims and questions `<conf>/finding/*.yaml` in the order of their page."""
    loaded = []
    for name in available(conf, "finding"):
        with _reading(name, conf, "finding") as raw:
            loaded.append(parse(_schema(raw.pop("kind", None), FINDINGS), raw, ""))
    return sorted(loaded, key=lambda asked: (asked.order, asked.name))


def _name_in(raw: Mapping[str, Any], key: str) -> str:
    """The name of a table; raises UsageError for anything else."""
    if not isinstance(raw[key], str):
        raise UsageError(f"{key}: the name of a table expected, not {shortened(raw[key])}")
    return raw[key]


@contextlib.contextmanager
def _reading(name: str, conf: Folders, group: str) -> Iterator[dict[str, Any]]:
    """The keys of `<conf>/<group>/<name>.yaml` with its name; a UsageError inside the block names the file."""
    path, raw = table_files.read(group, name, _folders(conf))
    try:
        yield raw | {"name": name}
    except (UsageError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error


@contextlib.contextmanager
def named_errors(group: str, name: str, conf: Folders) -> Iterator[None]:
    """A UsageError while the page or the picture is made names its yaml."""
    try:
        yield
    except UsageError as error:
        where = table_files.shown_path(group, name, _folders(conf))
        raise error if where in str(error) else UsageError(f"{where}: {error}") from error
