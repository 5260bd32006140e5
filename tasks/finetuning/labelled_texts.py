"""The base of the fine-tuning tasks: texts with a class, or with several answers of which one is right.

A model reads, as RoBERTa does (Liu et al., 2019, arXiv 1907.11692),

    <s> a </s>                        one text
    <s> a </s></s> b </s>             two; with `separators` 1 a single </s> stands between them
    <s> a </s></s> b_o </s>           for each of O answers, if the task is to choose

A pair that is too long loses the end of its longer text until both are equally long. The ids are those of pre-training
(tasks/mlm/tokens.py).

Where the published data have no third part with labels, one twentieth of the training examples validates: those whose
texts have the smallest digests, the same for every source. The published recipes select on the development set
that they report (X55).

    B batch, O answers, N length
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from models.attention.base import Pattern
from tasks.base import SELF, Batch, DataInfo, Split
from tasks.cells import Row, position
from tasks.checks import DataError, Progress, at_least
from tasks.data_task import SLICE, SPLITS, SYNTHETIC, CachedSet, Source
from tasks.examples import AnyExamples, Examples, of_sequences
from tasks.file_digests import identities
from tasks.finetuning import sections
from tasks.lm.parquet import parquet_file, refusing_arrow
from tasks.lm.text_sources import HubFiles
from tasks.lra.one_label import OneLabel
from tasks.mlm import tokens as token_ids
from tasks.seq2seq.pairs import padded
from tasks.seq2seq.vocabulary import BOS, EOS, PADDING, SPECIAL_ROWS

HELD_OUT = 20  # training examples per validation example, where no published part validates
BATCH = 4096  # texts encoded at once
ROWS_AT_ONCE = 1024  # of a parquet file


class LabelledText(NamedTuple):
    where: str  # file:line, for messages
    texts: tuple[str, ...]  # one; or two; or what all answers share, and then the answers
    label: int
    group: int = 0  # of examples that are also scored separately


class TextSplit(Split):
    """`batch(indices)` gives {"tokens" (B, N), or (B, O, N) of a choice, "label" (B,)}, int64, padded with `<pad>`.

    An example is `texts` sequences one after another in `examples`.
    """

    def __init__(
        self,
        examples: AnyExamples,
        *,
        texts: int,
        max_length: int,
        separators: int,
        second_length: int | None,
    ):
        self.examples, self.texts, self.separators = examples, texts, separators
        self.max_length, self.second_length = max_length, second_length or max_length

    def __len__(self) -> int:
        return self.examples.count // self.texts

    @property
    def labels(self) -> np.ndarray:
        """(n,) uint8."""
        return self.examples.labels[:: self.texts, 0]

    def lengths(self) -> np.ndarray:
        """(n,) int64: tokens of all sequences of an example."""
        of_texts = self.examples.lengths.reshape(-1, self.texts)  # (n, texts)
        if self.texts == 1:
            return np.minimum(of_texts[:, 0] + 2, self.max_length)
        both = of_texts[:, :1] + np.minimum(of_texts[:, 1:], self.second_length)
        return np.minimum(both + 2 + self.separators, self.max_length).sum(1)

    def batch(self, indices: Sequence[int]) -> Batch:
        index = self.checked(indices)
        rows = [row for number in index.tolist() for row in self._sequences(number)]
        tokens = padded(rows)
        if self.texts > 2:
            tokens = tokens.unflatten(0, (len(index), self.texts - 1))
        return {"tokens": tokens, "label": torch.from_numpy(self.labels[index].astype(np.int64))}

    def _sequences(self, number: int) -> list[np.ndarray]:
        first, *others = (self.examples.tokens_of(number * self.texts + i) for i in range(self.texts))
        if not others:
            return [np.concatenate([[BOS], first[: self.max_length - 2], [EOS]])]
        between, sequences = [EOS] * self.separators, []
        for other in others:
            a, b = cut(first, other[: self.second_length], self.max_length - 2 - self.separators)
            sequences.append(np.concatenate([[BOS], a, between, b, [EOS]]))
        return sequences


def cut(a: np.ndarray, b: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """The beginnings of two texts, `room` tokens in all at most: the longer one is cut, then both."""
    of_second = min(len(b), max(room // 2, room - len(a)))
    return a[: room - of_second], b[:of_second]


@dataclass(kw_only=True, eq=False, repr=False)
class LabelledTexts(token_ids.PretrainingTokens, OneLabel):
    """Base of the fine-tuning tasks. Subclasses give the class variables, and an example of what the files have.

    `source`: `hf` (the hub's parquet files, or `path`: a folder with them), `slice` (`path`: a folder with the original
    files, .gz or not, or parts of them) or `synthetic` (generated topics: tasks/finetuning/sections.py).

    `max_length` counts special tokens; `second_length` cuts the second text first. `tokenizer`, `tokenizer_path`,
    `vocabulary` and `vocabulary_text`: tasks/mlm/tokens.py. `examples` is how many a `synthetic` source generates to
    train, an eighth of it to validate and to test. Raises ValueError.
    """

    metric = "acc"
    higher_is_better = True
    baseline_name = "majority_class"
    patterns = SELF

    classes: ClassVar[int]  # or answers
    texts: ClassVar[int]  # of an example
    published: ClassVar[Mapping[str, int]]  # examples of each split that has labels
    separators: ClassVar[int] = 2
    words: ClassVar[tuple[int, int]] = (24, 24)  # of a generated example's first text, and of each other
    hub: ClassVar[HubFiles]
    hub_columns: ClassVar[Sequence[str]]
    files: ClassVar[Mapping[str, Sequence[str]]]  # the names that the original file of each split may have

    source: str = "hf"
    pattern: Pattern | str = Pattern.NONCAUSAL_SELF
    max_length: int
    second_length: int | None = None
    tokenizer: str
    tokenizer_path: str | Path | None = None
    vocabulary: int | None = None
    vocabulary_text: str | Path | None = None
    examples: int = 8192

    def __post_init__(self) -> None:
        at_least(8, max_length=self.max_length)
        at_least(1, second_length=self.second_length, examples=self.examples)
        self.check_tokens()
        super().__post_init__()

    @property
    def is_choice(self) -> bool:
        """Whether the model chooses among answers, each of which it reads."""
        return self.texts > 2

    def of_hub(self, where: str, *values: Any) -> LabelledText:
        """The example of a row of the hub's files, of the values of `hub_columns`. Raises DataError."""
        raise NotImplementedError

    def of_file(self, file: Path, progress: Progress) -> Iterator[LabelledText]:
        """The examples of an original file. Raises DataError."""
        raise NotImplementedError

    def sources(self) -> dict[str, Source]:
        layout = "a folder with " + ", ".join(names[0] for names in self.files.values())
        hub = f"a folder with the parquet files of {self.hub.name}"
        return {
            "hf": Source(self._of_hub, partial(self.identity, revision=self.hub.revision), path=hub, complete=True),
            SLICE: Source(self._slice, lambda: identities(self._files()), path=layout, requires_path=True),
            SYNTHETIC: self.generated(),
        }

    def _of_hub(self, progress: Progress) -> dict[str, Iterator[LabelledText]]:
        def rows(files: Sequence[Path]) -> Iterator[LabelledText]:
            for file in files:
                for where, values in parquet_table(file, self.hub_columns):
                    yield self.of_hub(where, *values)

        return {split: rows(files) for split, files in self.hub.at(self.path).items()}

    def _files(self) -> dict[str, Path]:
        return {split: file_of(self.path, names) for split, names in self.files.items()}

    def _slice(self, progress: Progress) -> dict[str, Iterator[LabelledText]]:
        return {split: self.of_file(file, progress) for split, file in self._files().items()}

    def generated(self) -> Source:
        """The source `synthetic`."""
        settings = {"examples": self.examples, "words": self.words, "texts": self.texts, "seed": self.data_seed}

        def read(progress: Progress) -> dict[str, list[LabelledText]]:
            made = sections.examples(**settings)
            return {name: [LabelledText(*example) for example in some] for name, some in made.items()}

        identity = {"version": sections.VERSION, "files": None, **settings}
        return Source(read, lambda: identity, version=sections.VERSION)

    def cached_sets(self) -> list[CachedSet]:
        rows = {"vocabulary": self.vocabulary_used.pieces.identity, "special": SPECIAL_ROWS}
        return [CachedSet({**cached.parameters, **rows}, cached.make) for cached in super().cached_sets()]

    def read_source(self, progress: Progress) -> dict[str, Examples]:
        examples = {name: list(some) for name, some in self._source.read(progress).items()}
        where = self.path or f"source={self.source}"
        counts = [len(examples[name]) for name in self.published]
        self.check_is_complete(where, counts, list(self.published.values()), f"examples ({', '.join(self.published)})")
        if "val" not in examples:
            examples |= held_out(examples["train"])
        if empty := [name for name in SPLITS if not examples[name]]:
            raise DataError(f"{where}: too few examples, none for {empty[0]}")
        self.prepare_tokens(progress)
        return {name: self._encoded(examples[name], name, progress) for name in SPLITS}

    def _encoded(self, some: Sequence[LabelledText], split: str, progress: Progress) -> Examples:
        for example in some:
            if not any(text.strip() for text in example.texts):
                raise DataError(f"{example.where}: no word in it", "put the right file there")
        texts = [text for example in some for text in example.texts]
        ids: list[np.ndarray] = []
        for start in range(0, len(texts), BATCH):
            progress(f"{split} of {self.name}, tokens", start, len(texts))
            ids += self.vocabulary_used.encode(texts[start : start + BATCH])
        labels = np.array([(example.label, example.group) for example in some], np.uint8).repeat(self.texts, axis=0)
        return of_sequences(ids, labels)

    def load(self) -> DataInfo:
        cached = self.cached_sets()[0]
        self._found = self.open(cached)
        how = {"max_length": self.max_length, "second_length": self.second_length}
        how |= {"texts": self.texts, "separators": self.separators}
        self._splits = {name: TextSplit(self._found[name], **how) for name in SPLITS}
        sizes = {name: len(split) for name, split in self._splits.items()}
        sizes |= {final.name: len(final.split) for final in self.final_evaluations()}
        return DataInfo(self.origin(self._source.complete), self.fingerprint_of(cached), sizes)

    def backbone_kwargs(self) -> dict[str, object]:
        sizes = {"vocab_size": self.vocab_size, "max_length": self.max_length}
        classes = {} if self.is_choice else {"classes": self.classes}  # a choice gives one score to each answer
        return {**sizes, **classes, "pattern": self.pattern, "padding_id": PADDING}

    def tokens(self, batch: Batch) -> int:
        return int((batch["tokens"] != PADDING).sum())


