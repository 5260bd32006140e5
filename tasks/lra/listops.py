"""ListOps: the value of a nested expression of up to 2000 tokens, ten classes (Tay et al., Long Range Arena, 2021).

Source of the data: LRA's files (`lra_release/listops-1000/basic_{train,val,test}.tsv`), LRA's generator
(google-research/long-range-arena `lra_benchmarks/data/listops.py`, see `listops_generator`), or a slice of the older
set of Nangia and Bowman. 96,000 / 2,000 / 2,000 examples, accuracy in percent.

Our readings:
- Parentheses are dropped and ids fixed (LRA's input pipeline): 15 symbols, padding and unknown make 17 rows.
  Sequences are cut at `max_length` and padded to the longest of their batch, not to 2000: a backbone that counts
  padding (Skyformer's mean over 2048 positions) pads further itself.
- Test and validation examples are the first that the generator gives, so they stay the same when fewer training
  examples are asked for.
- The classes are uneven (0 and 9 have 17 % each): always answering the training majority is the chance level. Four
  published rows are at it (X9 for the Performer: two random features).
- `append_eos`: fairseq's dictionary, which Luna's code uses, keeps an end symbol (X13): id 17, inside `max_length`.
"""

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from models.attention.base import Pattern
from tasks import cache
from tasks.base import Batch, DataError, DataInfo, Progress, Task
from tasks.cache import CacheError, Examples
from tasks.lra import listops_generator as generator

CLASSES = 10
EOS = generator.UNKNOWN + 1
PAPER = {"train": 96_000, "val": 2_000, "test": 2_000}
SOURCES = ("generated", "official", "slice")
SLICE_FILE = "listops_d20s_test.tsv"  # or .tsv.gz
READER_VERSION = 1  # part of the cache key of read files
NEXT = "python run.py do=prepare task=lra/listops"


def read_tsv(file: Path, *, header: bool, progress: Progress | None = None) -> Examples:
    """Expressions and labels of a (gzipped) text file: `Source TAB Target` with header, or `label TAB expression`.

    Every label is checked against the evaluator. Raises DataError, naming file and line.
    """
    tokens, labels, lengths, done = bytearray(), bytearray(), [0], 0
    for number, line in _lines(file):
        if number == 1 and header:
            if line.rstrip(b"\r\n") != b"Source\tTarget":
                raise DataError(f"{file}:1: the header is not 'Source TAB Target'; put LRA's file there, then {NEXT}")
            continue
        try:
            expression, label = _example(line, label_first=not header)
        except ValueError as error:
            cut = "" if line.endswith(b"\n") else " (the last line is cut off)"
            raise DataError(f"{file}:{number}: {error}{cut}; put the whole file there, then {NEXT}") from None
        tokens += expression
        labels.append(label)
        lengths.append(len(expression))
        done += len(line)
        if progress and not len(labels) % 1000:
            progress(f"reading {file.name}", done, max(done, file.stat().st_size))
    if not labels:
        raise DataError(f"{file}:1: no examples; put the whole file there, then {NEXT}")
    offsets = np.cumsum(lengths, dtype=np.int64)
    return Examples(np.frombuffer(tokens, np.uint8), offsets, np.frombuffer(labels, np.uint8))


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    try:
        with gzip.open(file) if file.suffix == ".gz" else open(file, "rb") as stream:
            for number, line in enumerate(stream, 1):
                yield number, line
    except (OSError, EOFError, zlib.error) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise DataError(f"{file}:{number + 1}: {reason}; put the whole file there, then {NEXT}") from None


def _example(line: bytes, *, label_first: bool) -> tuple[bytes, int]:
    try:
        columns = line.decode("utf-8").rstrip("\r\n").split("\t")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is not UTF-8") from None
    if len(columns) != 2:
        raise ValueError(f"{len(columns)} columns instead of 2")
    label, text = columns if label_first else reversed(columns)
    if label not in generator.SYMBOLS[generator.FIRST_DIGIT : generator.FIRST_OPERATOR]:
        raise ValueError(f"label {label[:20]!r} is not a digit")
    tokens = generator.parse(text)
    value = generator.evaluate(tokens)
    if value != int(label):
        raise ValueError(f"label {label}, but the expression is {value}")
    return tokens, value


