"""Sentences and their translations in files: parallel lines of two files, WMT's SGML.

train.en, train.de                       one sentence per line; also .gz
train.tok.en                             Moses' tokens, which become a text again
train.tok.clean.bpe.32000.en             the same in pieces of subword-nmt, as fairseq's release has them
newstest2014-deen-src.de.sgm             as WMT publishes its test sets
valid, val, dev, newstest2013            the development set
test, newstest2014                       the test set
"""

import html
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks import data_sources
from tasks.mt import moses
from tasks.seq2seq import pair_files
from tasks.seq2seq.pair_files import check_same_length, files_by_split, incomplete
from tasks.seq2seq.pairs import Pair, Piece

SOURCE, TARGET = "en", "de"
PART = 8192  # lines
SPLIT_NAMES = {"train": "train", "valid": "dev", "val": "dev", "dev": "dev", "newstest2013": "dev", "test": "test"}
SPLIT_NAMES |= {"newstest2014": "test"}
NAME = re.compile(rf"({'|'.join(SPLIT_NAMES)})(\.tok(?:\.clean)?(?:\.bpe\.\d+)?)?\.({SOURCE}|{TARGET})(?:\.gz)?")
SGM = re.compile(rf"({'|'.join(SPLIT_NAMES)})(-\w+)?-(?:src|ref)\.({SOURCE}|{TARGET})\.sgm")
SEGMENT = re.compile(r"<seg[^>]*>(.*?)</seg>", re.IGNORECASE | re.DOTALL)
LAYOUT = f"a folder with train, valid and test, each as .{SOURCE} and .{TARGET} (.gz; .tok.{SOURCE}: tokens)"
HUNDREDTH = 100  # every 100th pair of the training corpora validates


def text_of_line(file: Path, line: str) -> str:
    """What a line of tokens or of pieces says; of others what they are."""
    line = line.replace("@@ ", "") if ".bpe" in file.suffixes else line
    if ".tok" not in file.suffixes:
        return line.strip()
    return moses.detokenise(line, TARGET if f".{TARGET}" in file.suffixes else SOURCE)


@dataclass(frozen=True)
class Chosen:
    """Consecutive pieces: every 100th of their pairs, counted from number `first`, or all other pairs."""

    pieces: tuple[Piece, ...]
    first: int
    hundredth: bool

    @property
    def count(self) -> int:
        total = sum(piece.count for piece in self.pieces)
        chosen = (self.first + total) // HUNDREDTH - self.first // HUNDREDTH
        return chosen if self.hundredth else total - chosen

    def pairs(self) -> Iterator[Pair]:
        every = itertools.chain.from_iterable(piece.pairs() for piece in self.pieces)
        for number, pair in enumerate(every, self.first + 1):
            if (number % HUNDREDTH == 0) == self.hundredth:
                yield pair


def held_out(pieces: Sequence[Piece], at_once: int = 64) -> tuple[list[Piece], list[Piece]]:
    """(training, validation) pieces: every 100th pair of all pieces, in their order, validates."""
    firsts = list(itertools.accumulate((piece.count for piece in pieces), initial=0))
    train = [Chosen((piece,), first, False) for piece, first in zip(pieces, firsts, strict=False)]
    validate = [
        Chosen(tuple(pieces[start : start + at_once]), firsts[start], True) for start in range(0, len(pieces), at_once)
    ]
    return train, validate


def of_folder(folder: Path) -> dict[str, Sequence[Piece]]:
    """The pairs of `train`, `dev` and `test` in a folder and those below it. Raises DataError."""
    there = (file for file in data_sources.files_in(folder, "**/*") if file.is_file())
    by_split = files_by_split(there, ("train", "dev", "test"), _split_and_language)
    for split, files in by_split.items():
        if files.keys() != {SOURCE, TARGET}:
            raise incomplete(folder, split, files, LAYOUT)
    return {split: of_line_files(files[SOURCE], files[TARGET]) for split, files in by_split.items()}


def _split_and_language(name: str) -> tuple[str, str] | None:
    match = NAME.fullmatch(name) or SGM.fullmatch(name)
    return match and (SPLIT_NAMES[match[1]], match[3])


@dataclass(frozen=True)
class Segments:
    """The segments of two files of WMT's SGML."""

    sources: Path
    targets: Path
    count: int

    def pairs(self) -> Iterator[Pair]:
        both = zip(segments_of(self.sources), segments_of(self.targets), strict=True)
        for number, (source, target) in enumerate(both, 1):
            yield Pair(f"{self.targets}: segment {number}", source, target)


def segments_of(file: Path) -> list[str]:
    """Raises DataError."""
    with data_sources.opened_text(file) as stream:
        text = data_sources.decoded(data_sources.content(stream, str(file)), file)
    return [" ".join(html.unescape(segment).split()) for segment in SEGMENT.findall(text)]


def of_line_files(sources: Path, targets: Path) -> Sequence[Piece]:
    """Raises DataError for files with different numbers of lines."""
    if not sources.suffix == targets.suffix == ".sgm":
        return pair_files.of_line_files(sources, targets, text_of_line, PART)
    counts = {file: len(segments_of(file)) for file in (sources, targets)}
    check_same_length(counts)
    return [Segments(sources, targets, counts[sources])]
