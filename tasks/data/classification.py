"""Classification of a user's own texts: one class per row of a file (tasks/data/rows.py, tasks/data/splits.py).

Classes are the different labels, as text, in sorted order. Test examples whose text also occurs in training are counted:
`without_copies` scores the others once more. Baselines: the most frequent class, naive Bayes and logistic regression on
n-grams, of bytes up to 5, of words and of a tokenizer's pieces up to 2.

    n examples, B batch, N length
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from tasks.base import DataInfo, FinalEvaluation, Predictor
from tasks.checks import DataError, Progress
from tasks.data.own_files import (
    EVERY,
    FILES,
    Entry,
    check_tokenizer,
    chosen_source,
    entries_by_split,
    text_of,
    tokenizer_of,
)  # fmt: skip
from tasks.data.rows import FORMATS, tables
from tasks.data.splits import Chosen, check_fractions, without_copies
from tasks.data_sources import path_identity
from tasks.data_task import SPLITS, SYNTHETIC, Source
from tasks.examples import AnyExamples, Examples
from tasks.lm.tokenizers import Tokenizer
from tasks.lra import synthetic_text
from tasks.lra.classification import SequenceClassification
from tasks.lra.classifiers import NaiveBayes, ngrams
from tasks.lra.fitted import Fitted, at_most, logistic, within
from tasks.lra.ngram_counts import ngram_counts

MOST_CLASSES = 1000
NGRAM = {"bytes": 5}  # by tokenizer
PIECES = 2
FIT_ON, TOKENS = 16_000, 4_000_000  # examples, and tokens of them, for a regression: a fit of less than a minute
GENERATED = {"distance": 16, "negated": 0.5, "words": synthetic_text.MOST_WORDS}


@dataclass(kw_only=True, eq=False, repr=False)
class Classification(SequenceClassification):
    """`text` and `label` name columns of the files at `path`. A label is a text or a whole number.

    `train`, `val`, `test`: at most so many examples of each split; None: all. `source=synthetic` generates them.
    """

    name = "data/classification"
    published = (0, 0)
    shift = 1

    source: str = FILES
    text: str = "text"
    label: str = "label"
    split_column: str | None = None
    fractions: Sequence[float] = (0.8, 0.1, 0.1)
    tokenizer: str = "bytes"
    tokenizer_path: str | Path | None = None
    vocabulary: int | None = None
    train: int | None = None
    val: int | None = None
    test: int | None = None

    def __post_init__(self) -> None:
        check_tokenizer(self.tokenizer, self.vocabulary, self.tokenizer_path)
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
            SYNTHETIC: self.generated(synthetic_text, max_length=self.max_length, **GENERATED),
        }

    @property
    def hint(self) -> str:
        columns = {"text": self.text, "label": self.label}
        return " ".join([super().hint, *(f"task.{key}={name}" for key, name in columns.items() if name != key)])

    @cached_property
    def tokens_from(self) -> Tokenizer:
        folder, texts = self.data_root / "lm" / "tokenizers", self._text_identity() if self.path else {}
        return tokenizer_of(self.tokenizer, self.vocabulary, self.tokenizer_path, folder, texts)

    @property
    def symbols(self) -> int:
        return self.tokens_from.vocab_size + self.shift

    @property
    def class_names(self) -> tuple[str, ...]:
        """The labels, in the order of their numbers. Raises DataError."""
        if self.source == SYNTHETIC:
            return ("0", "1")
        self.check_source()
        return labels_in(self.path, self.label, path_identity(self.path))

    @property
    def classes(self) -> int:
        return len(self.class_names)

    def backbone_kwargs(self) -> dict[str, object]:
        return super().backbone_kwargs()  # its errors name the command

    def _text_identity(self) -> dict[str, Any]:
        columns = {"text": self.text, "label": self.label, "split": self.split_column}
        return {**self.identity(), **columns, "fractions": list(self.fractions), "seed": self.data_seed}

    def _files_identity(self) -> dict[str, Any]:
        return {**self._text_identity(), "tokenizer": self.tokens_from.identity}

    def _read(self, progress: Progress) -> dict[str, Examples]:
        number = {name: number for number, name in enumerate(self.class_names)}

        def entry(cells: tuple[Any, ...], where: str) -> tuple[bytes, int]:
            return text_of(cells[0], self.text, where).encode(), number[label_of(cells[1], self.label, where)]

        how = {"split_column": self.split_column, "fractions": self.fractions, "seed": self.data_seed}
        entries = entries_by_split(self.path, (self.text, self.label), entry, **how, progress=progress)
        if self.tokenizer == "words":
            self.tokens_from.prepare(lambda: (some.content.decode() for some in entries["train"]), progress)
        return {name: packed(some, self.tokens_from) for name, some in entries.items()}

    def load(self) -> DataInfo:
        info = super().load()
        contents = {name: list(contents_of(self._used[name])) for name in ("train", "test")}
        unseen = without_copies(contents["train"], contents["test"])
        self._unseen = unseen if len(unseen) < len(contents["test"]) else None
        if not len(unseen):
            raise DataError(f"{self.path}: all {len(contents['test'])} test texts are copies of training texts")
        sizes = {evaluation.name: len(evaluation.split) for evaluation in self.final_evaluations()}
        return DataInfo(info.source, info.fingerprint, info.sizes | sizes)

    def final_evaluations(self) -> Sequence[FinalEvaluation]:
        if self._unseen is None:
            return ()
        return [FinalEvaluation("without_copies", Chosen(self.split("test"), self._unseen))]

    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        most = NGRAM.get(self.tokenizer, PIECES)
        unit = "byte" if self.tokenizer == "bytes" else "token"

        def naive_bayes() -> NaiveBayes:
            return NaiveBayes(self.split("train"), self.classes, partial(ngrams, n=most, symbols=self.vocab_size), seen)

        def regression() -> Fitted:
            features = partial(ngram_counts, most=most, symbols=self.vocab_size)
            count = within(self.split("train"), TOKENS, at_most(FIT_ON, seen))
            return Fitted(self.split("train"), self.classes, features, logistic(), count)

        fits = {"naive_bayes": naive_bayes, "logistic_regression": regression}
        return {**super().baselines(seen), **{f"{unit}_{most}gram_{name}": make for name, make in fits.items()}}


def label_of(value: Any, column: str, where: str) -> str:
    """Raises DataError unless a label is a text that is not empty, a whole number or a truth value."""
    if not isinstance(value, (str, int)) or not (name := str(value).strip()):
        shown = "empty" if value in (None, "") else f"{str(value)[:20]!r}, no class"
        raise DataError(f"{where}: column '{column}' is {shown}", "put a class there, or use task=data/regression")
    return name


@lru_cache(maxsize=16)
def labels_in(path: Path, column: str, identity: str) -> tuple[str, ...]:
    """The different labels of all rows, sorted; read once per content of the files. Raises DataError."""
    names: set[str] = set()
    for where, (value,) in rows_of(path, column):
        names.add(label_of(value, column, where))
        if len(names) > MOST_CLASSES:
            raise DataError(f"{where}: column '{column}' has more than {MOST_CLASSES} different values: no classes")
    if len(names) < 2:
        raise DataError(f"{path}: column '{column}' has one value alone, {next(iter(names))[:20]!r}")
    return tuple(sorted(names, key=lambda name: (len(name), name) if name.isdigit() else (0, name)))


def rows_of(path: Path, *columns: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for some in tables(path).values():
        for table in some:
            yield from table.rows(columns)


def packed(entries: Sequence[Entry], tokenizer: Tokenizer) -> Examples:
    ids = tokenizer.encode([entry.content.decode() for entry in entries])
    offsets = np.cumsum([0, *map(len, ids)], dtype=np.int64)
    return Examples(np.concatenate(ids), offsets, np.array([entry.value for entry in entries], np.int32))


def contents_of(examples: AnyExamples) -> Iterator[bytes]:
    for number in range(examples.count):
        yield examples.tokens_of(number).tobytes()
