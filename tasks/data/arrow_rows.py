"""Rows of Parquet files, and of the folders that `save_to_disk` of `datasets` writes, read by pyarrow alone.

A file of a few bytes may hold a column of any type and size. So only texts, numbers and lists of numbers are read, the
buffers of each batch are validated before a cell is read, and cells have bounds. A saved data set consists of the Arrow
files that its `state.json` names; only files in its folder are read, and nothing else in it has an effect.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tasks.checks import DataError
from tasks.data_sources import LONGEST_LINE, MIB, one_line, refusing
from tasks.lm.parquet import is_text, parquet_file, refusing_arrow, require_unpackable
from tasks.regular_files import open_regular, read_json, require_regular

MOST_ROWS = 20_000_000  # of a table: each takes memory, however small the file is
ROWS_AT_ONCE = 256
LONGEST_LIST = 1 << 20  # numbers
TOO_MANY = "put them into several files"
STATE = "state.json"
MOST_STATE = 4 * MIB

Cells = tuple[Any, ...]  # one per column
Choose = Callable[[Sequence[str]], Sequence[int]]  # names of all columns -> numbers of those that are read


def parquet_cells(file: Path, choose: Choose) -> Iterator[Cells]:
    """Raises DataError."""
    with refusing_arrow(file, ()), parquet_file(file) as opened:
        fields = [opened.schema_arrow.field(number) for number in choose(opened.schema_arrow.names)]
        names = [field.name for field in fields]
        require_unpackable(file, opened.metadata, names)
        texts = [field.name for field in fields if is_text(field.type)]  # a text that is repeated is kept once
    with refusing_arrow(file, ()), parquet_file(file, read_dictionary=texts) as opened:
        for batch in opened.iter_batches(ROWS_AT_ONCE, columns=names):
            yield from _cells(batch, choose, file)


def saved_cells(folder: Path, choose: Choose) -> Iterator[Cells]:
    """Raises DataError."""
    import pyarrow as pa

    for file in _arrow_files(folder):
        with refusing_arrow(file, ()), open_regular(file) as stream, pa.ipc.open_stream(stream) as batches:
            for batch in batches:
                for start in range(0, len(batch), ROWS_AT_ONCE):
                    yield from _cells(batch.slice(start, ROWS_AT_ONCE), choose, file)


def _arrow_files(folder: Path) -> list[Path]:
    """The files of a saved data set. Raises DataError for one outside its folder."""
    file = folder / STATE
    errors = (OSError, ValueError, LookupError, TypeError, AttributeError)
    with refusing(f"{file}: no saved data set", "save it again", errors):
        state = read_json(file, MOST_STATE)
        names = [entry["filename"] for entry in state["_data_files"]]
        if state.get("_indices_data_files"):
            raise ValueError("it has indices")
        if wrong := [name for name in names if not isinstance(name, str) or Path(name).name != name]:
            raise ValueError(f"{str(wrong[0])[:60]!r} is no file beside it")
        for name in names:
            require_regular(folder / name)
    return [folder / name for name in names]


def _cells(batch: Any, choose: Choose, file: Path) -> Iterator[Cells]:
    """The rows of a batch. Raises DataError, pyarrow's errors, or UnicodeDecodeError at the row of a broken text."""
    import pyarrow as pa

    columns = []
    for number in choose(batch.schema.names):
        column = batch.column(number)
        columns.append(column.storage if isinstance(column, pa.ExtensionArray) else column)
        _check(columns[-1], f"{file}: column '{batch.schema.names[number][:40]}'")
    for row in range(len(batch)):
        yield tuple(column[row].as_py() for column in columns)


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
