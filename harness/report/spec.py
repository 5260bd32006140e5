"""What a table is made of: `conf/table/<name>.yaml`, checked, with the published numbers it names."""

import contextlib
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, field, fields, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from harness.config.table_rows import Row, Settings, row, runs, settings_key
from harness.errors import UsageError, did_you_mean, one_line
from harness.records import ledger

ALL = "all"  # `table=all` is no table: it stands for all of them


@dataclass(frozen=True)
class Column:
    """One measured column. `column` and `condition` are the ledger's, where they are not the yaml's own key.

    `column: null`: the paper prints no such number, only a mean that this one is part of.
    `set`: what its cells set on top of their rows, as in `harness.config.table_rows.Row`.
    """

    task: str
    metric: str
    column: str | None = ""
    condition: str = ""
    set: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Average:
    """The mean of some columns, as the paper prints it; a list in the yaml is its `parts` alone."""

    parts: tuple[str, ...]
    column: str = ""
    condition: str = ""


@dataclass(frozen=True)
class Footnote:
    """A known defect of published numbers: of these rows and columns, None for all."""

    id: str
    text: str
    rows: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True)
class PublishedNumber:
    """A published number, as printed."""

    text: str
    number: float
    higher_is_better: bool
    unit: str


Limit = float | str  # in the column's unit, or of the paper's number: "2 %"


@dataclass(frozen=True)
class TableSpec:
    """The yaml's keys. `published` is what the ledger has for them.

    `rows`: the ledger's label -> what runs there. `protocol`: of the rows that name none. `gpu_hours`: a row and seed.
    `unit`: of every column; without it each has the ledger's.
    """

    name: str
    title: str
    paper: str
    ledger: str
    protocol: str
    rows: dict[str, Row]
    columns: dict[str, Column]
    tolerance: dict[str, Limit]
    seeds: tuple[int, ...]
    gpu_hours: float
    unit: str = ""
    gpu: str = "GPU"
    chance: bool = False
    averages: dict[str, tuple[str, ...]] = field(default_factory=dict)
    footnotes: tuple[Footnote, ...] = ()
    published: dict[tuple[str, str], PublishedNumber] = field(default_factory=dict)

    @property
    def all_columns(self) -> tuple[str, ...]:
        """Columns and averages, in order."""
        return (*self.columns, *self.averages)

    @property
    def unpublished(self) -> tuple[str, ...]:
        """Columns that the paper prints the mean of alone."""
        return tuple(name for name, column in self.columns.items() if column.column is None)

    @property
    def verdict_columns(self) -> tuple[str, ...]:
        """Columns and averages whose printed numbers count; a mean of printed numbers says nothing new."""
        ours = set(self.unpublished)
        means = (name for name, parts in self.averages.items() if ours & set(parts))
        return (*(name for name in self.columns if name not in ours), *means)

    def hours_of(self, columns: Iterable[str]) -> float:
        """GPU-hours of one row and seed in these columns."""
        return self.gpu_hours * self._runs(columns) / self._runs(self.columns)

    def _runs(self, columns: Iterable[str]) -> int:
        return runs((self.columns[name].task, self.columns[name].set) for name in columns)

    @property
    def protocols(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.protocol for one in self.rows.values()))

    def for_protocol(self, protocol: str) -> "TableSpec":
        """The rows of one protocol as a table of their own: rows of two are never compared."""
        rows = {label: one for label, one in self.rows.items() if one.protocol == protocol}
        return replace(self, protocol=protocol, rows=rows)

    def meanings(self, task: str) -> dict[tuple[str, Settings], list[tuple[str, str]]]:
        """(model, what its cells set) -> the (row, column) pairs of a task that mean just that."""
        found: dict[tuple[str, Settings], list[tuple[str, str]]] = {}
        for label, one in self.rows.items():
            for name, column in self.columns.items():
                if column.task == task:
                    found.setdefault((one.model, settings_key({**one.set, **column.set})), []).append((label, name))
        return found

    def row_of_model(self, model: str) -> str | None:
        """The paper's name of a model, of its plainest row; None if its table has no such row."""
        labels = [label for label, one in self.rows.items() if one.model == model]
        return min(labels, key=lambda label: len(self.rows[label].set), default=None)

    def is_ours(self, row: str) -> bool:
        """A row that the paper's table lacks: a control, or a model that was run beside it."""
        return row not in self.rows or self.rows[row].ours

    def _published_in(self, column: str) -> list[PublishedNumber]:
        """The paper's numbers of a column; of the means that it is part of, where it has none."""
        places = {column}
        if column in self.unpublished:
            places = {name for name, parts in self.averages.items() if column in parts}
        return [cell for (_, name), cell in self.published.items() if name in places]

    def short_name(self, column: str) -> str:
        """`ETTh1 S` of `ETTh1 S MSE`: without the last words that it shares with all parts of its mean."""
        parts = next((parts for parts in self.averages.values() if column in parts), ())
        if column not in self.unpublished or len(parts) < 2:
            return column
        from_behind = zip(*(part.split()[::-1] for part in parts), strict=False)
        shared = sum(1 for _ in takewhile(lambda words: len(set(words)) == 1, from_behind))
        return " ".join(column.split()[:-shared]) if shared else column

    def decimals(self, column: str) -> int:
        return max(ledger.decimals(cell.text) for cell in self._published_in(column))

    def higher_is_better(self, column: str) -> bool:
        return self._published_in(column)[0].higher_is_better

    def unit_of(self, column: str) -> str:
        return self.unit or self._published_in(column)[0].unit

    def tolerances(self, paper: float) -> dict[str, float]:
        """How far from a published number `reproduced` and `close` reach, in its unit."""
        return {word: absolute(limit, paper) for word, limit in self.tolerance.items()}

    def footnotes_of(self, *, row: str | None = None, column: str | None = None) -> tuple[str, ...]:
        """Footnotes of a whole row, of a whole column, or, with both given, of that one cell alone."""
        found = []
        for note in self.footnotes:
            by_row, by_column = note.rows is not None, note.columns is not None
            if (by_row, by_column) != (row is not None, column is not None):
                continue
            if (not by_row or row in note.rows) and (not by_column or column in note.columns):
                found.append(note.id)
        return tuple(found)

    def all_footnotes(self, row: str, column: str) -> tuple[str, ...]:
        """Every footnote that bears on one published number."""
        whole = (*self.footnotes_of(column=column), *self.footnotes_of(row=row))
        found = (*whole, *self.footnotes_of(row=row, column=column))
        return tuple(dict.fromkeys(found))


