"""Regression on a user's own rows: a number from numbers, or from a text.

`tokenizer=levels` reads the numbers of the columns `inputs`, or of one column that holds lists of numbers. A number
becomes one of 256 tokens, its rank among the training numbers of its column. With another tokenizer `inputs` is a
column with texts. The target is standardised by mean and standard deviation of the training rows, so the mean squared
error of the mean is about 1. Baselines: that mean, and ridge regression on the levels or on hashed n-gram counts, its
penalty chosen on validation.

    B batch, N length
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MetricCollection

from tasks.base import Batch, DataInfo, Predictor
from tasks.checks import DataError, Progress
from tasks.data import synthetic_numbers
from tasks.data.own_files import Entry, text_of
from tasks.data.rows import LONGEST_LIST
from tasks.data.sequences import OwnSequences
from tasks.data.synthetic_numbers import LEVELS
from tasks.examples import AnyExamples, Examples, of_sequences
from tasks.forecasting.errors import window_errors
from tasks.lra.classification import SequenceSplit
from tasks.lra.classifiers import pieces, saw
from tasks.lra.fitted import at_most, stacked, within
from tasks.lra.ngram_counts import FIT_ON, TOKENS, ngram_counts
from tasks.metrics import means

NUMBERS = "levels"
PENALTIES = (1e-2, 1e0, 1e2, 1e4)
NGRAM = 3
LARGEST = 1e100  # of a number: its square is one, too


@dataclass(kw_only=True, eq=False, repr=False)
class Regression(OwnSequences):
    """`inputs` and `target` name columns of the files at `path`."""

    name = "data/regression"
    metric, higher_is_better, baseline_name = "mse", False, "training_mean"
    classes = 1  # outputs of a model
    generator = synthetic_numbers
    tokenizers = (NUMBERS,)

    inputs: Sequence[str] | str = "inputs"
    target: str = "target"
    tokenizer: str = NUMBERS

    def __post_init__(self) -> None:
        self.inputs = [self.inputs] if isinstance(self.inputs, str) else list(self.inputs)
        if not self.inputs or (self.tokenizer != NUMBERS and len(self.inputs) > 1):
            raise ValueError(f"inputs={self.inputs}: tokenizer={NUMBERS} reads several columns, others read one")
        if len(set(self.inputs)) < len(self.inputs):
            raise ValueError(f"inputs={self.inputs}: a column stands there twice")
        if self.target in self.inputs:
            raise ValueError(
                f"target={self.target} is one of the inputs {self.inputs}: nothing would be left to predict"
            )
        super().__post_init__()

    def columns(self) -> dict[str, Sequence[str]]:
        return {"inputs": self.inputs, "target": [self.target]}

    def entry(self, cells: tuple[Any, ...], where: str) -> tuple[bytes, float]:
        target = number_of(cells[-1], self.target, where)
        if self.tokenizer != NUMBERS:
            return text_of(cells[0], self.inputs[0], where).encode(), target
        is_list = len(self.inputs) == 1 and isinstance(cells[0], list)
        numbers = cells[0] if is_list else cells[:-1]
        if not 0 < len(numbers) <= LONGEST_LIST:
            raise DataError(
                f"{where}: column '{self.inputs[0]}' has {len(numbers):,} numbers, not 1 to {LONGEST_LIST:,}"
            )
        names = self.inputs * len(numbers) if is_list else self.inputs
        values = [number_of(value, name, where) for value, name in zip(numbers, names, strict=True)]
        return np.array(values).tobytes(), target

    @property
    def symbols(self) -> int:
        return LEVELS + self.shift if self.tokenizer == NUMBERS else super().symbols

    def packed(self, entries: Mapping[str, Sequence[Entry]], progress: Progress) -> dict[str, Examples]:
        if self.tokenizer != NUMBERS:
            return super().packed(entries, progress)
        train = [np.frombuffer(entry.content) for entry in entries["train"]]
        by_column = list(np.stack(train).T) if len(self.inputs) > 1 else [np.concatenate(train)]
        edges = [np.quantile(numbers, np.arange(1, LEVELS) / LEVELS) for numbers in by_column]
        return {name: levels(some, edges) for name, some in entries.items()}

    def load(self) -> DataInfo:
        info = super().load()
        targets = self._used["train"].labels
        self.mean, self.deviation = float(targets.mean()), float(targets.std())
        if not self.deviation > 0:
            raise DataError(f"{self.path}: column '{self.target}' never changes in the training rows")
        for split in self._splits.values():
            split.mean, split.deviation = self.mean, self.deviation
        return info

    def sequences(self, examples: AnyExamples, max_length: int) -> "Targets":
        return Targets(examples, max_length, shift=self.shift)

    def describe(self, outputs: Tensor) -> list[dict[str, Any]]:
        """`value`, in the unit of the target. The data are loaded for it: they give mean and deviation."""
        if not self._splits:
            self.load()
        values = outputs.detach().double().flatten() * self.deviation + self.mean
        return [{"value": value} for value in values.tolist()]

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return F.mse_loss(model(batch["tokens"]).float(), batch["label"].float())

    def metrics(self) -> MetricCollection:
        return means("mse", "mae")

    def score(self, model: Predictor, batch: Batch, metrics: MetricCollection) -> dict[str, Tensor]:
        scores = window_errors(model(batch["tokens"]), batch["label"])  # of (B, 1) each
        metrics.update(**scores)
        return scores

    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        return {"training_mean": lambda: lambda tokens: tokens.new_zeros(len(tokens), 1).double(),
                "ridge": partial(Ridge, self, seen)}  # fmt: skip

    def features(self, tokens: np.ndarray) -> Any:
        """Tokens (B, N) -> (B, max_length) levels from 0 to 1, or hashed n-gram counts, sparse."""
        if self.tokenizer != NUMBERS:
            return ngram_counts(tokens, NGRAM, self.vocab_size)
        return np.pad(tokens, ((0, 0), (0, self.max_length - tokens.shape[1]))) / LEVELS


class Targets(SequenceSplit):
    """As its base, but "label" is (B, 1) float64: the target, standardised."""

    mean, deviation = 0.0, 1.0

    def batch(self, indices: Sequence[int]) -> Batch:
        batch = super().batch(indices)
        targets = (self.labels[np.asarray(indices, np.int64)] - self.mean) / self.deviation
        return batch | {"label": torch.from_numpy(targets)[:, None]}


class Ridge:
    """Tokens (B, N) -> (B, 1) float64, by the penalty that suits validation best. Raises ImportError."""

    def __init__(self, task: Regression, seen: int | None):
        from sklearn.linear_model import Ridge as Linear

        self.task, train = task, task.split("train")
        x, y = joined(task, train, within(train, TOKENS, at_most(FIT_ON, seen)))
        x_val, y_val = joined(task, task.split("val"), FIT_ON)
        fits = [Linear(alpha=penalty, solver="auto").fit(x, y) for penalty in PENALTIES]
        self.fit = min(fits, key=lambda fit: float(np.square(fit.predict(x_val) - y_val).mean()))
        self.saw = saw(len(y))

    def __call__(self, tokens: Tensor) -> Tensor:
        predicted = self.fit.predict(self.task.features(tokens.cpu().numpy()))
        return torch.from_numpy(np.asarray(predicted, np.float64)).view(-1, 1).to(tokens.device)


def joined(task: Regression, split: Any, most: int) -> tuple[Any, np.ndarray]:
    parts = [(task.features(tokens), target[:, 0]) for tokens, target in pieces(split, most)]
    return stacked([part[0] for part in parts]), stacked([part[1] for part in parts])


def levels(entries: Sequence[Entry], edges: Sequence[np.ndarray]) -> Examples:
    """`edges` of each column, or of all numbers."""
    rows = [np.frombuffer(entry.content) for entry in entries]
    if len(edges) > 1:
        ranks = [np.array([np.searchsorted(edge, x) for edge, x in zip(edges, row, strict=True)]) for row in rows]
    else:
        ranks = [np.searchsorted(edges[0], row) for row in rows]
    return of_sequences([row.astype(np.uint8) for row in ranks], [entry.value for entry in entries])


def number_of(value: Any, column: str, where: str) -> float:
    """Raises DataError unless a cell is a finite number, of at most LARGEST."""
    try:
        is_number = isinstance(value, (int, float)) or (isinstance(value, str) and "_" not in value)  # 1_000: Python's
        number = float(value) if is_number else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= LARGEST:
        shown = "empty" if value in (None, "") else f"{str(value)[:20]!r}, no finite number up to {LARGEST:g}"
        raise DataError(f"{where}: column '{column}' is {shown}", "remove the row; task.tokenizer=bytes reads texts")
    return number
