"""Rows of tables: GLUE's tab-separated files and the hub's parquet files."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tasks import data_sources
from tasks.cells import Row, position
from tasks.checks import DataError
from tasks.lm.parquet import parquet_file, refusing_arrow

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
    header, chosen, short = [], [], 0
    for number, line in data_sources.records_of(file):
        where = f"{file}:{number}"
        values = data_sources.decoded(line, where).split("\t")
        if number == 1:
            header = [name.strip() for name in values]
            chosen = [position(name, header, where) for name in columns]
        elif left_out and len(values) < len(header):
            short += 1
        elif len(values) != len(header):
            raise DataError(f"{where}: {len(values)} columns instead of {len(header)}", "put the whole file there")
        else:
            yield Row(where, tuple(values[place] for place in chosen))
    if not header:
        raise DataError(f"{file}:1: no header", "put the whole file there")
    if short:
        problem = f"{file}: {short:,} rows with fewer than {len(header)} columns"
        left_out(f"{problem} are left out, as in GLUE's own reader")


def parquet_table(file: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Rows of a parquet file, nested values included. Raises DataError."""
    with refusing_arrow(file), parquet_file(file) as opened:
        for name in columns:
            position(name, opened.schema_arrow.names, file)
        batches = opened.iter_batches(ROWS_AT_ONCE, columns=list(columns))
        for number, row in enumerate((row for batch in batches for row in batch.to_pylist()), 1):
            yield Row(f"{file}:{number}", tuple(row[name] for name in columns))
