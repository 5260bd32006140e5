"""Rows of tables: GLUE's tab-separated files, parquet files of the hub, files of JSON lines. Everything is checked."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks import data_sources
from tasks.checks import DataError
from tasks.lm.parquet import broken_parquet, parquet_file

Row = tuple[str, Mapping[str, Any]]  # file:line, {column: value}
ROWS_AT_ONCE = 1024


def file_of(folder: Path, names: Sequence[str]) -> Path:
    """The first of these files that exists in a folder, gzipped or not. Raises DataError."""
    for name in names:
        for file in (folder / name, folder / f"{name}.gz"):
            if file.is_file():
                return file
    raise DataError(f"{folder}: no {' or '.join(names)} (.gz)", "put it there")


def tsv_rows(file: Path, columns: Sequence[str], *, left_out: Callable[[str], object] | None = None) -> Iterator[Row]:
    """Rows of a tab-separated file whose first line names its columns; quotes mean nothing. Raises DataError.

    `left_out`, of a published file whose rows of fewer columns its authors leave out: it is told their count.
    """
    columns_at: dict[str, int] = {}
    width, short = 0, 0
    for number, line in data_sources.records_of(file):
        where = f"{file}:{number}"
        values = data_sources.decoded(line, where).split("\t")
        if number == 1:
            width, columns_at = len(values), {name.strip("\ufeff "): column for column, name in enumerate(values)}
            require(columns, columns_at, where)
            continue
        if left_out and len(values) < width:
            short += 1
            continue
        if len(values) != width:
            problem = f"{len(values)} columns instead of {width}"
            raise DataError(f"{where}: {problem}", "put the whole file there")
        yield where, {name: values[columns_at[name]] for name in columns}
    if not columns_at:
        raise DataError(f"{file}:1: no header", "put the whole file there")
    if short:
        left_out(f"{file}: {short:,} rows with fewer than {width} columns are left out, as in GLUE's own reader")


def parquet_table(file: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Rows of a parquet file. Raises DataError."""
    import pyarrow as pa

    number = 0
    try:
        with parquet_file(file) as opened:
            require(columns, opened.schema_arrow.names, str(file))
            for batch in opened.iter_batches(ROWS_AT_ONCE, columns=list(columns)):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{file}:{number}", row
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise broken_parquet(file, error) from error


def json_rows(file: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Objects of a file of JSON lines. Raises DataError."""
    for number, line in data_sources.records_of(file):
        where = f"{file}:{number}"
        row = data_sources.json_object(line, where)
        require(columns, row, where)
        yield where, row


def require(columns: Sequence[str], names: Mapping[str, Any] | Sequence[str], where: str) -> None:
    """Raises DataError for a column that is missing."""
    if missing := [name for name in columns if name not in names]:
        there = ", ".join(str(name)[:20] for name in list(names)[:8])
        raise DataError(f"{where}: no column {missing[0]!r} among {there}", "put the right file there")


def text(value: Any, name: str, where: str) -> str:
    """A text that can be encoded. Raises DataError."""
    if not isinstance(value, str):
        raise DataError(f"{where}: {name} is {type(value).__name__}, not a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair, as JSON may spell it
        raise DataError(f"{where}: half a character in {name}", "put the right file there") from error
    return value


def texts(values: Any, count: int, name: str, where: str) -> list[str]:
    """This number of texts. Raises DataError."""
    if not isinstance(values, list) or len(values) != count:
        given = len(values) if isinstance(values, list) else type(values).__name__
        raise DataError(f"{where}: {given} {name}, not {count}", "put the right file there")
    return [text(value, name, where) for value in values]


def letter(value: Any, count: int, where: str) -> int:
    """0 for A, 1 for B, ... Raises DataError."""
    letters = "ABCDEFGH"[:count]
    if not isinstance(value, str) or len(value) != 1 or value not in letters:
        raise DataError(f"{where}: answer {str(value)[:20]!r} is none of {', '.join(letters)}")
    return letters.index(value)
