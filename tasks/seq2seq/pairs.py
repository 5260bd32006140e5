"""Pairs of texts as token sequences: read piece by piece, kept in the cache, padded into batches.

An example of the cache is one sequence, the source's tokens and then the target's, whose label is the number of the
source's. The cache has no special tokens and cuts nothing, so that lengths may change without a new preparation.
A batch has

    source   the source's tokens, </s>             cut at `source_length`, where </s> may be lost
    inputs   <s>, the target's tokens              cut at `target_length`
    targets  the target's tokens, </s>             cut at `target_length`; IGNORED after it

as ParaGen's sequence-to-sequence task has them. Source and inputs are padded at their ends.

    B batch, M tokens of the longest source of a batch, N of its longest target, R of its longest reference
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch

from tasks.base import Batch, Split
from tasks.checks import DataError
from tasks.examples import AnyExamples, Examples, Shards
from tasks.lm.tokenizers import dtype
from tasks.seq2seq.vocabulary import BOS, EOS, PADDING, Vocabulary

IGNORED = -100  # in place of a target that is not scored
BATCH = 256  # pairs encoded at once


class Pair(NamedTuple):
    where: str  # file:line, for messages
    source: str
    target: str


class Piece(Protocol):
    """Pairs that are read together. Picklable."""

    count: int

    def pairs(self) -> Iterator[Pair]:
        """Raises DataError."""


Keeps = Callable[[int, int], bool]  # of the numbers of pieces of a source and of its target


def encoded(
    pieces: Sequence[Piece], vocabulary: Vocabulary, *, title: str, keeps: Keeps | None = None
) -> Examples | Shards:
    """A split: the examples of a single piece, or the unmade shards of several. Raises DataError without pairs."""
    makers = [Encoder(piece, vocabulary, keeps) for piece in pieces if piece.count]
    if not makers:
        raise DataError(f"{title}: no pairs")
    if len(makers) == 1:
        return makers[0]()
    return Shards(makers, sum(piece.count for piece in pieces), title)


@dataclass(frozen=True)
class Encoder:
    """Makes one shard, of the pairs that `keeps` keeps. Without it all are kept, of which a source may be empty.

    Raises DataError for a pair without a target then.
    """

    piece: Piece
    vocabulary: Vocabulary
    keeps: Keeps | None = None

    def __call__(self) -> Examples:
        tokens: list[np.ndarray] = []
        pairs = iter(self.piece.pairs())
        while some := list(itertools.islice(pairs, BATCH)):
            for pair in some:
                if self.keeps is None and not pair.target.strip():
                    raise DataError(f"{pair.where}: an empty target", "put its text there or drop the pair")
            ids = self.vocabulary.encode([text for pair in some for text in (pair.source, pair.target)])
            for source, target in zip(ids[::2], ids[1::2], strict=True):
                if self.keeps is None or self.keeps(len(source), len(target)):
                    tokens += [source, target]
        lengths = np.array(list(map(len, tokens)), np.int64).reshape(-1, 2)
        offsets = np.cumsum(np.concatenate([[0], lengths.sum(1)]), dtype=np.int64)
        kind = dtype(self.vocabulary.vocab_size)
        return Examples(np.concatenate([np.zeros(0, kind), *tokens]), offsets, lengths[:, 0].astype(np.int32))


class PairSplit(Split):
    """`batch(indices)` gives {"source" (B, M), "inputs" (B, N), "targets" (B, N)}, int64.

    With `references` also "reference" (B, R): the whole target, uncut, with </s>, padded.
    """

    def __init__(
        self,
        examples: AnyExamples,
        vocabulary: Vocabulary,
        *,
        source_length: int,
        target_length: int,
        references: bool = False,
    ):
        self.examples, self.vocabulary, self.references = examples, vocabulary, references
        self.source_length, self.target_length = source_length, target_length

    def __len__(self) -> int:
        return self.examples.count

    def lengths(self) -> np.ndarray:
        """(n,) int64: tokens of the source and of the target, </s> of each included."""
        sources = self.examples.labels.astype(np.int64)
        targets = self.examples.lengths - sources
        return np.minimum(sources + 1, self.source_length) + np.minimum(targets + 1, self.target_length)

    def pair(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Source and target of an example, int64, uncut and without special tokens."""
        tokens = self.examples.tokens_of(index).astype(np.int64)
        source, target = np.split(tokens, [int(self.examples.labels[index])])
        return source, target

    def batch(self, indices: Sequence[int]) -> Batch:
        index = self.checked(indices)
        pairs = [self.pair(i) for i in index.tolist()]
        whole = [np.append(target, EOS) for _, target in pairs]
        batch = {
            "source": padded(np.append(source, EOS)[: self.source_length] for source, _ in pairs),
            "inputs": padded(np.append(BOS, target)[: self.target_length] for _, target in pairs),
            "targets": padded((target[: self.target_length] for target in whole), IGNORED),
        }
        return batch | ({"reference": padded(whole)} if self.references else {})


def padded(rows: Iterable[np.ndarray], value: int = PADDING) -> torch.Tensor:
    """Sequences as int64 (B, length of the longest one), `value` after their ends."""
    rows = list(rows)
    array = np.full((len(rows), max(map(len, rows), default=0)), value, np.int64)
    for target, row in zip(array, rows, strict=True):
        target[: len(row)] = row
    return torch.from_numpy(array)
