"""The token ids of pre-training, and of every task that is fine-tuned from it: four special rows, pieces, `<mask>`.

    0 <s>   1 <pad>   2 </s>   3 <unk>   4 + i  piece i   ...   last  <mask>

- `gpt2`: GPT-2's 50,257 byte-level pairs in the 50,265 rows of RoBERTa (Liu et al., 2019, arXiv 1907.11692).
- `bpe`: `vocabulary` byte-level pairs trained on the training texts at `vocabulary_text`, or where that is `synthetic`
  on generated ones (tasks/mlm/topics.py).
- `bytes`: the UTF-8 bytes.

A fine-tuning task makes its tokens of the same settings as its pre-training. The pieces of a `bpe` follow from the
content of `vocabulary_text` alone, whichever task trains them first, and both read the same file of them.

`<mask>` is the last row: of `gpt2` one that RoBERTa adds, of the others that of the end token, which no text has.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tasks.checks import DataError, Progress
from tasks.data_task import SYNTHETIC
from tasks.file_digests import path_identity
from tasks.lm import tokenizer_names, tokenizers
from tasks.lm.documents import Piece
from tasks.lm.text_sources import text_splits
from tasks.mlm import topics
from tasks.seq2seq.vocabulary import BART_ROWS, SPECIAL_ROWS, Vocabulary

NAMES = ("gpt2", "bpe", "bytes")
ROBERTA_ROWS = BART_ROWS  # both have 50,265, `<mask>` the last one
GENERATED = 64  # documents to train the pieces on


class PretrainingTokens:
    """The vocabulary of pre-training and fine-tuning tasks, which have these settings."""

    tokenizer: str
    tokenizer_path: str | Path | None
    vocabulary: int | None
    vocabulary_text: str | Path | None
    data_root: Path

    def check_tokens(self) -> None:
        """Raises ValueError for settings that do not fit each other."""
        names = ("tokenizer_path", "vocabulary", "vocabulary_text")
        tokenizer_names.check(self.tokenizer, NAMES, **{name: getattr(self, name) for name in names})

    @cached_property
    def vocabulary_used(self) -> Vocabulary:
        """Its pieces are kept below `data_root`. Raises DataError for files of `tokenizer_path` that are none."""
        pieces = tokenizer_names.make(
            self.tokenizer,
            path=self.tokenizer_path,
            vocabulary=self.vocabulary,
            folder=self.data_root / "lm" / "tokenizers",
            follows_from=texts_identity(self.vocabulary_text) if self.tokenizer == "bpe" else {},
        )
        return Vocabulary(pieces, self.vocab_size)

    @property
    def vocab_size(self) -> int:
        """The number of ids, known before any file exists."""
        pieces = {"gpt2": ROBERTA_ROWS - SPECIAL_ROWS, "bpe": self.vocabulary, "bytes": tokenizers.BYTE_IDS + 1}
        return SPECIAL_ROWS + pieces[self.tokenizer]

    @property
    def mask_id(self) -> int:
        """The row of `<mask>`."""
        return self.vocab_size - 1

    def prepare_tokens(self, progress: Progress) -> None:
        """Fetch the pieces, or train them on the training texts at `vocabulary_text`. Raises DataError."""
        texts: Sequence[Piece] = []
        if self.vocabulary_text == SYNTHETIC:
            texts = topics.Documents.pieces(GENERATED, seed=0, split=0)
        elif self.vocabulary_text is not None:
            texts = text_splits(existing(self.vocabulary_text))["train"]
        self.vocabulary_used.pieces.prepare(
            lambda: (document.text for piece in texts for document in piece.documents()), progress
        )


def texts_identity(vocabulary_text: str | Path) -> dict[str, Any]:
    """The identity of the texts that the pieces of a `bpe` are trained on. Raises DataError."""
    if vocabulary_text == SYNTHETIC:
        return {"topics": topics.VERSION, "documents": GENERATED}
    return {"texts": path_identity(existing(vocabulary_text))}


def existing(path: str | Path) -> Path:
    """Raises DataError for a missing file or folder."""
    path = Path(path).expanduser()
    if not path.exists():
        raise DataError(f"{path}: not there", "set task.vocabulary_text to the text of the pre-training")
    return path