def available(conf_root: str | os.PathLike[str], group: str = "table") -> list[str]:
    folder = Path(conf_root) / group
    found = (path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml"))
    return sorted(name for name in found if name != ALL)


def load_table(name: str, conf_root: str | os.PathLike[str], paper_root: str | os.PathLike[str]) -> TableSpec:
    """The table `<conf_root>/table/<name>.yaml` and its published numbers. Raises UsageError for what does not fit."""
    with reading(name, conf_root, "table") as raw:
        return _parse(name, raw, paper_root)


@contextlib.contextmanager
def reading(name: str, conf_root: str | os.PathLike[str], group: str) -> Iterator[Any]:
    """What `<conf_root>/<group>/<name>.yaml` holds; a UsageError inside the block names the file."""
    path = Path(conf_root) / group / f"{name}.yaml"
    if not path.is_file():
        known = did_you_mean(name, available(conf_root, group))
        raise UsageError(f"there is no {group} '{name}': {known} (python run.py do=list)")
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: no yaml: {one_line(error)}") from error
    try:
        yield raw
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _parse(name: str, raw: Any, paper_root: str | os.PathLike[str]) -> TableSpec:
    check_keys(raw, TableSpec, "", given={"name", "published"})
    columns = {}
    for column, place in raw["columns"].items():
        check_keys(place, Column, f"columns.{column}")
        columns[column] = Column(**{"column": column} | place)
    footnotes = []
    for place, note in enumerate(raw.get("footnotes") or []):
        check_keys(note, Footnote, f"footnotes[{place}]")
        lists = {key: tuple(note[key]) for key in ("rows", "columns") if note.get(key) is not None}
        footnotes.append(Footnote(**note | lists))
    averages = {}
    for average, given in (raw.get("averages") or {}).items():
        given = given if isinstance(given, dict) else {"parts": given}
        check_keys(given, Average, f"averages.{average}")
        averages[average] = Average(**{"column": average} | given | {"parts": tuple(given["parts"])})
    check_words("tolerance", {"reproduced", "close"}, raw["tolerance"])
    check_words("tolerance", raw["tolerance"], {"reproduced", "close"})
    for limit in raw["tolerance"].values():
        absolute(limit, 1.0)
    for average, one in averages.items():
        check_words(f"averages.{average}", one.parts, columns)
    for note in footnotes:
        check_words(f"footnotes.{note.id}.rows", note.rows or (), raw["rows"])
        check_words(f"footnotes.{note.id}.columns", note.columns or (), (*columns, *averages))
    rows = {}
    for label, value in raw["rows"].items():
        if not isinstance(value, str):
            check_keys(value, Row, f"rows.{label}", optional=("protocol",))
        rows[label] = row(value, raw["protocol"])
    parsed = ("rows", "columns", "averages", "footnotes", "seeds")
    return TableSpec(
        **{key: value for key, value in raw.items() if key not in parsed},
        name=name,
        columns=columns,
        averages={average: one.parts for average, one in averages.items()},
        footnotes=tuple(footnotes),
        seeds=tuple(raw["seeds"]),
        rows=rows,
        published=_published_numbers(raw["ledger"], rows, columns, averages, paper_root),
    )


def _published_numbers(
    table: str,
    rows: dict[str, Row],
    columns: dict[str, Column],
    averages: dict[str, Average],
    root: str | os.PathLike[str],
) -> dict[tuple[str, str], PublishedNumber]:
    """(row, column) -> what the paper prints there. Every row of the ledger must have a model, every column a print."""
    cells = ledger.cells(table, root)
    found = {}
    for name, place in (columns | averages).items():
        if place.column is None:
            if not any(name in one.parts for one in averages.values()):
                raise UsageError(f"columns.{name}: column: null is for the parts of an average that the paper prints")
            continue
        here = [cell for cell in cells if (cell["column"], cell["condition"]) == (place.column, place.condition)]
        if not here:
            raise UsageError(f"columns: {table}.csv has no {name}: {did_you_mean(name, {c['column'] for c in cells})}")
        check_words("rows", [label for label, one in rows.items() if not one.ours], {cell["row"] for cell in cells})
        check_words(f"{table}.csv: rows", {cell["row"] for cell in here}, rows)
        for cell in here:
            if not math.isnan(cell["number"]):
                found[cell["row"], name] = PublishedNumber(
                    cell["value"], cell["number"], bool(cell["higher_is_better"]), cell["unit"]
                )
        if not any(column == name for _, column in found):
            raise UsageError(f"columns: {table}.csv prints no number in {name}")
    return found


def absolute(limit: Limit, paper: float) -> float:
    """A tolerance in the unit of the published number. Raises UsageError."""
    try:
        return abs(paper) * float(limit.removesuffix("%")) / 100 if isinstance(limit, str) else float(limit)
    except (TypeError, ValueError) as error:
        raise UsageError(f"tolerance: {limit!r} is neither a number nor a percentage like 2 %") from error


def check_keys(raw: Any, cls: type, where: str, given: Iterable[str] = (), optional: Iterable[str] = ()) -> None:
    """Keys of a mapping against the fields of the dataclass it is to become, of which `given` come from elsewhere."""
    if not isinstance(raw, dict):
        raise UsageError(f"{where or 'the file'} is not a mapping")
    own = {each.name: each for each in fields(cls) if each.name not in set(given)}
    check_words(where or "keys", raw, own)
    needed = [key for key, each in own.items() if each.default is MISSING and each.default_factory is MISSING]
    required = [key for key in needed if key not in set(optional)]
    if missing := [key for key in required if key not in raw]:
        raise UsageError(f"{where + '.' if where else ''}{missing[0]} is missing")


def check_words(where: str, words: Iterable[str], options: Iterable[str]) -> None:
    options = list(options)
    for word in words:
        if word not in options:
            raise UsageError(f"{where}: there is no '{word}': {did_you_mean(str(word), map(str, options))}")
