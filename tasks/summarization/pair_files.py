"""Documents and summaries in files: a line each of two files, or JSON lines.

    train.source, train.target    one document or summary a line; NEWLINE_CHAR in a line is a line break
    train.jsonl(.gz)              {"document": ..., "summary": ...}

Files are read in parts, each in the process that encodes it.
"""

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks import data_sources
from tasks.checks import DataError
from tasks.data_sources import one_line
from tasks.data_task import SPLITS
from tasks.lm.documents import not_utf8
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
            yield (where := f"{file}:{number}"), text_of(line, where).strip().replace(NEWLINE, "\n")


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
        for number, line in itertools.islice(data_sources.lines_of(self.file), self.start, self.stop):
            where = f"{self.file}:{number}"
            document, summary = _fields(text_of(line, where), where)
            yield Pair(where, without_abstract(document, summary) if self.cut_abstract else document, summary)


def pieces(folder: Path, *, cut_abstract: bool) -> dict[str, list[Piece]]:
    """The pairs of each split in a folder. Raises DataError."""
    found: dict[str, dict[str, Path]] = {name: {} for name in SPLITS}
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if named := NAME.fullmatch(file.name):
            kind = {"jsonl": "jsonl", "target": "target", "tgt": "target"}.get(named[2], "source")
            split = SPLIT_NAMES[named[1]]
            if kind in found[split]:
                what = f"{file} and {found[split][kind].name} both are {split}'s {kind}"
                raise DataError(what, "leave one of them there")
            found[split][kind] = file
    made = {}
    for split, files in found.items():
        if "jsonl" in files and len(files) == 1:
            made[split] = _of_json_lines(files["jsonl"], cut_abstract)
        elif files.keys() == {"source", "target"} and not cut_abstract:
            made[split] = of_line_files(files["source"], files["target"])
        elif files.keys() == {"source", "target"}:
            raise DataError(f"{folder}: task.cut_abstract is for .jsonl files", "set it to false")
        else:
            there = " and ".join(file.name for file in files.values()) or "no file"
            raise DataError(f"{folder}: {there} for {split}", f"it is to be {LAYOUT}")
    return made


def of_line_files(sources: Path, targets: Path) -> list[LinePairs]:
    """Raises DataError for files that have not one line for each line of the other."""
    counts = [sum(1 for _ in data_sources.lines_of(file)) for file in (sources, targets)]
    if counts[0] != counts[1]:
        (shorter, fewer), (longer, more) = sorted(zip((sources, targets), counts, strict=True), key=lambda one: one[1])
        first, last = fewer + 1, more
        lines = f"line {first} has" if first == last else f"lines {first} to {last} have"
        what = f"{longer}: {more:,} lines, but {fewer:,} in {shorter.name}: {lines} no partner there"
        raise DataError(what, "put two files of one release there")
    return [LinePairs(sources, targets, start, stop) for start, stop in _parts(counts[0])]


def _of_json_lines(file: Path, cut_abstract: bool) -> list[JsonLines]:
    count = sum(1 for _ in data_sources.lines_of(file))
    return [JsonLines(file, start, stop, cut_abstract) for start, stop in _parts(count)]


def _parts(count: int) -> list[tuple[int, int]]:
    return [(start, min(start + PART, count)) for start in range(0, count, PART)]


def text_of(line: bytes, where: str) -> str:
    """Raises DataError for bytes that are not UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise not_utf8(where, error) from error


def _fields(line: str, where: str) -> tuple[str, str]:
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: no JSON ({one_line(error)[:80]})", "put the whole file there") from error
    texts = [found.get(key) if isinstance(found, dict) else None for key in KEYS]
    if wrong := [key for key, text in zip(KEYS, texts, strict=True) if not isinstance(text, str)]:
        raise DataError(f"{where}: no text {wrong[0]!r} in this line", "put the right file there")
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair, as JSON may spell it
        raise DataError(f"{where}: half a character (\\u{ord(error.object[error.start]):x})") from error
    return texts[0], texts[1]


def without_abstract(document: str, summary: str) -> str:
    """The document behind its abstract: behind the last sentence, before two others in a row, that is the summary's.

    A sentence is the summary's if it has half of its runs of three words. For sets such as ScisummNet, whose documents
    are papers with their abstracts, which are most of the summaries.
    """
    known, parts, last = set(_grams(summary)), sentences(document), 0
    for number, sentence in enumerate(parts):
        grams = _grams(sentence)
        if grams and sum(gram in known for gram in grams) >= SHARE * len(grams):
            last = number + 1
        elif number > last:
            break
    return " ".join(parts[last:]) if last else document


def _grams(text: str) -> list[tuple[str, ...]]:
    words = WORD.findall(text.lower())
    return list(zip(*(words[first:] for first in range(GRAM)), strict=False))
