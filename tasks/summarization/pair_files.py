"""Documents and summaries in files: a line each of two files, or JSON lines.

    train.source, train.target    one document or summary a line; NEWLINE_CHAR in a line is a line break
    train.jsonl(.gz)              {"document": ..., "summary": ...}
    train*.parquet                the same, in columns
    train.txt.src.*.truncated.txt, train.txt.tgt.*.truncated.txt    as Multi-News' authors name their cut files

Files are read in parts, each in the process that encodes it.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tasks import data_sources
from tasks.checks import DataError
from tasks.data.rows import parquet_rows
from tasks.data_task import SPLITS
from tasks.seq2seq.pairs import Pair, Piece, check_same_length, files_by_split, incomplete
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
KINDS = {"jsonl": "jsonl", "parquet": "parquet", "target": "target", "tgt": "target"}  # of files, by their names
KEYS = ("document", "summary")


@dataclass(frozen=True)
class LinePairs:
    """Lines start..stop (from 0) of a file of documents and of one of summaries."""

    sources: Path
    targets: Path
    start: int
    stop: int

    @property
    def count(self) -> int:
        return self.stop - self.start

    def pairs(self) -> Iterator[Pair]:
        both = (self._texts(file) for file in (self.sources, self.targets))
        for (_, source), (where, target) in zip(*both, strict=True):
            yield Pair(where, source, target)

    def _texts(self, file: Path) -> Iterator[tuple[str, str]]:
        for number, line in itertools.islice(data_sources.lines_of(file), self.start, self.stop):
            yield (where := f"{file}:{number}"), data_sources.decoded(line, where).strip().replace(NEWLINE, "\n")


@dataclass(frozen=True)
class JsonLines:
    """Lines start..stop (from 0) of a file of JSON objects; `cut_abstract` takes the abstract from the document."""

    file: Path
    start: int
    stop: int
    cut_abstract: bool

    @property
    def count(self) -> int:
        return self.stop - self.start

    def pairs(self) -> Iterator[Pair]:
        for number, line in itertools.islice(data_sources.records_of(self.file), self.start, self.stop):
            where = f"{self.file}:{number}"
            document, summary = _fields(line, where)
            yield Pair(where, without_abstract(document, summary) if self.cut_abstract else document, summary)


@dataclass(frozen=True)
class ParquetPairs:
    """The rows of a parquet file, as `JsonLines`."""

    file: Path
    count: int
    cut_abstract: bool

    def pairs(self) -> Iterator[Pair]:
        for where, (document, summary) in parquet_rows(self.file, KEYS):
            if not isinstance(document, str) or not isinstance(summary, str):
                raise DataError(f"{where}: no text in this row", "put the right file there")
            yield Pair(where, without_abstract(document, summary) if self.cut_abstract else document, summary)


def pieces(folder: Path, *, cut_abstract: bool) -> dict[str, list[Piece]]:
    """The pairs of each split in a folder. Raises DataError."""
    there = data_sources.files_in(folder, "*")
    made = {}
    for split, files in files_by_split(there, SPLITS, _split_and_kind).items():
        if "jsonl" in files and len(files) == 1:
            made[split] = _of_json_lines(files["jsonl"], cut_abstract)
        elif "parquet" in files and len(files) == 1:
            made[split] = [
                ParquetPairs(files["parquet"], sum(1 for _ in parquet_rows(files["parquet"], KEYS)), cut_abstract)
            ]
        elif files.keys() == {"source", "target"} and not cut_abstract:
            made[split] = of_line_files(files["source"], files["target"])
        elif files.keys() == {"source", "target"}:
            raise DataError(f"{folder}: task.cut_abstract is for .jsonl files", "set it to false")
        else:
            raise incomplete(folder, split, files, LAYOUT)
    return made


def _split_and_kind(name: str) -> tuple[str, str] | None:
    match = NAME.fullmatch(name) or TRUNCATED.fullmatch(name) or PARQUET.fullmatch(name)
    return match and (SPLIT_NAMES[match[1]], KINDS.get(match[2], "source"))


def of_line_files(sources: Path, targets: Path) -> list[LinePairs]:
    """Raises DataError for files with different numbers of lines."""
    counts = {file: sum(1 for _ in data_sources.lines_of(file)) for file in (sources, targets)}
    check_same_length(counts)
    return [LinePairs(sources, targets, start, stop) for start, stop in _parts(counts[sources])]


def _of_json_lines(file: Path, cut_abstract: bool) -> list[JsonLines]:
    count = sum(1 for _ in data_sources.records_of(file))
    return [JsonLines(file, start, stop, cut_abstract) for start, stop in _parts(count)]


def _parts(count: int) -> list[tuple[int, int]]:
    return [(start, min(start + PART, count)) for start in range(0, count, PART)]


def _fields(line: bytes, where: str) -> tuple[str, str]:
    row = data_sources.json_object(line, where)
    texts = [row.get(key) for key in KEYS]
    if wrong := [key for key, text in zip(KEYS, texts, strict=True) if not isinstance(text, str)]:
        raise DataError(f"{where}: no text {wrong[0]!r} in this line", "put the right file there")
    return texts[0], texts[1]


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
