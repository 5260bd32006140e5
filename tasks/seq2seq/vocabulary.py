"""The vocabulary of an encoder-decoder: four special rows, then the pieces of a tokenizer (tasks/lm/tokenizers.py).

    0 <s>   1 <pad>   2 </s>   3 <unk>   4 + i  piece i

The order is BART's (Lewis et al., 2020, arXiv 1910.13461), as fairseq's dictionaries begin. `bart` has 50,265 rows:
these four, GPT-2's 50,257 pieces, and four that never occur (three that fill up, `<mask>`). The published BART has the
same pieces, its rows in the order of their frequency; another order of rows changes nothing but their names.
`subwords` has pieces of words, of which `<unk>` is row 3 (tasks/seq2seq/subwords.py).
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasks.checks import one_of
from tasks.lm import tokenizer_names
from tasks.lm.tokenizers import Tokenizer, dtype
from tasks.seq2seq import subwords

NAMES = ("bart", "bpe", "bytes", "subwords")
BOS, PADDING, EOS, UNKNOWN = range(4)
SPECIAL_ROWS = 4
BART_ROWS = 50_265


@dataclass(frozen=True)
class Vocabulary:
    """Ids from 0 to `vocab_size` - 1. Picklable."""

    pieces: Tokenizer
    vocab_size: int
    first: int = SPECIAL_ROWS  # row of piece 0

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, no special ones. Raises DataError for files that are not there."""
        return [(ids + self.first).astype(dtype(self.vocab_size)) for ids in self.pieces.encode(texts)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text before the first `</s>`, without rows that are no piece. Invalid UTF-8 becomes U+FFFD.

        With `subwords` it is words, separated by blanks.
        """
        before = itertools.takewhile(lambda row: row != EOS, ids)
        stop = self.first + self.pieces.vocab_size
        return self.pieces.text([row - self.first for row in before if self.first <= row < stop])


def make(
    name: str,
    *,
    path: Path | None = None,
    vocabulary: int | None = None,
    folder: Path,
    follows_from: Mapping[str, Any],
) -> Vocabulary:
    """A vocabulary by name. `path` is a folder with GPT-2's files, for `bart`; without it they are kept in `folder`.

    A `bpe` has `vocabulary` pieces trained on what `follows_from` says, and so have `subwords` without a `path`, which
    is a file of codes. Raises ValueError for settings that do not fit,
    DataError for files in `path` that are not a vocabulary.
    """
    one_of(NAMES, tokenizer=name)
    if name == "subwords":
        subword_pieces = subwords.make(path, vocabulary, folder, follows_from)
        return Vocabulary(subword_pieces, UNKNOWN + subword_pieces.vocab_size, UNKNOWN)
    where = {"path": path, "vocabulary": vocabulary, "folder": folder, "follows_from": follows_from}
    pieces = tokenizer_names.make("gpt2" if name == "bart" else name, **where)
    return Vocabulary(pieces, BART_ROWS if name == "bart" else SPECIAL_ROWS + pieces.vocab_size)