class Expressions:
    """One split. `batch(indices)` gives {"tokens": (B, longest) int64, padded with 0, "label": (B,) int64}."""

    def __init__(self, examples: Examples, max_length: int, append_eos: bool):
        self.examples, self.max_length, self.append_eos = examples, max_length, append_eos

    def __len__(self) -> int:
        return self.examples.count

    def batch(self, indices: Sequence[int]) -> Batch:
        index = np.asarray(indices, dtype=np.int64)
        if index.size and not 0 <= index.min() <= index.max() < len(self):
            raise IndexError(f"examples are numbered 0 to {len(self) - 1}, not {index.min()} to {index.max()}")
        first = self.examples.offsets[index]
        length = np.minimum(self.examples.offsets[index + 1] - first, self.max_length - self.append_eos)
        tokens = np.zeros((len(index), length.max(initial=0) + self.append_eos), np.int64)
        # one copy a row: several times faster than one gather of all positions
        for row, start, count in zip(tokens, first.tolist(), length.tolist(), strict=True):
            row[:count] = self.examples.tokens[start : start + count]
        if self.append_eos:
            tokens[np.arange(len(index)), length] = EOS
        label = self.examples.labels[index].astype(np.int64)
        return {"tokens": torch.from_numpy(tokens), "label": torch.from_numpy(label)}


class PercentCorrect(MulticlassAccuracy):
    """100 x correct / total in float64: torchmetrics' fraction is float32, off in the sixth digit of a percentage."""

    def compute(self) -> Tensor:
        return 100 * self.tp.sum().double() / (self.tp + self.fn).sum()


class MeanCrossEntropy(Metric):
    """Cross entropy in nats averaged over examples, summed in float64, whatever the sizes of the batches."""

    is_differentiable = False
    higher_is_better = False
    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        self.total += F.cross_entropy(preds.detach(), target, reduction="none").double().sum()
        self.count += target.numel()

    def compute(self) -> Tensor:
        return self.total / self.count


