"""The base of the tasks on a user's own rows: sequences of tokens with a label or a target (tasks/data/rows.py).

Test rows that also occur in training are counted where the rows are divided, on what was read: where there are any,
`without_copies` scores the others once more, and the sizes of the record's data say how many these are.

    n examples
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from tasks.base import DataInfo, FinalEvaluation
from tasks.checks import DataError, Progress
from tasks.data.own_files import (
    EVERY,
    FILES,
    TOKENIZERS,
    Entry,
    check_columns,
    chosen_source,
    entries_by_split,
    text_of,
)
from tasks.data.rows import FORMATS, READS
from tasks.data.splits import Chosen, check_fractions, copied
from tasks.data_task import SPLITS, SYNTHETIC, Source
from tasks.examples import AnyExamples, Examples, of_sequences
from tasks.lm import tokenizer_names
from tasks.lm.tokenizers import Tokenizer
from tasks.lra.classification import SequenceClassification
from tasks.seq2seq.pairs import padded

COPIES = "copies"  # in the cache: the numbers of the test rows that are copies


@dataclass(kw_only=True, eq=False, repr=False)
class OwnSequences(SequenceClassification):
    """Subclasses name the columns of a row, and read a row.

    `train`, `val`, `test`: at most so many examples of each split; None: all. `source=synthetic` generates them.
    """

    published = (0, 0)
    shift = 1
    version = 2

    generator: ClassVar[ModuleType]  # of `source=synthetic`
    reads = READS
    repeated = ("split_column", "tokenizer", "tokenizer_path", "vocabulary")
    settings: ClassVar[Mapping[str, Any]] = {}  # of the generator
    tokenizers: ClassVar[Sequence[str]] = ()  # further ones, which a subclass reads

    source: str = FILES
    split_column: str | None = None
    fractions: Sequence[float] = (0.8, 0.1, 0.1)
    tokenizer: str = "bytes"
    tokenizer_path: str | Path | None = None
    vocabulary: int | None = None
    train: int | None = None
    val: int | None = None
    test: int | None = None

    def __post_init__(self) -> None:
        settings = {"tokenizer_path": self.tokenizer_path, "vocabulary": self.vocabulary}
        tokenizer_names.check(self.tokenizer, (*TOKENIZERS, *self.tokenizers), **settings)
        check_fractions(self.fractions)
        self.source = chosen_source(self.source, self.path, SYNTHETIC)
        if self.source == SYNTHETIC and None in (self.train, self.val, self.test):
            raise ValueError("source=synthetic takes task.train, task.val and task.test")
        for name in SPLITS:
            setattr(self, name, EVERY if getattr(self, name) is None else getattr(self, name))
        super().__post_init__()

    def sources(self) -> dict[str, Source]:
        return {
            FILES: Source(self._read, self._files_identity, path=FORMATS, requires_path=True),
            SYNTHETIC: self.generated(self.generator, max_length=self.max_length, **self.settings),
        }

    def columns(self) -> dict[str, Sequence[str]]:
        """{setting: the columns that it names}"""
        raise NotImplementedError

    def entry(self, cells: tuple[Any, ...], where: str) -> tuple[bytes, Any]:
        """What a model reads of a row, and its label. `cells`: of all columns. Raises DataError."""
        raise NotImplementedError

    def packed(self, entries: Mapping[str, Sequence[Entry]], progress: Progress) -> dict[str, Examples]:
        """The examples of each split. Raises DataError."""
        if self.tokenizer == "words":
            self.tokens_from.prepare(lambda: (entry.content.decode() for entry in entries["train"]), progress)
        return {name: tokenized(some, self.tokens_from) for name, some in entries.items()}

    @property
    def names_of_columns(self) -> tuple[str, ...]:
        return tuple(name for names in self.columns().values() for name in names)

    @property
    def hint(self) -> str:
        typed = {key: names[0] if len(names) == 1 else f"[{','.join(names)}]" for key, names in self.columns().items()}
        return " ".join([super().hint, *(f"task.{key}={name}" for key, name in typed.items() if name != key)])

    @cached_property
    def tokens_from(self) -> Tokenizer:
        return tokenizer_names.make(
            self.tokenizer,
            path=self.tokenizer_path,
            vocabulary=self.vocabulary,
            folder=self.data_root / "lm" / "tokenizers",
            follows_from=self._text_identity() if self.path else {},
        )

    @property
    def symbols(self) -> int:
        return self.tokens_from.vocab_size + self.shift

    def check_source(self) -> None:
        super().check_source()
        if self.source == FILES:
            check_columns(self.path, [*self.names_of_columns, *([self.split_column] if self.split_column else [])])

    def _text_identity(self) -> dict[str, Any]:
        columns = {name: list(columns) for name, columns in self.columns().items()} | {"split": self.split_column}
        return {**self.identity(), **columns, "fractions": list(self.fractions), "seed": self.data_seed}

    def _files_identity(self) -> dict[str, Any]:
        tokens = self.tokenizer if self.tokenizer in self.tokenizers else self.tokens_from.identity
        return {**self._text_identity(), "tokenizer": tokens}

    def _read(self, progress: Progress) -> dict[str, Examples]:
        how = {"split_column": self.split_column, "fractions": self.fractions, "seed": self.data_seed}
        entries = entries_by_split(self.path, self.names_of_columns, self.entry, **how, progress=progress)
        train, test = ((entry.content for entry in entries[name]) for name in ("train", "test"))
        copies = copied(train, test)
        if len(copies) == len(entries["test"]):
            raise DataError(f"{self.path}: all {len(copies)} test examples are copies of training examples")
        numbers = Examples(copies, np.array([0, len(copies)], np.int64), np.zeros(1, np.uint8))
        return {**self.packed(entries, progress), COPIES: numbers}

    def select_splits(self, splits: dict[str, AnyExamples]) -> dict[str, AnyExamples]:
        self._copies = splits[COPIES].tokens if COPIES in splits else np.empty(0, np.int64)
        return {name: splits[name] for name in SPLITS}

    def encode(self, inputs: Sequence[Any]) -> Tensor:
        if self.tokenizer in self.tokenizers:
            raise DataError(f"tokenizer={self.tokenizer}: the levels of numbers belong to the rows of a file")
        texts = [text_of(text, f"input {number}", self.name) for number, text in enumerate(inputs)]
        ids = (row[: self.max_length].astype(np.int64) + self.shift for row in self.tokens_from.encode(texts))
        return padded(ids, self.padding_id)

    def load(self) -> DataInfo:
        info = super().load()
        unseen = np.setdiff1d(np.arange(self._used["test"].count), self._copies)
        if not len(unseen):
            problem = f"task.test={self.test}: these test examples are copies of training examples"
            raise DataError(f"{self.path}: {problem}", "use more")
        self._unseen = unseen if len(unseen) < self._used["test"].count else None
        sizes = {evaluation.name: len(evaluation.split) for evaluation in self.final_evaluations()}
        return DataInfo(info.source, info.fingerprint, info.sizes | sizes)

    def final_evaluations(self) -> Sequence[FinalEvaluation]:
        if self._unseen is None:
            return ()
        return [FinalEvaluation("without_copies", Chosen(self.split("test"), self._unseen))]


def tokenized(entries: Sequence[Entry], tokenizer: Tokenizer) -> Examples:
    ids = tokenizer.encode([entry.content.decode() for entry in entries])
    return of_sequences(ids, [entry.value for entry in entries])
