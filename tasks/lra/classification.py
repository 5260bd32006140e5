"""The base of LRA's tasks on published data: cached examples, padded batches, accuracy, the chance level.

A task defines the sources of its examples (`sources`), their tokens, and the paper's counts; the rest is here.
Our readings:

- Accuracy is 100 x correct / all examples. `drop_remainder` is the batch size whose last incomplete batch is left out,
  as the published code did (at most 255 of 10,000 images).
- Where the data have no validation split, a tenth of the training examples is held out. Which one is a function of
  their content and `data_seed` alone, so it is the same for every source of the data. The published code
  uses the test split instead (X11), or takes a tenth without a seed.

    n examples, B batch, N length
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F

from models.attention.base import Pattern
from tasks import data_sources
from tasks.base import SELF, Batch, DataInfo, Split
from tasks.checks import DataError, Progress, at_least
from tasks.data_task import SLICE, SPLITS, Source
from tasks.examples import AnyExamples, Examples, Shards, content_hash, fingerprint
from tasks.lra.classifiers import Features
from tasks.lra.fitted import Fitted
from tasks.lra.one_label import OneLabel

PUBLISHED_SPLITS = ("train", "test")  # of sets without validation
COMMON_LENGTHS = 8


# (rows of a split, where they stand, progress) -> what a source gives
ReadRows = Callable[[Sequence[Mapping[str, Any]], str, Progress], Any]


class SequenceSplit(Split):
    """One split. `batch(indices)` gives {"tokens": (B, longest) int64, padded with 0, "label": (B,) int64}.

    Cached ids are cut to `max_length`, an `eos` (if not None) included, and become token ids by adding `shift`. With
    `per_example` > 1 an example is so many sequences, one after another in `examples`, and tokens are
    (B, per_example, longest).
    """

    def __init__(
        self,
        examples: AnyExamples,
        max_length: int,
        *,
        shift: int = 0,
        eos: int | None = None,
        per_example: int = 1,
    ):
        self.examples, self.max_length, self.shift, self.eos = examples, max_length, shift, eos
        self.per_example = per_example
        self._lengths = np.minimum(examples.lengths, max_length - (eos is not None))  # of the sequences, without eos

    def __len__(self) -> int:
        return self.examples.count // self.per_example

    @property
    def labels(self) -> np.ndarray:
        """(n,) uint8."""
        return self.examples.labels[:: self.per_example]

    def lengths(self) -> np.ndarray:
        """(n,) int64: tokens of each example, of all its sequences and end symbols."""
        return (self._lengths + (self.eos is not None)).reshape(-1, self.per_example).sum(1)

    def batch(self, indices: Sequence[int]) -> Batch:
        index = self.checked(indices)
        row = (index[:, None] * self.per_example + np.arange(self.per_example)).ravel()
        end = self.eos is not None
        length = self._lengths[row]
        tokens = np.zeros((len(row), length.max(initial=0) + end), np.int64)
        # one copy per row is several times faster than one gather of all positions
        for target, number, count in zip(tokens, row.tolist(), length.tolist(), strict=True):
            target[:count] = self.examples.tokens_of(number)[:count]
            target[:count] += self.shift
        if end:
            tokens[np.arange(len(row)), length] = self.eos
        if self.per_example > 1:
            tokens = tokens.reshape(len(index), self.per_example, tokens.shape[1])
        label = self.labels[index].astype(np.int64)
        return {"tokens": torch.from_numpy(tokens), "label": torch.from_numpy(label)}


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceClassification(OneLabel):
    """One class per sequence, or per group of sequences. Subclasses give the class variables and `sources()`.

    `train`, `val` and `test` are the numbers of examples to generate, or at most to use of those that are read.
    `data_seed` draws generated examples and orders read ones. `append_eos` puts an end symbol, `symbols`, inside
    `max_length`.
    """

    metric = "acc"
    higher_is_better = True
    baseline_name = "majority_class"

    classes: ClassVar[int]
    symbols: ClassVar[int]  # token ids without that of an end symbol
    published: ClassVar[tuple[int, int]]  # examples for training and validation, and for testing
    shift: ClassVar[int] = 0  # of cached ids
    per_example: ClassVar[int] = 1  # sequences
    padding_id: ClassVar[int | None] = 0
    patterns = SELF

    pattern: Pattern | str = Pattern.NONCAUSAL_SELF
    max_length: int
    train: int
    val: int
    test: int
    append_eos: bool = False
    drop_remainder: int | None = None

    def __post_init__(self) -> None:
        self.eos = self.symbols if self.append_eos else None
        self.sizes = {"train": self.train, "val": self.val, "test": self.test}
        at_least(1 + self.append_eos, max_length=self.max_length)
        at_least(1, **self.sizes, drop_remainder=self.drop_remainder)
        super().__post_init__()

    def path_source(self, read: Callable, identity: Callable, *, official: bool = False, **options: Any) -> Source:
        """A source in `path`."""
        description = self.release if official else "a folder laid out like the official one, or a part"
        return Source(read, identity, path=description, **{"requires_path": True, **options})

    def generated(self, generator: ModuleType, **settings: Any) -> Source:
        """The source that `generator` provides with these settings, the same on every machine.

        It has `VERSION`, part of the cache key; `check`, which raises ValueError for settings that cannot be; and
        `generate(count, seed=, progress=)`, whose seed ends with the number of the split (tasks/lra/synthetic.py).
        """

        def read(progress: Progress) -> dict[str, Any]:
            make = partial(generator.generate, progress=progress, **settings)
            return {name: make(size, seed=(self.data_seed, i)) for i, (name, size) in enumerate(self.sizes.items())}

        identity = {"version": generator.VERSION, **settings, **self.sizes}
        check = partial(generator.check, **settings)
        return Source(read, lambda: identity, check=check, version=generator.VERSION)

    def libraries(self, hub: tuple[str, str], tfds: str, read: ReadRows) -> dict[str, Source]:
        """The sources `hf` (a data set of the hub and its revision) and `tfds` (`path`: the folder of its data sets).

        `read` makes the examples of a source from the rows of a split.
        """

        def from_hub(progress: Progress) -> dict[str, Any]:
            data = data_sources.from_hub(*hub, PUBLISHED_SPLITS)
            return {name: read(rows, f"hf {hub[0]} {name}", progress) for name, rows in data.items()}

        def from_tfds(progress: Progress) -> dict[str, Any]:
            data = data_sources.from_tfds(tfds, self.path or self.data_root / "tfds", PUBLISHED_SPLITS)
            return {name: read(rows, f"tfds {tfds} {name}", progress) for name, rows in data.items()}

        return {
            "hf": Source(from_hub, lambda: {"revision": hub[1]}, complete=True),
            "tfds": Source(from_tfds, lambda: {"builder": tfds}, path="the folder of TFDS", complete=True),
        }

    def read_source(self, progress: Progress) -> dict[str, Examples | Shards]:
        made = with_validation(self._source.read(progress), self.data_seed)
        where = self.path or f"source={self.source}"
        if empty := [name for name, split in made.items() if not split.count]:
            raise DataError(f"{where}: too few examples, none for {empty[0]}")
        self.check_is_complete(where, self._counts(made), self.published, "examples to train and test")
        return made

    def load(self) -> DataInfo:
        splits = self.open(self.cached_sets()[0])
        complete = self._counts(splits) == self.published
        splits = self.select_splits(splits)
        all_used = all(self.sizes[name] >= splits[name].count // self.per_example for name in SPLITS)
        self._used = used = {name: self._cut(name, splits[name]) for name in SPLITS}
        self._splits = {name: self.sequences(part, self.max_length) for name, part in used.items()}
        if splits["val"] is splits["test"] and used["val"].count == used["test"].count:
            self._splits["val"] = self._splits["test"]  # the same object, so that it is scored once and recognised
        sizes = {name: len(split) for name, split in self._splits.items()}
        return DataInfo(self.origin(complete and all_used), fingerprint(map(content_hash, used.values())), sizes)

    def select_splits(self, splits: dict[str, AnyExamples]) -> dict[str, AnyExamples]:
        """The splits that the task uses, from those in the cache."""
        return splits

    def sequences(self, examples: AnyExamples, max_length: int) -> SequenceSplit:
        return SequenceSplit(examples, max_length, shift=self.shift, eos=self.eos, per_example=self.per_example)

    def fitted(self, features: Features, classifier: Callable[[], Any], most: int | None) -> Fitted:
        """A baseline, fitted to the first `most` training examples."""
        return Fitted(self.split("train"), self.classes, features, classifier(), most)

    @property
    def vocab_size(self) -> int:
        return self.symbols + (self.eos is not None)

    def backbone_kwargs(self) -> dict[str, object]:
        return {
            "vocab_size": self.vocab_size,
            "classes": self.classes,
            "max_length": self.max_length,
            "pattern": self.pattern,
            "padding_id": self.padding_id,
        }

    def tokens(self, batch: Batch) -> int:
        tokens = batch["tokens"]
        return tokens.numel() if self.padding_id is None else int((tokens != self.padding_id).sum())

    def with_common_length(self, batch: Batch) -> Batch:
        """Eighths of `max_length`."""
        length = batch["tokens"].shape[-1]
        if self.padding_id is None or length >= self.max_length:
            return batch
        more = min(-length % math.ceil(self.max_length / COMMON_LENGTHS), self.max_length - length)
        return batch | {"tokens": F.pad(batch["tokens"], (0, more), value=self.padding_id)}

    def _cut(self, name: str, examples: AnyExamples) -> AnyExamples:
        """The examples of a split that are used, the first ones."""
        count = min(self.sizes[name], examples.count // self.per_example)
        if name != "train":
            count = count - count % (self.drop_remainder or 1) or count
        return examples.part(0, count * self.per_example)

    def _counts(self, splits: Mapping[str, Any]) -> tuple[int, int]:
        """Numbers of examples, as in `published`."""
        count = {name: examples.count // self.per_example for name, examples in splits.items()}
        return count["train"] + count["val"], count["test"]

    def origin(self, complete: bool, part: str | None = None) -> str:
        return super().origin(complete and self.source != SLICE, part)


def split_off(examples: Examples, test: int, val: int) -> dict[str, Examples]:
    """The first `test` examples, the next `val`, and the rest as `train`."""
    rest = examples.part(test + val, examples.count)
    return {"train": rest, "val": examples.part(test, test + val), "test": examples.part(0, test)}


def with_validation(splits: Mapping[str, Examples], seed: int) -> dict[str, Examples]:
    """`train`, `val` and `test`: where there is no `val`, a tenth of `train`, all examples in an order of their own."""
    if "val" in splits:
        return dict(splits)
    train, test = (shuffled_by_content(splits[name], seed) for name in ("train", "test"))
    held = train.count // 10
    return {"train": train.part(held, train.count), "val": train.part(0, held), "test": test}


def shuffled_by_content(examples: Examples, seed: int) -> Examples:
    """The same examples ordered by a digest of their content and `seed`: shuffled, whatever their given order."""
    tokens, edges, salt = examples.tokens.tobytes(), examples.offsets.tolist(), f"{seed}:".encode()

    def digest(i: int) -> bytes:
        data = tokens[edges[i] : edges[i + 1]] + bytes([examples.labels[i]])
        return hashlib.blake2b(salt + data, digest_size=16).digest()

    return examples.take(sorted(range(examples.count), key=digest))
