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

from tasks import cells, data_sources
from tasks.base import Predictor
from tasks.cells import Row, position
from tasks.checks import DataError, Progress, say
from tasks.finetuning.cooccurrence import Cooccurrence
from tasks.finetuning.labelled_texts import LabelledText, LabelledTexts, different_pieces
from tasks.lm.text_sources import HubFiles
from tasks.lra.classifiers import Lookup, NaiveBayes, ngrams
from tasks.lra.fitted import at_most
from tasks.seq2seq.vocabulary import SPECIAL_ROWS

NAME, REVISION = "nyu-mll/glue", "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
NGRAM = 2  # tokens
LEVELS = 16  # of the share of tokens that two texts have in common
FIT_ON = 20_000  # examples: enough for a table of so few levels, and a minute for the other predictors


def files_of(folder: str) -> HubFiles:
    files = {"train": f"{folder}/train-*.parquet", "test": f"{folder}/validation-*.parquet"}
    return HubFiles(NAME, REVISION, files)


@dataclass(kw_only=True, eq=False, repr=False)
class GLUE(LabelledTexts):
    """One of GLUE's tasks, whose original files are train.tsv and dev.tsv."""

    classes = 2
    files: ClassVar[Mapping[str, Sequence[str]]] = {"train": ("train.tsv", "slice_train.tsv"), "test": ("dev.tsv",)}
    labels: ClassVar[Sequence[str]] = ("0", "1")  # in the archive's files
    has_short_rows: ClassVar[bool] = False  # in the archive's files
    file_columns: ClassVar[Sequence[str]] = ()  # of the archive's files, where they have other names than `hub_columns`

    def of_hub(self, where: str, *values: Any) -> LabelledText:
        return self._example(where, values, range(self.classes))

    def of_file(self, file: Path, progress: Progress) -> Iterator[LabelledText]:
        left_out = partial(say, progress) if self.has_short_rows else None
        for where, values in tsv_rows(file, self.file_columns or self.hub_columns, left_out=left_out):
            yield self._example(where, values, self.labels)

    def _example(self, where: str, values: Sequence[Any], labels: Sequence[Any]) -> LabelledText:
        *texts, label = values
        some = tuple(cells.text(text, name, where) for text, name in zip(texts, self.hub_columns, strict=False))
        return LabelledText(where, some, cells.label(label, labels, "label", where))

    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        """`token_2gram_naive_bayes`; for pairs also `shared_tokens`, how many tokens both texts have, and
        `cooccurrence_naive_bayes`, which token of one occurs with which of the other."""
        train = self.split("train")
        naive_bayes = partial(NaiveBayes, train, self.classes, self._ngrams, seen)
        cooccurrence = partial(Cooccurrence, train, self.vocab_size, self.is_choice, at_most(FIT_ON, seen))
        baselines = {**super().baselines(seen), f"token_{NGRAM}gram_naive_bayes": naive_bayes}
        shared_tokens = partial(Lookup.by_level, train, self.classes, LEVELS, shared, FIT_ON)
        of_pairs = {"shared_tokens": shared_tokens, "cooccurrence_naive_bayes": cooccurrence}
        return baselines if self.texts == 1 else {**baselines, **of_pairs}

    def _ngrams(self, tokens: np.ndarray) -> np.ndarray:
        """Numbers of single tokens and of n-grams up to NGRAM, without special tokens; -1 where there is none."""
        pieces_only = np.where(tokens >= SPECIAL_ROWS, tokens, 0)
        return np.concatenate([ngrams(pieces_only, n, self.vocab_size) for n in range(1, NGRAM + 1)], 1)


def tsv_rows(file: Path, columns: Sequence[str], *, left_out: Callable[[str], object] | None = None) -> Iterator[Row]:
    """Rows of a tab-separated file whose first line names its columns; quotes mean nothing. Raises DataError.

    `left_out`, of a published file whose rows of fewer columns its authors leave out: it is told their count.
    """
    header, chosen, short = [], [], 0
    for number, line in data_sources.records_of(file):
        where = f"{file}:{number}"
        values = data_sources.decoded(line, where).split("\t")
        if number == 1:
            header = [name.strip() for name in values]
            chosen = [position(name, header, where) for name in columns]
        elif left_out and len(values) < len(header):
            short += 1
        elif len(values) != len(header):
            raise DataError(f"{where}: {len(values)} columns instead of {len(header)}", "put the whole file there")
        else:
            yield Row(where, tuple(values[place] for place in chosen))
    if not header:
        raise DataError(f"{file}:1: no header", "put the whole file there")
    if short:
        problem = f"{file}: {short:,} rows with fewer than {len(header)} columns"
        left_out(f"{problem} are left out, as in GLUE's own reader")


def shared(tokens: np.ndarray) -> np.ndarray:
    """Pairs (B, N) -> (B,): the pieces that both texts have, as a share of the pieces in the shorter text."""
    both = [(len(np.intersect1d(*texts)), min(map(len, texts))) for texts in different_pieces(tokens)]
    return np.array([common / max(1, fewer) for common, fewer in both])


@dataclass(kw_only=True, eq=False, repr=False)
class SST2(GLUE):
    """The Stanford Sentiment Treebank with two classes (Socher et al., 2013)."""

    name = "glue/sst2"
    texts, hub, hub_columns = 1, files_of("sst2"), ("sentence", "label")
    published: ClassVar[Mapping[str, int]] = {"train": 67_349, "test": 872}


@dataclass(kw_only=True, eq=False, repr=False)
class QNLI(GLUE):
    """Questions of SQuAD (Rajpurkar et al., 2016) and sentences of their articles."""

    name = "glue/qnli"
    texts, hub, hub_columns = 2, files_of("qnli"), ("question", "sentence", "label")
    labels = ("entailment", "not_entailment")
    published: ClassVar[Mapping[str, int]] = {"train": 104_743, "test": 5_463}


@dataclass(kw_only=True, eq=False, repr=False)
class QQP(GLUE):
    """Pairs of questions on Quora."""

    name = "glue/qqp"
    has_short_rows = True
    texts, hub, hub_columns = 2, files_of("qqp"), ("question1", "question2", "label")
    file_columns = ("question1", "question2", "is_duplicate")
    published: ClassVar[Mapping[str, int]] = {"train": 363_846, "test": 40_430}
