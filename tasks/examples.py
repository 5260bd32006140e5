"""Labelled sequences in memory or memory-mapped: one piece of memory (`Examples`) or several, one after another.

Tokens are numbers of any one type: ids of a vocabulary (uint8, uint16, int32) or floats. Nothing here imports torch,
so that the processes that generate examples start fast.

    n examples, T tokens of all of them
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

# texts as bytes: the id of a byte is its value + 1, 0 is padding (LRA's ByteTextEncoder)
BYTE_SHIFT = 1  # id of byte 0
BYTE_SYMBOLS = 256 + BYTE_SHIFT


class Examples(NamedTuple):
    """Labelled sequences one after another: example i is tokens[offsets[i]:offsets[i + 1]]."""

    tokens: np.ndarray  # (T,) of any one number type
    offsets: np.ndarray  # (n + 1,) int64, starting at 0
    labels: np.ndarray  # (n,) or (n, k): uint8, or another number type

    @property
    def count(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> np.ndarray:
        """(n,) int64: tokens of each example."""
        return np.diff(self.offsets)

    @property
    def shards(self) -> "tuple[Examples, ...]":
        return (self,)

    def tokens_of(self, index: int) -> np.ndarray:
        """The tokens of one example; a view."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def part(self, start: int, stop: int) -> "Examples":
        """Examples start..stop; a view."""
        edges = self.offsets[start : stop + 1]
        return Examples(self.tokens[edges[0] : edges[-1]], edges - edges[0], self.labels[start:stop])

    def take(self, indices: Sequence[int]) -> "Examples":
        """The examples of these numbers, in this order; a copy."""
        return join(self.part(i, i + 1) for i in indices)


def of_sequences(sequences: Sequence[np.ndarray], labels: ArrayLike) -> Examples:
    """Examples of these sequences, one or more of one type, which are copied."""
    offsets = np.cumsum([0, *map(len, sequences)], dtype=np.int64)
    return Examples(np.concatenate(sequences), offsets, np.asarray(labels))


def pack_bytes(rows: Iterable[tuple[bytes, int]]) -> Examples:
    """Examples of (text, label), as bytes; the rows are read one at a time."""
    tokens, lengths, labels = bytearray(), [0], bytearray()
    for text, label in rows:
        tokens += text
        lengths.append(len(text))
        labels.append(label)
    offsets = np.cumsum(lengths, dtype=np.int64)
    return Examples(np.frombuffer(tokens, np.uint8), offsets, np.frombuffer(labels, np.uint8))


class ShardedExamples:
    """Examples of several shards under consecutive numbers. Labels and lengths are in memory; tokens are not copied."""

    def __init__(self, shards: Sequence[Examples]):
        self.shards = tuple(shards)
        self.labels = np.concatenate([shard.labels for shard in shards])
        self.lengths = np.concatenate([shard.lengths for shard in shards])
        self._first = np.cumsum([0, *(shard.count for shard in shards)])  # number of each shard's first example

    @property
    def count(self) -> int:
        return len(self.labels)

    def tokens_of(self, index: int) -> np.ndarray:
        shard = int(np.searchsorted(self._first, index, side="right")) - 1
        return self.shards[shard].tokens_of(index - self._first[shard])

    def part(self, start: int, stop: int) -> "ShardedExamples":
        stop = min(stop, self.count)
        starts = zip(self.shards, self._first[:-1].tolist(), strict=True)
        parts = [
            shard.part(max(start - first, 0), min(stop - first, shard.count))
            for shard, first in starts
            if first < stop and start < first + shard.count
        ]
        return ShardedExamples(parts or [self.shards[0].part(0, 0)])


AnyExamples = Examples | ShardedExamples


class Shards(NamedTuple):
    """A split that does not exist yet: each call makes one shard, in this process or in another.

    Makers are picklable and pure, so that any process makes the same shard at any time.
    """

    makers: Sequence[Callable[[], Examples]]
    count: int  # examples of all shards
    title: str  # of the progress


def join(parts: Iterable[Examples]) -> Examples:
    """All examples of the parts, in order; a copy. Without parts: no examples, with uint8 tokens."""
    parts = list(parts)
    if not parts:
        return Examples(np.zeros(0, np.uint8), np.zeros(1, np.int64), np.zeros(0, np.uint8))
    return Examples(
        np.concatenate([part.tokens for part in parts]),
        np.cumsum(np.concatenate([[0], *(part.lengths for part in parts)]), dtype=np.int64),
        np.concatenate([part.labels for part in parts]),
    )


def content_hash(examples: AnyExamples) -> str:
    """sha256, hexadecimal, of labels, lengths (64-bit) and tokens, all little-endian.

    The same on any machine and for any number of shards. Types other than uint8 are part of it, as is the k of (n, k)
    labels.
    """
    shards = examples.shards
    types, columns = (shards[0].tokens.dtype, shards[0].labels.dtype), shards[0].labels.shape[1:]
    digest = hashlib.sha256()
    if types != (np.uint8, np.uint8) or columns:
        digest.update(" ".join([*(kind.newbyteorder("<").str for kind in types), *map(str, columns)]).encode())
    for shard in shards:
        digest.update(_little_endian(shard.labels))
    for shard in shards:
        digest.update(shard.lengths.astype("<i8"))
    for shard in shards:
        digest.update(_little_endian(shard.tokens))
    return digest.hexdigest()


def digest(settings: Any) -> str:
    """sha256, hexadecimal, of settings as JSON."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def fingerprint(hashes: Iterable[str]) -> str:
    """sha256, hexadecimal, of the content hashes of all parts."""
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def _little_endian(values: np.ndarray) -> np.ndarray:
    values = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return values.view(np.uint8)  # hashlib takes no buffers of half floats
