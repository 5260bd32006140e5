"""Pairs of texts as pieces of words: tokenised, cut into pieces, and, for training, without pairs that are too unlike.

A pair is kept if both sides have 1 to `longest` pieces and neither has more than `ratio` times as many as the other, as
in Moses' `clean-corpus-n` applied to pieces. Development and test sets are kept whole, and so are their texts, because
no score of texts should depend on information that the tokens lost.

    B batch, R bytes of the longest reference of a batch
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tasks.base import Batch
from tasks.checks import DataError
from tasks.examples import AnyExamples, Examples
from tasks.lm.tokenizers import dtype
from tasks.mt import moses
from tasks.mt.pair_files import SOURCE, TARGET
from tasks.seq2seq import vocabulary
from tasks.seq2seq.pairs import BATCH, Pair, PairSplit, Piece, padded
from tasks.seq2seq.vocabulary import Vocabulary


@dataclass(frozen=True)
class Cleaning:
    """The rule for the pairs that train and validate. Raises ValueError."""

    longest: int
    ratio: float

    def __post_init__(self) -> None:
        if self.longest < 1 or self.ratio < 1:
            raise ValueError(f"clean_length={self.longest} and clean_ratio={self.ratio} are not at least 1")

    def keeps(self, source: int, target: int) -> bool:
        """Whether a pair with these numbers of pieces is kept."""
        fewer, more = sorted((source, target))
        return fewer >= 1 and more <= self.longest and more <= self.ratio * fewer


@dataclass(frozen=True)
class Tokens:
    """Pairs of a piece as tokens with a blank in between. `moses` is false where the texts are tokens already."""

    piece: Piece
    moses: bool

    def pairs(self) -> Iterator[Pair]:
        """Raises DataError."""
        for where, source, target in self.piece.pairs():
            if self.moses:
                source, target = moses.tokenise(source, SOURCE), moses.tokenise(target, TARGET)
            yield Pair(where, source, target)

    def texts(self) -> list[str]:
        return [text for pair in self.pairs() for text in (pair.source, pair.target)]


@dataclass(frozen=True)
class PieceEncoder:
    """Makes one shard of pairs. Raises DataError for a pair without a target, if there is no `cleaning`."""

    tokens: Tokens
    vocabulary: Vocabulary
    cleaning: Cleaning | None

    def __call__(self) -> Examples:
        kept: list[np.ndarray] = []
        pairs = iter(self.tokens.pairs())
        while some := list(itertools.islice(pairs, BATCH)):
            ids = self.vocabulary.encode([text for pair in some for text in (pair.source, pair.target)])
            for pair, source, target in zip(some, ids[::2], ids[1::2], strict=True):
                if self.cleaning is None and not len(target):
                    raise DataError(f"{pair.where}: an empty target", "put its text there or drop the pair")
                if self.cleaning is None or self.cleaning.keeps(len(source), len(target)):
                    kept += [source, target]
        return joined(kept, dtype(self.vocabulary.vocab_size))


@dataclass(frozen=True)
class TextEncoder:
    """Makes the texts of one shard, as bytes."""

    piece: Piece

    def __call__(self) -> Examples:
        pairs = [text for pair in self.piece.pairs() for text in (pair.source, pair.target)]
        return joined(BYTES.encode(pairs), np.uint16)


BYTES = vocabulary.make("bytes", folder=Path(), follows_from={})  # of texts


def joined(rows: Sequence[np.ndarray], kind: type[np.integer]) -> Examples:
    """Examples of sources and targets in turn; a label is the length of the source."""
    lengths = np.array([len(row) for row in rows], np.int64).reshape(-1, 2)
    offsets = np.cumsum(np.concatenate([[0], lengths.sum(1)]), dtype=np.int64)
    tokens = np.concatenate(rows).astype(kind) if rows else np.zeros(0, kind)
    return Examples(tokens, offsets, lengths[:, 0].astype(np.int32))


class TextPairSplit(PairSplit):
    """A `PairSplit` whose batch has also "reference" (B, R): the bytes of the target's text, as rows of `BYTES`."""

    def __init__(self, examples: AnyExamples, texts: AnyExamples, vocabulary: Vocabulary, **lengths: int):
        super().__init__(examples, vocabulary, **lengths)
        if texts.count != examples.count:
            raise DataError(f"{texts.count:,} texts of {examples.count:,} pairs")
        self.texts = PairSplit(texts, BYTES, **lengths)

    def batch(self, indices: Sequence[int]) -> Batch:
        batch = super().batch(indices)
        return batch | {"reference": padded([self.texts.pair(int(i))[1] for i in indices], BYTES)}

    def text(self, index: int) -> tuple[str, str]:
        """Source and target of an example in their original form."""
        return tuple(BYTES.decode(part.tolist()) for part in self.texts.pair(index))
