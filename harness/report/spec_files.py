"""Reads `conf/table/<name>.yaml` and `conf/figure/<name>.yaml` and looks up the published numbers that they name.

`conf` is a folder of configuration, or several in the order in which they are looked into (`--config-dir` adds some).
"""

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from harness.config import family_files
from harness.config.validation import parse
from harness.errors import UsageError, did_you_mean, one_line
from harness.records import ledger
from harness.report.plots.measured_figure import MeasuredFigure, PendingFigure
from harness.report.scores.lines import LineFigure
from harness.report.scores.matrices import MatrixFigure
from harness.report.spec.figure import FigureSpec
from harness.report.spec.parts import PublishedNumber, require_known
from harness.report.spec.table import TableSpec

Folders = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
ALL = "all"  # `table=all` is no table: it stands for all of them


def available(conf: Folders, group: str = "table") -> list[str]:
    """Names of the tables or figures."""
    found = set()
    for folder in (folder / group for folder in _folders(conf)):
        found |= {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml")}
    return sorted(found - {ALL})


def _folders(conf: Folders) -> list[Path]:
    return [Path(conf)] if isinstance(conf, str | os.PathLike) else [Path(folder) for folder in conf]


def load_table(name: str, conf: Folders, paper_root: str | os.PathLike[str]) -> Any:
    """The table `<conf>/table/<name>.yaml` and its published numbers. Raises UsageError for what does not fit.

    A `TableSpec`, or a `harness.report.pages.kinds.TableWithoutCells` where the yaml has a `kind`.
    """
    with _reading(name, conf, "table") as raw:
        if "kind" in raw:
            from harness.report.pages import kinds  # composes recipes, which a table of cells does not need

            return kinds.load(raw, paper_root, lambda other: raw_table(other, conf))
        spec = parse(TableSpec, raw | {"elsewhere": _others(raw.get("elsewhere", ()), conf)}, "")
        if spec.ledger is None:
            return spec
        published, sizes = _published_numbers(spec, spec.ledger, paper_root), _test_sizes(spec, conf)
        return spec.model_copy(update={"published": published, "test_sizes": sizes | spec.test_sizes})


def raw_table(name: str, conf: Folders) -> dict[str, Any]:
    """The keys of a table's yaml with its name, unchecked. Raises UsageError."""
    with _reading(name, conf, "table") as raw:
        return raw


def _others(names: Any, conf: Folders) -> tuple[TableSpec, ...]:
    """Tables whose rows alone are asked for: without their published numbers, and without others of their own."""
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ValueError("elsewhere: a list of tables' names expected")
    others = []
    for name in names:
        with _reading(name, conf, "table") as raw:
            others.append(parse(TableSpec, raw | {"elsewhere": ()}, ""))
    return tuple(others)


def load_figure(
    name: str, conf: Folders, paper_root: str | os.PathLike[str]
) -> FigureSpec | LineFigure | MatrixFigure | MeasuredFigure | PendingFigure:
    """The figure `<conf>/figure/<name>.yaml`. Raises UsageError for what does not fit its table or the ledger."""
    with _reading(name, conf, "figure") as raw:
        if isinstance(raw.get("table"), str):
            raw["table"] = load_table(raw["table"], conf, paper_root)
        kinds = {"lines": LineFigure, "matrices": MatrixFigure, "measured": MeasuredFigure, "pending": PendingFigure}
        return parse(kinds.get(raw.get("kind"), FigureSpec), raw, "")


@contextlib.contextmanager
def _reading(name: str, conf: Folders, group: str) -> Iterator[dict[str, Any]]:
    """The keys of `<conf>/<group>/<name>.yaml` with its name; a UsageError inside the block names the file."""
    path = next(family_files.existing(f"{group}/{name}.yaml", _folders(conf)), None)
    if path is None:
        known = did_you_mean(name, available(conf, group))
        raise UsageError(f"there is no {group} '{name}': {known} (python run.py do=list)")
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: no yaml: {one_line(error)}") from error
    if not isinstance(raw, dict):
        raise UsageError(f"{path}: a mapping expected")
    try:
        yield raw | {"name": name}
    except (UsageError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error


def _test_sizes(spec: TableSpec, conf: Folders) -> dict[str, int]:
    """Column -> examples in the test split of its task, where the task's yaml says so."""
    sizes = {}
    for name, column in spec.columns.items():
        path = next(family_files.existing(f"task/{column.task}.yaml", _folders(conf)), None)
        if path is not None:
            n = (yaml.safe_load(path.read_text(encoding="utf-8")) or {}).get("test")
            sizes |= {name: n} if isinstance(n, int) else {}
    return sizes


def _published_numbers(
    spec: TableSpec, table: str, root: str | os.PathLike[str]
) -> dict[tuple[str, str], PublishedNumber]:
    """(row, column) -> what the paper prints there.

    Every row of the ledger must have a row here, every column a number. Raises UsageError and ValueError.
    """
    entries = ledger.entries(table, root)
    averages = {name: (average.column or name, average.condition) for name, average in spec.averages.items()}
    columns = {name: (column.column or name, column.condition) for name, column in spec.columns.items()}
    for name in (*spec.unpublished, *spec.own_columns):
        del columns[name]
    published = {}
    for name, place in (columns | averages).items():
        here = [entry for entry in entries if (entry["column"], entry["condition"]) == place]
        if not here:
            known = did_you_mean(name, {entry["column"] for entry in entries})
            raise UsageError(f"columns: {table}.csv has no {name}: {known}")
        papers = [label for label, row in spec.rows.items() if not row.ours]
        require_known("rows", papers, {entry["row"] for entry in entries})
        require_known(f"{table}.csv: rows", {entry["row"] for entry in here}, spec.rows)
        for entry in here:
            if not math.isnan(entry["number"]):
                published[entry["row"], name] = PublishedNumber(
                    entry["value"], entry["number"], bool(entry["higher_is_better"]), entry["unit"]
                )
        if not any(column == name for _, column in published):
            raise UsageError(f"columns: {table}.csv prints no number in {name}")
    return published
