"""Pairs of texts in files: a line each of two files, with a partner in the other one.

Files are read in parts, each in the process that encodes it; a part knows where it begins.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tasks import data_sources
from tasks.checks import DataError
from tasks.seq2seq.pairs import Pair


@dataclass(frozen=True)
class LinePairs:
    """Parallel lines start + 1, ..., start + count of a file of sources and a file of targets.

    They begin at the bytes `offsets` of the (decompressed) content. `text` makes a text of a line of a file.
    """

    files: tuple[Path, Path]
    start: int
    offsets: tuple[int, int]
    count: int
    text: Callable[[Path, str], str]

    def pairs(self) -> Iterator[Pair]:
        """Raises DataError."""
        both = (self._texts(file, offset) for file, offset in zip(self.files, self.offsets, strict=True))
        for (_, source), (where, target) in zip(*both, strict=True):
            yield Pair(where, source, target)

    def _texts(self, file: Path, offset: int) -> Iterator[tuple[str, str]]:
        """(file:line, text) of each line."""
        with data_sources.opened_text(file) as stream:
            with data_sources.refusing(file):
                stream.seek(offset)
            for number, line in itertools.islice(data_sources.lines(stream, str(file)), self.count):
                where = f"{file}:{self.start + number}"
                yield where, self.text(file, data_sources.decoded(line, where))


def of_line_files(sources: Path, targets: Path, text: Callable[[Path, str], str], part: int) -> list[LinePairs]:
    """Parts of so many lines. Raises DataError for files with different numbers of lines."""
    (count, marks), (target_count, target_marks) = (_marks(file, part) for file in (sources, targets))
    check_same_length({sources: count, targets: target_count})
    return [
        LinePairs((sources, targets), start, offsets, min(part, count - start), text)
        for start, *offsets in zip(range(0, count, part), marks, target_marks, strict=True)
    ]


def _marks(file: Path, part: int) -> tuple[int, list[int]]:
    """The number of lines of a file, and the byte at which each part of them begins. Raises DataError."""
    count, at, marks = 0, 0, []
    with data_sources.opened_text(file) as stream:
        for line in data_sources.raw_lines(stream, str(file)):
            if count % part == 0:
                marks.append(at)
            count, at = count + 1, at + len(line)
    return count, marks


def check_same_length(counts: Mapping[Path, int]) -> None:
    """Raises DataError if a file of sources and its file of targets have different numbers of lines."""
    (shorter, fewer), (longer, more) = sorted(counts.items(), key=lambda item: item[1])
    if fewer != more:
        lines = f"line {more} has" if more == fewer + 1 else f"lines {fewer + 1} to {more} have"
        problem = f"{longer}: {more:,} lines, but {fewer:,} in {shorter.name}: {lines} no partner there"
        raise DataError(problem, "put two files of one release there")


def files_by_split(
    files: Iterable[Path], splits: Iterable[str], parse: Callable[[str], tuple[str, str] | None]
) -> dict[str, dict[str, Path]]:
    """{split: {kind: file}}, as `parse` reads (split, kind) from a file's name. Raises DataError for two of a kind."""
    by_split: dict[str, dict[str, Path]] = {split: {} for split in splits}
    for file in files:
        if parsed := parse(file.name):
            split, kind = parsed
            if kind in by_split[split]:
                both = f"{file} and {by_split[split][kind].name} both are {split}'s {kind}"
                raise DataError(both, "leave one of them there")
            by_split[split][kind] = file
    return by_split


def incomplete(folder: Path, split: str, files: Mapping[str, Path], layout: str) -> DataError:
    there = " and ".join(file.name for file in files.values()) or "no file"
    return DataError(f"{folder}: {there} for {split}", f"it is to be {layout}")