def file_of(folder: Path, names: Sequence[str]) -> Path:
    """The first of these files that exists in a folder, gzipped or not. Raises DataError."""
    for name in names:
        for file in (folder / name, folder / f"{name}.gz"):
            if file.is_file():
                return file
    raise DataError(f"{folder}: no {' or '.join(names)} (.gz)", "put it there")


def parquet_table(file: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Rows of a parquet file, nested values included. Raises DataError."""
    with refusing_arrow(file), parquet_file(file) as opened:
        for name in columns:
            position(name, opened.schema_arrow.names, file)
        batches = opened.iter_batches(ROWS_AT_ONCE, columns=list(columns))
        for number, row in enumerate((row for batch in batches for row in batch.to_pylist()), 1):
            yield Row(f"{file}:{number}", tuple(row[name] for name in columns))


def different_pieces(tokens: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The distinct pieces before and after the first `</s>` of each row of (B, N)."""
    for row in tokens:
        end = int(np.argmax(row == EOS))
        before, behind = (np.unique(part[part >= SPECIAL_ROWS]) for part in (row[:end], row[end:]))
        yield before, behind


def held_out(train: Sequence[LabelledText]) -> dict[str, list[LabelledText]]:
    """`train` and `val` from training examples, both in the given order."""
    digests = [hashlib.blake2b("\0".join(example.texts).encode(), digest_size=16).digest() for example in train]
    chosen = set(sorted(range(len(train)), key=digests.__getitem__)[: -(-len(train) // HELD_OUT)])
    kept = [example for i, example in enumerate(train) if i not in chosen]
    return {"train": kept, "val": [train[i] for i in sorted(chosen)]}
