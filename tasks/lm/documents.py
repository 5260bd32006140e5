"""Documents of a corpus: read from files piece by piece, encoded into the cache's examples shard by shard.

A split is a list of pieces: a text file, members of an archive, rows of a parquet file (tasks/lm/parquet.py), articles
of WikiText (tasks/lm/articles.py). A piece is read in the process that encodes it. Pieces are put together into shards
of about 32 MiB of text, the same ones for any number of processes.

An example is one document, closed by the tokenizer's end token; its labels are its words, as `str.split` finds them,
and its UTF-8 bytes. Texts without a word are left out: an end token carries no information. With `reading=lines`
every line, without the white space at its ends, is closed by the end token, including blank lines; words and bytes are
still those of the original text.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol

import numpy as np

from tasks import data_sources
from tasks.checks import DataError
from tasks.data_sources import MIB, decoded, opened_text, refusing
from tasks.examples import Examples, Shards
from tasks.lm.tokenizers import Tokenizer, dtype

READINGS = ("packed", "lines")
SHARD = 32 * MIB  # bytes of text, about
BATCH = 1 << 22  # characters encoded at once
BLOCK = 16 * MIB  # of a text that is read in parts
UNZIPPED = 3  # times the size of a gzipped text


class Document(NamedTuple):
    where: str  # the file, or file:line or file:row, for messages
    text: str

    @property
    def size(self) -> int:
        return len(self.text)  # characters


class Piece(Protocol):
    """Documents that are read together. Picklable."""

    size: int  # bytes of text, about
    count: int  # documents, about

    def documents(self) -> Iterator[Document]:
        """Raises DataError."""


def shards(pieces: Sequence[Piece], tokenizer: Tokenizer, *, reading: str, title: str) -> Shards:
    """A split that has not been encoded yet. Raises DataError if there are no pieces."""
    if not pieces:
        raise DataError(f"{title}: no documents")
    makers = [Encoder(tuple(group), tokenizer, reading) for group in grouped(pieces, SHARD)]
    return Shards(makers, sum(piece.count for piece in pieces), title)


def grouped(items: Iterable[Any], most: int) -> Iterator[list[Any]]:
    """Groups of consecutive pieces or documents, no larger than `most` unless a single one is."""
    group, total = [], 0
    for item in items:
        if group and total + item.size > most:
            yield group
            group, total = [], 0
        group.append(item)
        total += item.size
    if group:
        yield group


@dataclass(frozen=True)
class Encoder:
    """Makes one shard."""

    pieces: tuple[Piece, ...]
    tokenizer: Tokenizer
    reading: str

    def __call__(self) -> Examples:
        tokens, lengths, labels, where = [], [], [], "nothing"
        documents = itertools.chain.from_iterable(piece.documents() for piece in self.pieces)
        for batch in grouped(documents, BATCH):
            where = batch[0].where
            if texts := [document.text for document in batch if not (document.text == "" or document.text.isspace())]:
                ids, length = encode(texts, self.tokenizer, self.reading)
                tokens.append(ids)
                lengths.append(length)
                labels += [(len(text.split()), len(text.encode())) for text in texts]
        if not labels:
            raise DataError(f"{where}: no words in it, nor in what follows it", "put a text there")
        offsets = np.cumsum(np.concatenate([[0], *lengths]), dtype=np.int64)
        return Examples(np.concatenate(tokens), offsets, np.array(labels, np.int64))


def encode(texts: Sequence[str], tokenizer: Tokenizer, reading: str) -> tuple[np.ndarray, np.ndarray]:
    """Concatenated token ids of the texts, end tokens included, and the number per text."""
    kind = dtype(tokenizer.vocab_size)
    if reading == "packed":
        return closed(tokenizer.encode(texts), tokenizer.end_id, kind)
    lines = [[line.strip() for line in text.removesuffix("\n").split("\n")] for text in texts]  # as in its file
    tokens, lengths = closed(tokenizer.encode(list(itertools.chain.from_iterable(lines))), tokenizer.end_id, kind)
    first = np.cumsum([0, *map(len, lines)])[:-1]
    return tokens, np.add.reduceat(lengths, first)


def closed(parts: Sequence[np.ndarray], end_id: int, kind: type[np.integer]) -> tuple[np.ndarray, np.ndarray]:
    """The parts one after another, `end_id` after each, and their lengths with it."""
    lengths = np.array([len(part) + 1 for part in parts], np.int64)
    ends = np.cumsum(lengths) - 1
    inside = np.ones(lengths.sum(), bool)
    inside[ends] = False
    tokens = np.full(len(inside), end_id, kind)
    tokens[inside] = np.concatenate(parts)
    return tokens, lengths


@dataclass(frozen=True)
class TextFile:
    """A (gzipped) text file, one document; one of more than LARGEST_MEMBER, several of about BLOCK."""

    file: Path
    size: int
    count: int = 1

    @classmethod
    def at(cls, file: Path) -> "TextFile":
        """Raises DataError if there is none."""
        with refusing(f"{file}:1", "put the file there"):
            return cls(file, file.stat().st_size * (UNZIPPED if file.suffix == ".gz" else 1))

    def documents(self) -> Iterator[Document]:
        if self.size <= data_sources.LARGEST_MEMBER:
            with opened_text(self.file) as stream:
                data = data_sources.content(stream, str(self.file))
            yield Document(str(self.file), decoded(data, self.file))
            return
        for start, data in blocks(self.file):
            yield Document(str(self.file), block_text(data, self.file, start))


def blocks(file: Path, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
    """(first byte, content) of parts of about BLOCK of a (gzipped) text, from byte `start` to `stop`.

    A part ends at the end of a line, or of a word where it has no line. Raises DataError.
    """
    rest, at = b"", start
    with opened_text(file) as stream, refusing(file):
        stream.seek(start)
        while data := stream.read(BLOCK if stop is None else min(BLOCK, stop - at - len(rest))):
            part = rest + data
            end = break_before(part, len(part)) if len(data) == BLOCK else len(part)
            rest, whole = part[end:], part[:end]
            if whole:
                yield at, whole
            at += end
    if rest:
        yield at, rest


def block_text(data: bytes, file: Path, start: int) -> str:
    """The text of a part, without a byte order mark. Raises DataError."""
    return decoded(data, file, at=start).removeprefix("" if start else "\ufeff")


@dataclass(frozen=True)
class Part:
    """Bytes start..stop of a text, as documents of about BLOCK; `of_lines`: with the line ends of a text file."""

    file: Path
    start: int
    stop: int
    of_lines: bool = False
    count: int = 1

    @property
    def size(self) -> int:
        return self.stop - self.start

    def documents(self) -> Iterator[Document]:
        for start, data in blocks(self.file, self.start, self.stop):
            text = block_text(data, self.file, start)
            if self.of_lines:
                text = text.replace("\r\n", "\n").removesuffix("\n") + "\n"
            yield Document(str(self.file), text)


def cut(file: Path, shares: Sequence[float], marks: Sequence[bytes] = (b"\n", b" ")) -> dict[str, list[Part]]:
    """The three parts of a text by bytes, each of whole lines, or of whole words where its lines are too few.

    Without `marks` no byte is changed, and only characters are whole. Raises DataError for a text that is too short.
    """
    size = sum(len(data) for _, data in blocks(file))
    edges = (
        [0, *(find_break(file, int(size * share), marks) for share in np.cumsum(shares)[:-1]), size] if size else [0, 0]
    )
    if any(stop <= start for start, stop in itertools.pairwise(edges)):
        raise DataError(f"{file}: {size:,} bytes, too few to cut in three", "put a longer text there")
    parts = (Part(file, *bounds, of_lines=bool(marks)) for bounds in itertools.pairwise(edges))
    return {split: [part] for split, part in zip(("train", "val", "test"), parts, strict=True)}


def find_break(file: Path, most: int, marks: Sequence[bytes]) -> int:
    """The last byte up to `most` at which a line begins, or a word."""
    start, data = next((start, data) for start, data in blocks(file) if start + len(data) >= most)
    return start + break_before(data, most - start, marks)


def break_before(text: bytes, most: int, marks: Sequence[bytes] = (b"\n", b" ")) -> int:
    """The end of the last line in the first `most` bytes; without one that of the last word; without one `most`,
    or less so that no character is cut."""
    for mark in marks:
        if (end := text.rfind(mark, 0, most) + 1) > 0:
            return end
    return len(text[:most].decode(errors="ignore").encode()) or most


@dataclass(frozen=True)
class Members:
    """Text files in a tar archive, in the order of `names`."""

    file: Path
    names: tuple[str, ...]
    size: int

    @property
    def count(self) -> int:
        return len(self.names)

    def documents(self) -> Iterator[Document]:
        wanted, contents = set(self.names), {}
        for name, stream in data_sources.archive(self.file, wanted.__contains__):
            contents[name] = data_sources.content(stream, f"{self.file}/{name}")
            if len(contents) == len(wanted):
                break
        for name in self.names:
            if name not in contents:
                raise DataError(f"{self.file}: {name} is not in it any more")
            where = f"{self.file}/{name}"
            yield Document(where, decoded(contents.pop(name), where))


@dataclass(frozen=True)
class FirstBytes:
    """The first documents of some pieces, `size` bytes of text in all; the last one is cut at white space."""

    pieces: tuple[Piece, ...]
    size: int

    @property
    def count(self) -> int:
        return sum(piece.count for piece in self.pieces)

    def documents(self) -> Iterator[Document]:
        left = self.size
        for piece in self.pieces:
            for document in piece.documents():
                text = document.text.encode()
                if len(text) >= left:
                    yield document._replace(text=cut_at_white_space(text, left))
                    return
                left -= len(text)
                yield document


@dataclass(frozen=True)
class Beginnings:
    """The beginnings of the first `count` documents of some pieces, `size` bytes of text in all and as many of each.

    A beginning ends at white space; a shorter document is whole. Raises DataError for too few documents.
    """

    pieces: tuple[Piece, ...]
    size: int
    count: int

    def documents(self) -> Iterator[Document]:
        some = itertools.islice(itertools.chain.from_iterable(piece.documents() for piece in self.pieces), self.count)
        number, where = 0, "no file"
        for number, document in enumerate(some, 1):  # noqa: B007
            where = document.where
            yield document._replace(text=cut_at_white_space(document.text.encode(), self.size // self.count))
        if number < self.count:
            raise DataError(f"{where}: {number} documents instead of {self.count}", f"set task.beginnings={number}")


def cut_at_white_space(text: bytes, most: int) -> str:
    """The whole words in the first `most` bytes of a UTF-8 text; of a longer word, its first characters."""
    kept = text[:most]
    if not text[most : most + 1].isspace() and not kept[-1:].isspace() and len(words := kept.rsplit(None, 1)) == 2:
        kept = words[0]
    return kept.decode(errors="ignore")


def members(file: Path, wanted: re.Pattern[str]) -> dict[str, list[Members]]:
    """Pieces of the text files in a tar archive, in order of their names, by the first group of `wanted`.

    Raises DataError.
    """
    found: dict[str, list[Members]] = {}
    for name, stream in data_sources.archive(file, lambda name: wanted.fullmatch(name) is not None):
        single = Members(file, (name,), len(data_sources.content(stream, f"{file}/{name}")))
        found.setdefault(wanted.fullmatch(name)[1], []).append(single)

    def joined(some: Sequence[Members]) -> Members:
        return Members(file, tuple(one.names[0] for one in some), sum(one.size for one in some))

    def place(one: Members) -> tuple[str, str]:
        return PurePosixPath(one.names[0]).name, one.names[0]

    return {key: [joined(some) for some in grouped(sorted(ones, key=place), SHARD)] for key, ones in found.items()}