class ListOps(Task):
    """LRA ListOps. `path` is the folder of the official files or of a slice.

    `max_length` bounds generated expressions (strictly) and cuts all others; the other bounds and `data_seed` concern
    generated data (the seed also shuffles a slice before it is split 80/10/10). `train`, `val` and `test` are the
    examples to generate, or at most to use of read files. `workers` None: one process a core, fewer for small sets.
    Raises ValueError, in one line, before any data is touched.
    """

    metric = "acc"
    higher_is_better = True
    baseline_name = "majority class"
    majority_class: int  # of the training split, once loaded

    def __init__(
        self,
        *,
        data_root: str | Path,
        source: str = "generated",
        path: str | Path | None = None,
        pattern: Pattern | str = Pattern.NONCAUSAL_SELF,
        max_length: int = 2000,
        min_length: int = 500,
        max_depth: int = 10,
        max_args: int = 10,
        train: int = PAPER["train"],
        val: int = PAPER["val"],
        test: int = PAPER["test"],
        data_seed: int = 0,
        append_eos: bool = False,
        workers: int | None = None,
    ):
        if source not in SOURCES:
            raise ValueError(f"source={source!r} is none of {', '.join(SOURCES)}")
        if (path is None) != (source == "generated"):
            raise ValueError(f"source={source} {'needs' if path is None else 'takes no'} path")
        self.pattern = Pattern(pattern)
        if self.pattern.cross:
            raise ValueError(f"ListOps has one sequence: pattern={self.pattern} has nothing to cross to")
        self.sizes = {"train": train, "val": val, "test": test}
        for name, value in {
            **self.sizes,
            "workers": 1 if workers is None else workers,
            "max_length": max_length,
        }.items():
            if value < 1 + (name == "max_length"):
                raise ValueError(f"{name}={value} is too small")
        if data_seed < 0:
            raise ValueError(f"data_seed={data_seed} is negative")
        self.grammar = generator.Grammar(min_length, max_length, max_depth, max_args) if path is None else None
        self.data_root, self.source, self.path = Path(data_root), source, None if path is None else Path(path)
        self.max_length, self.data_seed, self.append_eos, self.workers = max_length, data_seed, append_eos, workers
        self._splits: dict[str, Expressions] = {}

    def prepare(self, progress: Progress) -> None:
        parameters = self._parameters()
        folder = self._folder(parameters)
        try:
            cache.read(folder, parameters)
        except CacheError:  # missing or damaged: made (anew)
            try:
                cache.write(folder, self._make(progress), parameters)
            except CacheError as error:
                raise DataError(f"{error}; set paths.data to a folder with room, then {NEXT}") from error

    def load(self) -> DataInfo:
        parameters = self._parameters()
        try:
            whole, _ = cache.read(self._folder(parameters), parameters)
        except CacheError as error:
            raise DataError(f"{error}; run: {NEXT}") from error
        used = {name: whole[name].part(0, min(size, whole[name].count)) for name, size in self.sizes.items()}
        self._splits = {name: Expressions(part, self.max_length, self.append_eos) for name, part in used.items()}
        self.majority_class = int(np.bincount(used["train"].labels, minlength=CLASSES).argmax())
        sizes = {name: part.count for name, part in used.items()}
        fingerprint = hashlib.sha256("".join(cache.content(part) for part in used.values()).encode()).hexdigest()
        return DataInfo(self._origin(sizes), fingerprint, sizes)

    def split(self, name: str) -> Expressions:
        if not self._splits:
            raise RuntimeError("ListOps: load() comes before split()")
        return self._splits[name]

    def dimensions(self) -> dict[str, object]:
        rows = EOS + self.append_eos
        return {"vocab_size": rows, "classes": CLASSES, "max_length": self.max_length, "pattern": self.pattern}

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch["tokens"]).float(), batch["label"])

    def metrics(self) -> MetricCollection:
        accuracy = PercentCorrect(num_classes=CLASSES, average="micro", validate_args=False)
        return MetricCollection({"acc": accuracy, "loss": MeanCrossEntropy()}, compute_groups=False)

    def score(self, model: nn.Module, batch: Batch, metrics: MetricCollection) -> int:
        metrics.update(model(batch["tokens"]).float(), batch["label"])
        return len(batch["label"])

    def baseline(self) -> dict[str, float]:
        """Accuracy in percent of always answering `majority_class`, on `val` and `test`."""
        labels = {name: self.split(name).examples.labels for name in ("val", "test")}
        return {name: 100 * int((values == self.majority_class).sum()) / len(values) for name, values in labels.items()}

    def tokens(self, batch: Batch) -> int:
        return int((batch["tokens"] != generator.PAD).sum())

    def _origin(self, sizes: dict[str, int]) -> str:
        if self.path is None:
            return "full" if sizes == PAPER and self.grammar == generator.LRA else "synthetic"
        return "full" if self.source == "official" and sizes == PAPER else f"slice:{self.path.resolve().name}"

    def _folder(self, parameters: dict[str, Any]) -> Path:
        return self.data_root / "lra" / "listops" / cache.key(parameters)[:12]

    def _parameters(self) -> dict[str, Any]:
        """What the examples follow from: the generator's settings, or the bytes of the files. Raises DataError."""
        if self.grammar:
            settings = {**vars(self.grammar), **self.sizes, "data_seed": self.data_seed}
            return {"source": self.source, "generator_version": generator.VERSION, **settings}
        parameters: dict[str, Any] = {"source": self.source, "reader_version": READER_VERSION}
        for name, file in self._files().items():
            try:
                with open(file, "rb") as stream:
                    parameters[name] = hashlib.file_digest(stream, "sha256").hexdigest()
            except OSError as error:
                raise DataError(f"{file}:1: {error.strerror}; set task.path to its folder, then {NEXT}") from error
        return parameters | ({"data_seed": self.data_seed} if self.source == "slice" else {})

    def _files(self) -> dict[str, Path]:
        if self.source == "official":
            return {name: self.path / f"basic_{name}.tsv" for name in PAPER}
        plain = self.path / SLICE_FILE
        return {"all": plain if plain.exists() else plain.with_suffix(".tsv.gz")}

    def _make(self, progress: Progress) -> dict[str, Examples]:
        """All splits, generated or read. Raises DataError."""
        if self.source == "official":
            return {name: read_tsv(file, header=True, progress=progress) for name, file in self._files().items()}
        if self.source == "generated":
            return _cut(self._generate(progress), self.sizes["val"], self.sizes["test"])
        file = self._files()["all"]
        examples = read_tsv(file, header=False, progress=progress)
        count = examples.count
        if count < 10:
            raise DataError(f"{file}:{count}: {count} examples cannot be split 80/10/10; give ten or more, then {NEXT}")
        # the file is sorted by length
        bits = np.random.PCG64(np.random.SeedSequence([self.data_seed]))
        return _cut(examples.take(np.argsort(bits.random_raw(count), kind="stable").tolist()), count // 10, count // 10)

    def _generate(self, progress: Progress) -> Examples:
        count = sum(self.sizes.values())
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = self.workers or max(1, min(cores, count // 20_000))  # starting a process costs ~10,000 examples
        try:
            return generator.generate(count, self.grammar, seed=self.data_seed, workers=workers, progress=progress)
        except BrokenProcessPool as error:
            raise DataError(f"a generating process died (memory?); try task.workers=1 with {NEXT}") from error
        except ValueError as error:
            raise DataError(f"{error}; ask for fewer or widen the bounds, then {NEXT}") from error


def _cut(examples: Examples, val: int, test: int) -> dict[str, Examples]:
    """The first `test` examples, the next `val`, and the rest as `train`."""
    rest = examples.part(test + val, examples.count)
    return {"train": rest, "val": examples.part(test, test + val), "test": examples.part(0, test)}
