"""Pairs of texts as pieces of words: tokenised, cut into pieces, and, for training, without pairs that are too unlike.

A pair is kept if both sides have 1 to `longest` pieces and neither has more than `ratio` times as many as the other, as
in Moses' `clean-corpus-n` applied to pieces. Development and test sets are kept whole, and so are their texts, because
no score of texts should depend on information that the tokens lost.

    B batch, R bytes of the longest reference of a batch
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.base import Batch
from tasks.examples import AnyExamples
from tasks.mt import moses
from tasks.mt.pair_files import SOURCE, TARGET
from tasks.seq2seq import vocabulary
from tasks.seq2seq.pairs import Pair, PairSplit, Piece, padded
from tasks.seq2seq.vocabulary import Vocabulary


def is_kept(longest: int, ratio: float, source: int, target: int) -> bool:
    """The rule for the pairs that train and validate, by the numbers of their pieces."""
    fewer, more = sorted((source, target))
    return fewer >= 1 and more <= longest and more <= ratio * fewer


@dataclass(frozen=True)
class Tokens:
    """A piece whose texts are tokens with blanks in between. `moses` is false where they are tokens already."""

    piece: Piece
    moses: bool

    @property
    def count(self) -> int:
        return self.piece.count

    def pairs(self) -> Iterator[Pair]:
        """Raises DataError."""
        for where, source, target in self.piece.pairs():
            if self.moses:
                source, target = moses.tokenise(source, SOURCE), moses.tokenise(target, TARGET)
            yield Pair(where, source, target)

    def texts(self) -> list[str]:
        return [text for pair in self.pairs() for text in (pair.source, pair.target)]


BYTES = vocabulary.make("bytes", folder=Path(), follows_from={})  # of texts


class TextPairSplit(PairSplit):
    """A `PairSplit` whose batch has also "reference" (B, R): the bytes of the target's text, as rows of `BYTES`."""

    def __init__(self, examples: AnyExamples, texts: AnyExamples, vocabulary: Vocabulary, **lengths: int):
        super().__init__(examples, vocabulary, **lengths)
        self.texts = PairSplit(texts, BYTES, **lengths)

    def batch(self, indices: Sequence[int]) -> Batch:
        batch = super().batch(indices)
        return batch | {"reference": padded([self.texts.pair(int(i))[1] for i in indices])}

    def text(self, index: int) -> tuple[str, str]:
        """Source and target of an example in their original form."""
        return tuple(BYTES.decode(part.tolist()) for part in self.texts.pair(index))
