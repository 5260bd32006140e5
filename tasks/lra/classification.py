"""What LRA's tasks on published data share: examples through the cache, padded batches, accuracy, the chance level.

A task says where its examples come from (`sources`), what their tokens are, and how many the paper has; the rest is
here. Our readings:

- Accuracy is 100 x correct / all examples. `drop_remainder` leaves out the last incomplete batch of so many, as the
  published code did (at most 255 of 10,000 images).
- Where the data have no validation split, a tenth of the training examples is held out. Which one is a function of
  their content and `data_seed` alone, so it is the same whatever the data were fetched from. The published code asks
  the test split instead (X11), or takes a tenth without a seed.

    n examples, B batch, N length
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MetricCollection

from models.attention.base import Pattern
from tasks import cache, sources
from tasks.base import Batch, DataError, DataInfo, Progress, Split, Task, at_least, one_of
from tasks.cache import CacheError, Examples
from tasks.metrics import accuracy_and_loss
from tasks.sources import SLICE, SYNTHETIC, Source

SPLITS = ("train", "val", "test")
PUBLISHED_SPLITS = ("train", "test")  # of sets without validation


# (rows of a split, where they stand, progress) -> what a source gives
ReadRows = Callable[[Sequence[Mapping[str, Any]], str, Progress], Any]


class StandIn(Protocol):
    """A module that invents examples: a function of the seed, the same on every machine."""

    VERSION: int  # part of the cache key: raised when the same seed gives other examples

    def check(self, **settings: Any) -> None:
        """Raises ValueError for settings that cannot be."""

    def generate(self, count: int, *, seed: tuple[int, ...], progress: Progress, **settings: Any) -> Any: ...


class Sequences(Split):
    """One split. `batch(indices)` gives {"tokens": (B, longest) int64, padded with 0, "label": (B,) int64}.

    Bytes are cut to `max_length`, an `eos` (if not None) included, and become ids by adding `shift`. With `towers` > 1
    an example is so many sequences, one after another in `examples`, and tokens are (B, towers, longest).
    """

    def __init__(self, examples: Examples, max_length: int, *, shift: int = 0, eos: int | None = None, towers: int = 1):
        self.examples, self.max_length, self.shift, self.eos, self.towers = examples, max_length, shift, eos, towers

    def __len__(self) -> int:
        return self.examples.count // self.towers

    @property
    def labels(self) -> np.ndarray:
        """(n,) uint8."""
        return self.examples.labels[:: self.towers]

    def lengths(self) -> np.ndarray:
        """(n,) int64: tokens of each example, those of all its towers and end symbols."""
        end = self.eos is not None
        return (np.minimum(np.diff(self.examples.offsets), self.max_length - end) + end).reshape(-1, self.towers).sum(1)

    def batch(self, indices: Sequence[int]) -> Batch:
        index = np.asarray(indices, dtype=np.int64)
        if index.size and not 0 <= index.min() <= index.max() < len(self):
            raise IndexError(f"examples are numbered 0 to {len(self) - 1}, not {index.min()} to {index.max()}")
        row = (index[:, None] * self.towers + np.arange(self.towers)).ravel()
        end = self.eos is not None
        first = self.examples.offsets[row]
        length = np.minimum(self.examples.offsets[row + 1] - first, self.max_length - end)
        tokens = np.zeros((len(row), length.max(initial=0) + end), np.int64)
        # one copy a row: several times faster than one gather of all positions
        for target, start, count in zip(tokens, first.tolist(), length.tolist(), strict=True):
            target[:count] = self.examples.tokens[start : start + count]
            target[:count] += self.shift
        if end:
            tokens[np.arange(len(row)), length] = self.eos
        if self.towers > 1:
            tokens = tokens.reshape(len(index), self.towers, tokens.shape[1])
        label = self.examples.labels[row[:: self.towers]].astype(np.int64)
        return {"tokens": torch.from_numpy(tokens), "label": torch.from_numpy(label)}


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceClassification(Task):
    """A class for each sequence, or group of sequences. Subclasses give the class variables and `sources()`.

    `path` is a file or folder, for the sources that take one. `train`, `val` and `test` are the numbers of examples to
    generate, or at most to use of those that are read. `data_seed` draws generated examples and orders read ones.
    `append_eos` puts an end symbol, `symbols`, inside `max_length`. Raises ValueError, in one line, before any data is
    touched.
    """

    metric = "acc"
    higher_is_better = True
    baseline_name = "majority class"

    name: ClassVar[str]
    classes: ClassVar[int]
    symbols: ClassVar[int]  # ids without that of an end symbol
    published: ClassVar[tuple[int, int]]  # examples for training and validation, and for testing
    release: ClassVar[str] = ""  # what `path` of the official source is, and where it is published
    recipe: ClassVar[str] = ""  # the protocol to name in commands, if the default one has no recipe for this task
    version: ClassVar[int] = 1  # part of the cache key: raise it when the same files give other examples
    shift: ClassVar[int] = 0
    towers: ClassVar[int] = 1
    padding_id: ClassVar[int | None] = 0

    data_root: str | Path
    source: str
    path: str | Path | None = None
    pattern: Pattern | str = Pattern.NONCAUSAL_SELF
    max_length: int
    train: int
    val: int
    test: int
    data_seed: int = 0
    append_eos: bool = False
    drop_remainder: int | None = None
    majority_class: int = field(init=False)  # of the training split, once loaded

    def __post_init__(self) -> None:
        self.data_root = Path(self.data_root).expanduser()
        self.path = None if self.path is None else Path(self.path).expanduser()
        self.eos = self.symbols if self.append_eos else None
        self.sizes = {"train": self.train, "val": self.val, "test": self.test}
        self.pattern = Pattern(self.pattern)
        if self.pattern.cross:
            raise ValueError(f"{self.name} has nothing to cross to: pattern={self.pattern}")
        at_least(1 + self.append_eos, max_length=self.max_length)
        at_least(1, **self.sizes, drop_remainder=self.drop_remainder)
        at_least(0, data_seed=self.data_seed)
        known = self.sources()
        one_of(known, source=self.source)
        self._source = known[self.source]
        if self.path is not None and not self._source.takes_path:
            raise ValueError(f"source={self.source} takes no path: task.path=null")
        self._source.check()
        self._splits: dict[str, Sequences] = {}

    def sources(self) -> dict[str, Source]:
        """Where examples may come from, by the name that `source` has; called once all settings are known."""
        raise NotImplementedError

    def invented(self, stand_in: StandIn, **settings: Any) -> Source:
        """The source that `stand_in` is with these settings."""

        def read(progress: Progress) -> dict[str, Any]:
            make = partial(stand_in.generate, progress=progress, **settings)
            return {name: make(size, seed=(self.data_seed, i)) for i, (name, size) in enumerate(self.sizes.items())}

        identity = {"version": stand_in.VERSION, **settings, **self.sizes}
        return Source(lambda: identity, read, check=partial(stand_in.check, **settings))

    def libraries(self, hub: tuple[str, str], tfds: str, read: ReadRows) -> dict[str, Source]:
        """The sources `hf` (a data set of the hub and its revision) and `tfds` (`path`: the folder of its data sets).

        `read` makes what a source gives of the rows of a split.
        """

        def from_hub(progress: Progress) -> dict[str, Any]:
            data = sources.from_hub(*hub, PUBLISHED_SPLITS, self.hint)
            return {name: read(rows, f"hf {hub[0]} {name}", progress) for name, rows in data.items()}

        def from_tfds(progress: Progress) -> dict[str, Any]:
            data = sources.from_tfds(tfds, self.path or self.data_root / "tfds", PUBLISHED_SPLITS, self.hint)
            return {name: read(rows, f"tfds {tfds} {name}", progress) for name, rows in data.items()}

        return {
            "hf": Source(lambda: {"revision": hub[1]}, from_hub, counted=True),
            "tfds": Source(lambda: {"builder": tfds}, from_tfds, takes_path=True, counted=True),
        }

    @property
    def hint(self) -> str:
        """The command after whatever a message asks for."""
        words = ["python run.py do=prepare", f"task={self.name}"]
        words += [f"protocol={self.recipe}"] if self.recipe else []
        words += [f"task.source={self.source}"] if self.source != getattr(type(self), "source", None) else []
        words += [f"task.path={self.path}"] if self.path else []
        words += [f"(it is {self.release})"] if self.path and self.release and self.source == "official" else []
        return " ".join(words)

    def prepare(self, progress: Progress) -> None:
        parameters = self._parameters()
        folder = self._folder(parameters)
        try:
            cache.read(folder, parameters)
        except CacheError:  # missing or damaged: made (anew)
            made = hold_out(self._source.read(progress), self.data_seed)
            self._check_counts(made)
            try:
                cache.write(folder, made, parameters)
            except CacheError as error:
                raise DataError(f"{error}; set paths.data to a folder with room, then {self.hint}") from error

    def check_is_prepared(self) -> None:
        parameters = self._parameters()
        try:
            cache.manifest(self._folder(parameters), parameters)
        except CacheError as error:
            raise DataError(f"{error}; run: {self.hint}") from error

    def load(self) -> DataInfo:
        parameters = self._parameters()
        try:
            whole, _ = cache.read(self._folder(parameters), parameters)
        except CacheError as error:
            raise DataError(f"{error}; run: {self.hint}") from error
        complete = self._counts(whole) == self.published
        whole = self.arrange(whole)
        all_used = all(self.sizes[name] >= whole[name].count // self.towers for name in SPLITS)
        used = {name: self._cut(name, whole[name]) for name in SPLITS}
        self._splits = {
            name: Sequences(part, self.max_length, shift=self.shift, eos=self.eos, towers=self.towers)
            for name, part in used.items()
        }
        if whole["val"] is whole["test"] and used["val"].count == used["test"].count:
            self._splits["val"] = self._splits["test"]  # one object, which is scored once and known for what it is
        self.majority_class = int(np.bincount(self._splits["train"].labels, minlength=self.classes).argmax())
        sizes = {name: len(split) for name, split in self._splits.items()}
        fingerprint = hashlib.sha256("".join(cache.content(part) for part in used.values()).encode()).hexdigest()
        return DataInfo(self._origin(complete and all_used), fingerprint, sizes)

    def arrange(self, whole: dict[str, Examples]) -> dict[str, Examples]:
        """The splits as the task uses them, of those that the cache holds."""
        return whole

    def split(self, name: str) -> Sequences:
        if not self._splits:
            raise RuntimeError(f"{self.name}: load() comes before split()")
        return self._splits[name]

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

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch["tokens"]).float(), batch["label"])

    def metrics(self) -> MetricCollection:
        return accuracy_and_loss(self.classes)

    def score(self, model: nn.Module, batch: Batch, metrics: MetricCollection) -> dict[str, Tensor]:
        logits, label = model(batch["tokens"]).detach().float(), batch["label"]
        metrics.update(logits, label)
        return {"acc": 100.0 * (logits.argmax(1) == label), "loss": F.cross_entropy(logits, label, reduction="none")}

    def baseline(self) -> dict[str, float]:
        """Accuracy in percent of always answering `majority_class`, on `val` and `test`."""
        labels = {name: self.split(name).labels for name in ("val", "test")}
        return {name: 100 * int((values == self.majority_class).sum()) / len(values) for name, values in labels.items()}

    def tokens(self, batch: Batch) -> int:
        tokens = batch["tokens"]
        return tokens.numel() if self.padding_id is None else int((tokens != self.padding_id).sum())

    def check_source(self) -> None:
        if self.path is None and self._source.needs_path:
            what = self.release if self.source == "official" else "a folder laid out like the official one, or a part"
            raise DataError(f"source={self.source} needs task.path, {what}; {self.hint} task.path=...")

    def _parameters(self) -> dict[str, Any]:
        """What the cache is made of. Raises DataError."""
        self.check_source()
        how = {"source": self.source, "reader": self.version, "data_seed": self.data_seed}
        return {**how, **self._source.identity()}

    def _folder(self, parameters: dict[str, Any]) -> Path:
        return self.data_root / self.name / cache.key(parameters)[:12]

    def _cut(self, name: str, examples: Examples) -> Examples:
        """The examples of a split that are used, the first ones."""
        count = min(self.sizes[name], examples.count // self.towers)
        if name != "train":
            count = count - count % (self.drop_remainder or 1) or count
        return examples.part(0, count * self.towers)

    def _counts(self, splits: Mapping[str, Examples]) -> tuple[int, int]:
        """Numbers of examples, as in `published`."""
        count = {name: examples.count // self.towers for name, examples in splits.items()}
        return count["train"] + count["val"], count["test"]

    def _check_counts(self, splits: Mapping[str, Examples]) -> None:
        where = self.path or f"source={self.source}"
        if empty := [name for name, examples in splits.items() if not examples.count]:
            raise DataError(f"{where}: too few examples, none for {empty[0]}; {self.hint}")
        found = self._counts(splits)
        if self._source.counted and found != self.published:
            counts = " instead of ".join(f"{train:,} + {test:,}" for train, test in (found, self.published))
            what = f"{counts} examples to train and test"
            raise DataError(f"{where}: {what}; get them all (task.source={SLICE} takes a part), then {self.hint}")

    def _origin(self, complete: bool) -> str:
        if self.source == SYNTHETIC:
            return SYNTHETIC
        if complete and self.source != SLICE:
            return "full"
        return f"slice:{self.source if self.path is None else self.path.resolve().name}"


def cut(examples: Examples, test: int, val: int) -> dict[str, Examples]:
    """The first `test` examples, the next `val`, and the rest as `train`."""
    rest = examples.part(test + val, examples.count)
    return {"train": rest, "val": examples.part(test, test + val), "test": examples.part(0, test)}


def hold_out(splits: Mapping[str, Examples], seed: int) -> dict[str, Examples]:
    """`train`, `val` and `test`: where there is no `val`, a tenth of `train`, all examples in an order of their own."""
    if "val" in splits:
        return dict(splits)
    train, test = (by_content(splits[name], seed) for name in ("train", "test"))
    held = train.count // 10
    return {"train": train.part(held, train.count), "val": train.part(0, held), "test": test}


def by_content(examples: Examples, seed: int) -> Examples:
    """The same examples ordered by a digest of their content and `seed`: shuffled, but alike for any order given."""
    tokens, edges, salt = examples.tokens.tobytes(), examples.offsets.tolist(), f"{seed}:".encode()

    def digest(i: int) -> bytes:
        data = tokens[edges[i] : edges[i + 1]] + bytes([examples.labels[i]])
        return hashlib.blake2b(salt + data, digest_size=16).digest()

    return examples.take(sorted(range(examples.count), key=digest))
