"""Documents in parquet files: rows of the column `text`, read a few at a time."""

import itertools
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.checks import DataError
from tasks.data_sources import MIB, most_unpacked, not_utf8, refusing
from tasks.lm.documents import SHARD, Document
from tasks.regular_files import require_regular

ROWS_AT_ONCE = 64


@dataclass(frozen=True)
class ParquetRows:
    """Rows start..stop of a row group of a parquet file, numbered in the group: texts in the column `text`.

    `only` are the rows that are used, None: all but those of `without`. With `joined` so many rows after each other,
    sentences, are the lines of one document.
    """

    file: Path
    group: int
    first: int  # the row of the file that the group begins with
    start: int
    stop: int
    size: int
    only: tuple[int, ...] | None = None
    without: tuple[int, ...] = ()
    joined: int | None = None

    @property
    def count(self) -> int:
        rows = self.stop - self.start - len(self.without) if self.only is None else len(self.only)
        return -(-rows // (self.joined or 1))

    def documents(self) -> Iterator[Document]:
        rows = self._rows()
        if self.joined is None:
            yield from rows
            return
        while some := list(itertools.islice(rows, self.joined)):
            yield Document(some[0].where, "".join(f"{row.text}\n" for row in some if row.text))

    def _rows(self) -> Iterator[Document]:
        only, without = None if self.only is None else set(self.only), set(self.without)
        row = 0
        with refusing_arrow(self.file), parquet_file(self.file) as opened_file:
            for batch in opened_file.iter_batches(ROWS_AT_ONCE, row_groups=[self.group], columns=["text"]):
                if row >= self.stop:
                    return
                for number, value in enumerate(batch.column(0), row):
                    used = number not in without if only is None else number in only
                    if used and self.start <= number < self.stop:
                        yield self._document(number, value)
                row += len(batch)

    def _document(self, number: int, value: Any) -> Document:
        where = f"{self.file}:{self.first + number + 1}"
        try:
            text = value.as_py()
        except UnicodeDecodeError as error:
            raise not_utf8(where, error) from error
        if text is None:
            raise DataError(f"{where}: no text in this row")
        return Document(where, text)


def parquet_rows(file: Path, *, joined: int | None = None) -> list[ParquetRows]:
    """Pieces of a parquet file with a column `text`. Raises DataError."""
    pieces, first = [], 0
    with refusing_arrow(file), parquet_file(file) as opened_file:
        schema, metadata = opened_file.schema_arrow, opened_file.metadata
        if "text" not in schema.names or not is_text(schema.field("text").type):
            raise DataError(f"{file}: no column text with strings", "put the right file there")
        require_unpackable(file, metadata, ("text",))
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            columns = [group.column(i) for i in range(group.num_columns)]
            size = sum(column.total_uncompressed_size for column in columns if column.path_in_schema == "text")
            parts = min(max(1, -(-size // SHARD)), max(1, group.num_rows))
            edges = [group.num_rows * part // parts for part in range(parts + 1)]
            pieces += [
                ParquetRows(file, number, first, start, stop, size // parts, joined=joined)
                for start, stop in itertools.pairwise(edges)
                if start < stop
            ]
            first += group.num_rows
    return pieces


def parquet_file(file: Path, **options: Any) -> Any:
    """`options`: of `pyarrow.parquet.ParquetFile`."""
    import pyarrow.parquet as pq

    require_regular(file, follow=True)
    return pq.ParquetFile(file, memory_map=True, pre_buffer=False, page_checksum_verification=True, **options)


def require_unpackable(file: Path, metadata: Any, names: Collection[str]) -> None:
    """Raises DataError if these columns unpack to more than texts do: a file of a megabyte may hold gigabytes."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(i) for group in groups for i in range(group.num_columns)]
    chosen = [column for column in columns if column.path_in_schema.split(".")[0] in names]
    size = sum(column.total_uncompressed_size for column in chosen)
    most = most_unpacked(file.stat().st_size)
    if size > most or min((column.total_uncompressed_size for column in chosen), default=0) < 0:
        raise DataError(f"{file}: it unpacks to {size // MIB:,} MiB, a text of its size to {most // MIB} MiB at most")


def is_text(kind: Any) -> bool:
    """Whether cells of this type of Arrow are texts, in any of its layouts; a dictionary keeps each text once."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def refusing_arrow(file: Path, texts: tuple[type[Exception], ...] = (UnicodeDecodeError,)) -> AbstractContextManager:
    """Turns the errors of Arrow into a DataError of one line.

    `texts`: the errors of a broken text; () where the caller names its row.
    """
    import pyarrow as pa

    return refusing(file, errors=(pa.ArrowException, OSError, MemoryError, *texts))
