"""Rows of JSON lines, and checks of the values of a row."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tasks.checks import DataError
from tasks.data_sources import json_object, records_of


class Row(NamedTuple):
    where: str  # file:line
    values: tuple[Any, ...]  # one per column


def json_rows(file: Path, columns: Sequence[str]) -> Iterator[Row]:
    for number, line in records_of(file):
        if line.strip():
            where = f"{file}:{number}"
            entries = json_object(line, where)
            for name in columns:
                position(name, list(entries), where)
            yield Row(where, tuple(entries[name] for name in columns))


def position(name: str, header: Sequence[str], where: object) -> int:
    """The number of a column. Raises DataError, which lists the columns."""
    if not header:
        raise DataError(f"{where}: empty", f"begin it with the names of its columns, among them '{name}'")
    if name not in header:
        shown = ", ".join(str(column)[:40] for column in header[:20])
        is_one = len(header) == 1 and any(mark in str(header[0]) for mark in ";|,\t")
        apart = "separate columns by commas, or tabs in a .tsv" if is_one else ""
        raise DataError(f"{where}: no column '{name}', there is {shown}", apart or "name the column that it has")
    if (count := list(header).count(name)) > 1:
        raise DataError(f"{where}: {count} columns '{name}'", "give each column a name of its own")
    return list(header).index(name)


def text(value: Any, name: str, where: str) -> str:
    """Raises DataError for a value that is not a text."""
    if not isinstance(value, str):
        raise DataError(f"{where}: {name} is {type(value).__name__}, not a text")
    return value


def texts(values: Any, count: int, name: str, where: str) -> list[str]:
    """This number of texts. Raises DataError."""
    if not isinstance(values, list) or len(values) != count:
        given = len(values) if isinstance(values, list) else type(values).__name__
        raise DataError(f"{where}: {given} {name}, not {count}", "put the right file there")
    return [text(value, name, where) for value in values]


def label(value: Any, allowed: Sequence[Any], kind: str, where: str) -> int:
    """The place of a value among those allowed. Raises DataError."""
    if isinstance(value, bool) or value not in allowed:
        raise DataError(f"{where}: {kind} {str(value)[:20]!r} is none of {', '.join(map(str, allowed))}")
    return list(allowed).index(value)
