"""Articles of WikiText: a file of lines, in which ` = Title = ` between blank lines begins an article."""

import io
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from tasks.checks import DataError
from tasks.data_sources import BROKEN, LONGEST_LINE, MIB, decoded, opened_text
from tasks.lm.documents import SHARD, Document, broken_text, grouped

HEADING = re.compile(rb" = [^=\s].* = \s*")  # of the first level; ` = = Life = = ` is of the second


@dataclass(frozen=True)
class Articles:
    """Bytes start..stop of a (gzipped) file of WikiText: whole articles, each a document."""

    file: Path
    start: int
    stop: int
    line: int  # number of the first one, from 1
    count: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    def documents(self) -> Iterator[Document]:
        with opened_text(self.file) as stream:
            try:
                stream.seek(self.start)
                data = stream.read(self.size)
            except BROKEN as error:
                raise broken_text(self.file, error) from error
        if len(data) < self.size:
            raise DataError(f"{self.file}: shorter than it was", "put the whole file there")
        starts = list(article_starts(io.BytesIO(data)))
        for (begin, line), (end, _) in itertools.pairwise([*starts, (len(data), 0)]):
            where = f"{self.file}:{self.line + line}"
            yield Document(where, decoded(data[begin:end], self.file, at=self.start + begin))


class ArticleIndex(NamedTuple):
    """Where the articles of a file begin: bytes and line numbers from 0."""

    file: Path
    starts: list[tuple[int, int]]
    size: int  # bytes
    lines: int

    def pieces(self, first: int = 0, last: int | None = None, size: int = SHARD // 8) -> list[Articles]:
        """Articles first..last in pieces of about `size` bytes."""
        edges = [*self.starts, (self.size, self.lines)]
        last = len(self.starts) if last is None else last
        singles = [
            Articles(self.file, begin, end, line + 1, 1)
            for (begin, line), (end, _) in itertools.pairwise(edges[first : last + 1])
        ]
        return [
            Articles(self.file, some[0].start, some[-1].stop, some[0].line, len(some))
            for some in grouped(singles, size)
        ]


def article_index(file: Path) -> ArticleIndex:
    """Raises DataError."""
    size, number = 0, 0

    def counted(stream: IO[bytes]) -> Iterator[bytes]:
        nonlocal size, number
        while line := stream.readline(LONGEST_LINE + 1):
            size, number = size + len(line), number + 1
            if len(line) > LONGEST_LINE:
                raise DataError(f"{file}:{number}: more than {LONGEST_LINE // MIB} MiB in a line")
            yield line

    with opened_text(file) as stream:
        try:
            starts = list(article_starts(counted(stream)))
        except BROKEN as error:
            raise broken_text(file, error) from error
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
