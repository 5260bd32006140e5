"""Articles of WikiText: a file of lines, in which ` = Title = ` between blank lines begins an article."""

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from tasks.checks import DataError
from tasks.data_sources import decoded, opened_text, raw_lines, refusing
from tasks.lm.documents import SHARD, Document, grouped

HEADING = re.compile(rb" = [^=\s].* = \s*")  # of the first level; ` = = Life = = ` is of the second


@dataclass(frozen=True)
class Articles:
    """Consecutive articles of a (gzipped) file of WikiText, each a document.

    `edges`: byte and line, from 0, where each begins, and where the last one ends.
    """

    file: Path
    edges: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        return len(self.edges) - 1

    @property
    def size(self) -> int:
        return self.edges[-1][0] - self.edges[0][0]

    def documents(self) -> Iterator[Document]:
        start = self.edges[0][0]
        with opened_text(self.file) as stream, refusing(self.file):
            stream.seek(start)
            data = stream.read(self.size)
        if len(data) < self.size:
            raise DataError(f"{self.file}: shorter than it was", "put the whole file there")
        for (begin, line), (end, _) in itertools.pairwise(self.edges):
            yield Document(f"{self.file}:{line + 1}", decoded(data[begin - start : end - start], self.file, at=begin))


class ArticleIndex(NamedTuple):
    """Where the articles of a file begin: bytes and line numbers from 0."""

    file: Path
    starts: list[tuple[int, int]]
    size: int  # bytes
    lines: int

    def pieces(self, first: int = 0, last: int | None = None, size: int = SHARD // 8) -> list[Articles]:
        """Articles first..last in pieces of about `size` bytes."""
        edges = [*self.starts, (self.size, self.lines)][first : None if last is None else last + 1]
        groups = grouped([Articles(self.file, pair) for pair in itertools.pairwise(edges)], size)
        return [Articles(self.file, (*(single.edges[0] for single in some), some[-1].edges[1])) for some in groups]


def article_index(file: Path) -> ArticleIndex:
    """Raises DataError."""
    size, number = 0, 0

    def counted(stream: IO[bytes]) -> Iterator[bytes]:
        nonlocal size, number
        for line in raw_lines(stream, str(file)):
            size, number = size + len(line), number + 1
            yield line

    with opened_text(file) as stream:
        starts = list(article_starts(counted(stream)))
    return ArticleIndex(file, starts, size, number)


def article_starts(lines: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    """Byte and line, both from 0, where each article begins: the blank line before its heading. The first is at 0.

    A heading stands between blank lines: without that condition formulas in the text are taken for headings.
    """
    heading: tuple[int, int] | None = None
    blank: tuple[int, int] | None = (0, 0)
    position = 0
    for number, line in enumerate(lines):
        if number == 0:
            yield 0, 0
        is_blank = not line.strip()
        if heading is not None and is_blank and heading != (0, 0):
            yield heading
        heading = blank if blank is not None and HEADING.fullmatch(line) else None
        blank = (position, number) if is_blank else None
        position += len(line)
