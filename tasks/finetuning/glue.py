"""GLUE's SST-2, QNLI and QQP (Wang et al., 2019, arXiv 1804.07461): accuracy on the development sets.

    SST-2   is a sentence of a film review positive?                 67,349 / 872
    QNLI    does a sentence answer a question?                      104,743 / 5,463
    QQP     do two questions ask the same?                          363,846 / 40,430

The test sets have no labels: the development set tests, and a part of the training set validates, whereas Luna selects
on the development set that it reports (X55).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tasks.base import Predictor
from tasks.checks import DataError, Progress, say
from tasks.data_task import SLICE, SYNTHETIC, Source
from tasks.file_digests import identities
from tasks.finetuning import tables
from tasks.finetuning.cooccurrence import Cooccurrence
from tasks.finetuning.labelled_texts import LabelledText, LabelledTexts, different_pieces
from tasks.lm.text_sources import HubFiles
from tasks.lra.classifiers import Lookup, NaiveBayes, ngrams, pieces
from tasks.lra.fitted import at_most
from tasks.seq2seq.vocabulary import SPECIAL_ROWS

NAME, REVISION = "nyu-mll/glue", "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
HUB_NAMES = {"train": "train", "test": "validation"}
FILES = {"train": ("train.tsv", "slice_train.tsv"), "test": ("dev.tsv",)}
LAYOUT = "a folder with train.tsv and dev.tsv as GLUE has them, .gz or not, or slice_train.tsv in place of train.tsv"
NGRAM = 2  # tokens
LEVELS = 16  # of the share of tokens that two texts have in common
FIT_ON = 20_000  # examples: enough for a table of so few levels, and a minute for the other predictors


@dataclass(kw_only=True, eq=False, repr=False)
class GLUE(LabelledTexts):
    """One of GLUE's tasks.

    `source`: `hf` (the hub's parquet files, or `path`: a folder with them), `slice` (`path`: a folder with the files of
    the archive, or parts of them) or `synthetic` (`path`: texts that pairs are made of, null: generated topics;
    tasks/finetuning/sections.py). Raises ValueError.
    """

    classes = 2
    hub_folder: ClassVar[str]
    columns: ClassVar[Sequence[str]]  # of the texts, then of the label
    labels: ClassVar[Sequence[str]] = ("0", "1")  # in the archive's files
    has_short_rows: ClassVar[bool] = False  # in the archive's files
    of_slice: ClassVar[Sequence[str]] = ()  # columns of the archive's files, where they have other names

    def sources(self) -> dict[str, Source]:
        hub = HubFiles(
            NAME, REVISION, {name: f"{self.hub_folder}/{file}-*.parquet" for name, file in HUB_NAMES.items()}
        )

        def from_hub(progress: Progress) -> dict[str, Iterator[LabelledText]]:
            files = hub.at(self.path)
            return {split: self._of_hub(split, some) for split, some in files.items()}

        identity = partial(self.identity, revision=REVISION)
        return {
            "hf": Source(from_hub, identity, path=f"a folder with the parquet files of {NAME}", complete=True),
            SLICE: Source(self._slice, lambda: identities(self._files()), path=LAYOUT, requires_path=True),
            SYNTHETIC: self.generated(),
        }

    def _of_hub(self, split: str, files: Sequence[Path]) -> Iterator[LabelledText]:
        for file in files:
            for where, row in tables.parquet_table(file, self.columns):
                label = row[self.columns[-1]]
                is_label = isinstance(label, int) and not isinstance(label, bool) and 0 <= label < self.classes
                yield self._example(where, row, self.columns, label if is_label else None, label)

    def _files(self) -> dict[str, Path]:
        return {split: tables.file_of(self.path, names) for split, names in FILES.items()}

    def _slice(self, progress: Progress) -> dict[str, Iterator[LabelledText]]:
        return {split: self._of_file(file, progress) for split, file in self._files().items()}

    def _of_file(self, file: Path, progress: Progress) -> Iterator[LabelledText]:
        columns = self.of_slice or self.columns
        left_out = partial(say, progress) if self.has_short_rows else None
        for where, row in tables.tsv_rows(file, columns, left_out=left_out):
            label = row[columns[-1]]
            yield self._example(where, row, columns, self.labels.index(label) if label in self.labels else None, label)

    def _example(
        self, where: str, row: Mapping[str, Any], columns: Sequence[str], label: int | None, given: Any
    ) -> LabelledText:
        if label is None:
            raise DataError(f"{where}: label {str(given)[:20]!r} is none of {', '.join(self.labels)}")
        some = tuple(tables.text(row[name], name, where) for name in columns[:-1])
        return LabelledText(where, some, label)

    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        """`token_2gram_naive_bayes`; for pairs also `shared_tokens`, how many tokens both texts have, and
        `cooccurrence_naive_bayes`, which token of one occurs with which of the other."""

        def naive_bayes() -> NaiveBayes:
            return NaiveBayes(self.split("train"), self.classes, self._ngrams, seen)

        def cooccurrence() -> Cooccurrence:
            return Cooccurrence(self.split("train"), self.vocab_size, self.is_choice, at_most(FIT_ON, seen))

        baselines = {**super().baselines(seen), f"token_{NGRAM}gram_naive_bayes": naive_bayes}
        of_pairs = {"shared_tokens": self._shared_tokens, "cooccurrence_naive_bayes": cooccurrence}
        return baselines if self.texts == 1 else {**baselines, **of_pairs}

    def _ngrams(self, tokens: np.ndarray) -> np.ndarray:
        """Numbers of single tokens and of n-grams up to NGRAM, without special tokens; -1 where there is none."""
        pieces_only = np.where(tokens >= SPECIAL_ROWS, tokens, 0)
        return np.concatenate([ngrams(pieces_only, n, self.vocab_size) for n in range(1, NGRAM + 1)], 1)

    def _shared_tokens(self) -> Lookup:
        parts = [(shared(tokens), label) for tokens, label in pieces(self.split("train"), FIT_ON)]
        share, label = (np.concatenate(column) for column in zip(*parts, strict=True))
        edges = np.quantile(share, np.arange(1, LEVELS) / LEVELS)  # levels with equally many pairs
        counts = np.zeros((LEVELS, self.classes))
        np.add.at(counts, (np.searchsorted(edges, share), label), 1)
        return Lookup(counts, lambda tokens: np.searchsorted(edges, shared(tokens)))


def shared(tokens: np.ndarray) -> np.ndarray:
    """Pairs (B, N) -> (B,): the pieces that both texts have, as a share of the pieces in the shorter text."""
    both = [(len(np.intersect1d(*texts)), min(map(len, texts))) for texts in different_pieces(tokens)]
    return np.array([common / max(1, fewer) for common, fewer in both])


@dataclass(kw_only=True, eq=False, repr=False)
class SST2(GLUE):
    """The Stanford Sentiment Treebank with two classes (Socher et al., 2013)."""

    name = "glue/sst2"
    texts, hub_folder, columns = 1, "sst2", ("sentence", "label")
    published: ClassVar[Mapping[str, int]] = {"train": 67_349, "test": 872}


@dataclass(kw_only=True, eq=False, repr=False)
class QNLI(GLUE):
    """Questions of SQuAD (Rajpurkar et al., 2016) and sentences of their articles."""

    name = "glue/qnli"
    texts, hub_folder, columns = 2, "qnli", ("question", "sentence", "label")
    labels = ("entailment", "not_entailment")
    published: ClassVar[Mapping[str, int]] = {"train": 104_743, "test": 5_463}


@dataclass(kw_only=True, eq=False, repr=False)
class QQP(GLUE):
    """Pairs of questions on Quora."""

    name = "glue/qqp"
    has_short_rows = True
    texts, hub_folder, columns = 2, "qqp", ("question1", "question2", "label")
    of_slice = ("question1", "question2", "is_duplicate")
    published: ClassVar[Mapping[str, int]] = {"train": 363_846, "test": 40_430}
