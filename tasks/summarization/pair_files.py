"""Documents and summaries in files: a line each of two files, or JSON lines.

train.source, train.target    one document or summary a line; NEWLINE_CHAR in a line is a line break
train.jsonl(.gz)              {"document": ..., "summary": ...}
train*.parquet                the same, in columns
train.txt.src.*.truncated.txt, train.txt.tgt.*.truncated.txt    as Multi-News' authors name their cut files
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tasks import data_sources
from tasks.cells import Row
from tasks.checks import DataError
from tasks.data.rows import parquet_rows
from tasks.data_task import SPLITS
from tasks.seq2seq.pair_files import files_by_split, incomplete, of_line_files
from tasks.seq2seq.pairs import Pair, Piece
from tasks.summarization.rouge import sentences

PART = 2048  # lines
NEWLINE = "NEWLINE_CHAR"  # in a line of Multi-News, for a line break
SPLIT_NAMES = {"train": "train", "validation": "val", "valid": "val", "val": "val", "test": "test"}
NAME = re.compile(r"(?:.*[_.-])?(train|validation|valid|val|test)\.(jsonl|source|src|src\.cleaned|target|tgt)(?:\.gz)?")
LAYOUT = "a folder with a .jsonl(.gz), or a .source and a .target file, of train, val and test"
WORD = re.compile(r"\w+")
GRAM = 3  # words
SHARE = 0.5  # of a sentence's grams that the summary has, if it is one of an abstract
TRUNCATED = re.compile(r"(train|val|test)\.txt\.(src|tgt)\..*truncated\.txt(?:\.gz)?")
PARQUET = re.compile(r"(train|validation|valid|val|test)(?:[-_.].*)?\.(parquet)")
KINDS = {"jsonl": "rows", "parquet": "rows", "target": "target", "tgt": "target"}  # of files, by their names
KEYS = ("document", "summary")


@dataclass(frozen=True)
class RowPairs:
    """Rows start..stop (from 0) of JSON lines or of a parquet file; `cut_abstract`: documents lose their abstracts."""

    file: Path
    start: int
    stop: int
    cut_abstract: bool

    @property
    def count(self) -> int:
        return self.stop - self.start

    def pairs(self) -> Iterator[Pair]:
        """Raises DataError."""
        for where, texts in rows_of(self.file, self.start, self.stop):
            if wrong := [key for key, text in zip(KEYS, texts, strict=True) if not isinstance(text, str)]:
                raise DataError(f"{where}: no text {wrong[0]!r} in this row", "put the right file there")
            document, summary = texts
            yield Pair(where, without_abstract(document, summary) if self.cut_abstract else document, summary)


def rows_of(file: Path, start: int, stop: int) -> Iterator[Row]:
    """Only these rows are parsed. Raises DataError."""
    if file.suffix == ".parquet":
        yield from itertools.islice(parquet_rows(file, KEYS), start, stop)
        return
    for number, line in itertools.islice(data_sources.records_of(file), start, stop):
        where = f"{file}:{number}"
        row = data_sources.json_object(line, where)
        yield Row(where, tuple(map(row.get, KEYS)))


def pieces(folder: Path, *, cut_abstract: bool) -> dict[str, list[Piece]]:
    """The pairs of each split in a folder. Raises DataError."""
    there = data_sources.files_in(folder, "*")
    made = {}
    for split, files in files_by_split(there, SPLITS, _split_and_kind).items():
        if files.keys() == {"rows"}:
            made[split] = of_rows(files["rows"], cut_abstract)
        elif files.keys() != {"source", "target"}:
            raise incomplete(folder, split, files, LAYOUT)
        elif cut_abstract:
            raise DataError(f"{folder}: task.cut_abstract is for .jsonl files", "set it to false")
        else:
            made[split] = of_line_files(files["source"], files["target"], text_of_line, PART)
    return made


def _split_and_kind(name: str) -> tuple[str, str] | None:
    match = NAME.fullmatch(name) or TRUNCATED.fullmatch(name) or PARQUET.fullmatch(name)
    return match and (SPLIT_NAMES[match[1]], KINDS.get(match[2], "source"))


def text_of_line(file: Path, line: str) -> str:
    return line.strip().replace(NEWLINE, "\n")


def of_rows(file: Path, cut_abstract: bool) -> list[RowPairs]:
    """The rows of a parquet file together, as it is read at once; others in parts. Raises DataError."""
    is_parquet = file.suffix == ".parquet"
    count = sum(1 for _ in (parquet_rows(file, KEYS) if is_parquet else data_sources.records_of(file)))
    part = max(1, count) if is_parquet else PART
    return [RowPairs(file, start, min(start + part, count), cut_abstract) for start in range(0, count, part)]


def without_abstract(document: str, summary: str) -> str:
    """The document behind its abstract: behind the last sentence, before two others in a row, that is the summary's.

    A sentence is the summary's if it has half of its runs of three words. For sets such as ScisummNet, whose documents
    are papers with their abstracts, which are most of the summaries.
    """
    summary_grams, parts, last = set(_grams(summary)), sentences(document), 0
    for number, sentence in enumerate(parts):
        grams = _grams(sentence)
        if grams and sum(gram in summary_grams for gram in grams) >= SHARE * len(grams):
            last = number + 1
        elif number > last:
            break
    return " ".join(parts[last:]) if last else document


def _grams(text: str) -> list[tuple[str, ...]]:
    words = WORD.findall(text.lower())
    return list(zip(*(words[first:] for first in range(GRAM)), strict=False))
