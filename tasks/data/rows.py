"""Rows of a user's files: CSV, JSON lines, Parquet.

`tables(path)` lists what is there by split; `Table.rows(columns)` reads the named columns, row by row. All input is
hostile: only regular files are read, sizes have bounds, nothing is executed or fetched. Every defect is a DataError of
one line with file, line (of a Parquet file the row, from 1) and column.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.cells import Row, json_rows, position
from tasks.checks import DataError
from tasks.data_sources import LONGEST_LINE, MIB, decoded, not_utf8, one_line, records_of, refusing
from tasks.lm.parquet import is_text, parquet_file, refusing_arrow, require_unpackable
from tasks.regular_files import require_regular

MOST_FILES = 1000
MOST_ROWS = 20_000_000  # of a table: each takes memory, however small the file is
ROWS_AT_ONCE = 256  # of a Parquet file
LONGEST_LIST = 1 << 20  # numbers
SPLIT_NAMES = {"train": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val", "test": "test"}
ALL = "all"  # rows without a split of their own
FORMATS = "a .csv, .tsv, .jsonl, .ndjson (each also .gz) or .parquet (by to_parquet of datasets), or a folder of them"


@dataclass(frozen=True)
class Table:
    file: Path
    read: Callable[[Path, Sequence[str]], Iterator[Row]]

    def rows(self, columns: Sequence[str]) -> Iterator[Row]:
        """Raises DataError, for a file without rows as well."""
        count = 0
        for count, row in enumerate(self.read(self.file, columns), 1):
            if count > MOST_ROWS:
                raise DataError(f"{row.where}: more than {MOST_ROWS:,} rows", "put them into several files")
            yield row
        if not count:
            raise DataError(f"{self.file}: no rows", "put a file with rows there")


def tables(path: Path) -> dict[str, list[Table]]:
    """The tables at a path by split: `train`, `val`, `test`, or `all` where names tell no split. Raises DataError."""
    with refusing(f"{path}:1", f"set task.path to {FORMATS}", (OSError,)):
        if not path.is_dir():
            require_regular(path, follow=True)
            return {ALL: [table_of(path)]}
        files = sorted(file for file in path.iterdir() if ending(file) in READERS)
    if not files or len(files) > MOST_FILES:
        raise DataError(f"{path}: {len(files)} files with rows, not 1 to {MOST_FILES}", f"set task.path to {FORMATS}")
    named = [(split_named(file), table_of(file)) for file in files]
    has_splits = any(name == "test" for name, _ in named) and any(name == "train" for name, _ in named)
    if has_splits and (stray := [table.file.name for name, table in named if name is None]):
        raise DataError(
            f"{path}: {stray[0]} begins with none of {', '.join(SPLIT_NAMES)}", "rename it, or move it away"
        )
    by_split: dict[str, list[Table]] = {}
    for name, table in named:
        by_split.setdefault(name if has_splits else ALL, []).append(table)
    return by_split


def folders_in(path: Path, names: Iterable[str]) -> list[Path]:
    """The folders with these names. Raises DataError for a link to somewhere else: who shared it chose where."""
    folders = [path / name for name in sorted(names) if (path / name).is_dir()]
    if outside := [folder for folder in folders if not folder.resolve().is_relative_to(path.resolve())]:
        raise DataError(f"{outside[0]}: a link that leads out of its folder", "move the folder there")
    return folders


def table_of(file: Path) -> Table:
    if ending(file) not in READERS:
        raise DataError(f"{file}: of an unknown kind", f"set task.path to {FORMATS}")
    return Table(file, READERS[ending(file)])


def ending(file: Path) -> str:
    name = file.name.lower().removesuffix(".gz")
    return "" if file.name.startswith(".") else Path(name).suffix


def split_named(file: Path) -> str | None:
    """The split that the beginning of a file's name tells: `train-00000-of-2.parquet` trains."""
    names = sorted(SPLIT_NAMES, key=len, reverse=True)
    return next((SPLIT_NAMES[name] for name in names if file.name.lower().startswith(name)), None)


def csv_rows(file: Path, columns: Sequence[str]) -> Iterator[Row]:
    csv.field_size_limit(LONGEST_LINE)
    lines = (f"{decoded(line, f'{file}:{number}')}\n" for number, line in records_of(file))
    reader = csv.reader(lines, delimiter="\t" if ending(file) == ".tsv" else ",", strict=True)
    begin = 1  # the line that the row begins with
    try:
        header = next(reader, [])
        numbers = [position(name, header, f"{file}:1") for name in columns]
        begin = reader.line_num + 1
        for cells in reader:
            where = f"{file}:{reader.line_num}"
            begin = reader.line_num + 1
            if cells and len(cells) != len(header):
                raise DataError(f"{where}: {len(cells)} cells under {len(header)} columns", "put a whole file there")
            if cells:
                yield Row(where, tuple(cells[number] for number in numbers))
    except csv.Error as error:
        raise DataError(
            f"{file}:{begin}: {one_line(error)}", "close its quotation, or put a whole file there"
        ) from error


def parquet_rows(file: Path, columns: Sequence[str]) -> Iterator[Row]:
    """A file of a few bytes may hold a column of any type and size: each batch is checked before a cell is read."""
    import pyarrow as pa

    number = 0
    try:
        with refusing_arrow(file, ()), parquet_file(file) as opened:
            schema = opened.schema_arrow
            fields = [schema.field(position(name, schema.names, file)) for name in columns]
            require_unpackable(file, opened.metadata, columns)
        texts = [field.name for field in fields if is_text(field.type)]  # a text that is repeated is kept once
        with refusing_arrow(file, ()), parquet_file(file, read_dictionary=texts) as opened:
            for batch in opened.iter_batches(ROWS_AT_ONCE, columns=list(columns)):
                arrays = [batch.column(name) for name in columns]
                arrays = [array.storage if isinstance(array, pa.ExtensionArray) else array for array in arrays]
                for name, array in zip(columns, arrays, strict=True):
                    _check(array, f"{file}: column '{name[:40]}'")
                for row in range(len(batch)):
                    cells = tuple(array[row].as_py() for array in arrays)
                    number += 1
                    yield Row(f"{file}:{number}", cells)
    except UnicodeDecodeError as error:
        raise not_utf8(f"{file}:{number + 1}", error) from error


def _check(column: Any, where: str) -> None:
    """Raises DataError for a column of other types, or with a cell beyond the bounds; pyarrow's errors if it lies."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if not (is_text(kind) or _is_number(kind.value_type if _is_list(kind) else kind)):
        raise DataError(f"{where} holds {one_line(kind)[:40]}, no texts, numbers or lists of numbers")
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error):  # of which reading a cell says the row
            raise
    texts = column.dictionary if pa.types.is_dictionary(kind) else column
    if is_text(texts.type) and (pc.max(pc.binary_length(texts)).as_py() or 0) > LONGEST_LINE:
        raise DataError(f"{where}: more than {LONGEST_LINE // MIB} MiB in a cell")
    if _is_list(kind) and (pc.max(pc.list_value_length(column)).as_py() or 0) > LONGEST_LIST:
        raise DataError(f"{where}: more than {LONGEST_LIST:,} numbers in a cell")


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_null(kind)


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


READERS = {".csv": csv_rows, ".tsv": csv_rows, ".jsonl": json_rows, ".ndjson": json_rows, ".parquet": parquet_rows}
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "encoder.json", "vocab.bpe")
READS = (*(f"*{end}{packed}" for end in READERS for packed in ("", ".gz")), *TOKENIZER)  # in a folder
