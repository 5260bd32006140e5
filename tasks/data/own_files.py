"""What the tasks on a user's own files share: the sources, the tokenizer, the rows by split."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tasks.checks import DataError, Progress
from tasks.data.rows import tables
from tasks.data.splits import divided, split_in
from tasks.data_task import SPLITS

FILES, AUTO = "files", "auto"  # `auto`: the files at `path`, generated data without one; for budget=smoke
TOKENIZERS = ("bytes", "words", "json")
MOST_TEXT = 4 << 30  # bytes of all texts together
ROW = 200  # bytes that a row takes beside its text
EVERY = 100_000_000  # examples: all
SHOWN = 1000  # rows between two lines of progress


class Entry(NamedTuple):
    where: str  # file:line
    content: bytes  # what a model reads, for the split and for copies
    value: Any  # the label or target


def chosen_source(source: str, path: str | Path | None, generated: str) -> str:
    """`source`, where `auto` is decided."""
    return source if source != AUTO else generated if path is None else FILES


def text_of(value: Any, column: str, where: str) -> str:
    """Raises DataError unless a cell is a text that is not empty."""
    if not isinstance(value, str):
        raise DataError(f"{where}: column '{column}' is {type(value).__name__}, not a text")
    if not value.strip():
        raise DataError(f"{where}: column '{column}' is empty", "remove the row, or put a text there")
    if "\0" in value:
        raise DataError(f"{where}: column '{column}' has a zero byte, so the file is no text", "put a text there")
    return value


def entries_by_split(
    path: Path,
    columns: Sequence[str],
    make: Callable[[tuple[Any, ...], str], tuple[bytes, Any]],
    *,
    split_column: str | None,
    fractions: Sequence[float],
    seed: int,
    progress: Progress,
) -> dict[str, list[Entry]]:
    """`make(cells, where)` gives content and value of a row. The order of the rows is kept. Raises DataError."""
    wanted = [*columns, *([split_column] if split_column else [])]
    splits, entries, size = [], [], 0
    for split, some in tables(path).items():
        for table in some:
            for where, cells in table.rows(wanted):
                content, value = make(cells[: len(columns)], where)
                splits.append(split_in(cells[-1], split_column, where) if split_column else split)
                entries.append(Entry(where, content, value))
                size += len(content) + ROW
                if size > MOST_TEXT:
                    raise DataError(f"{where}: more than {MOST_TEXT >> 30} GiB of inputs so far", "take fewer rows")
                if not len(entries) % SHOWN:
                    progress(f"reading {table.file.name}", len(entries), 0)
    named = divided(splits, [entry.content for entry in entries], fractions, seed, path)
    return {split: [entry for entry, name in zip(entries, named, strict=True) if name == split] for split in SPLITS}


def check_columns(path: Path, columns: Sequence[str]) -> None:
    """Raises DataError for a file at `path` that lacks a column. Reads one row of each file."""
    for some in tables(path).values():
        for table in some:
            next(iter(table.rows(columns)), None)
