"""The interface of a task: data in splits, a loss, metrics, and the predictors that a model has to beat.

The harness knows a task only through this interface. A task never sees the trainer, the record or the attention: it
gets a model (the backbone with the attention inside) and batches, and scores the model on the batches.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from torch import Tensor, nn
from torchmetrics import MetricCollection

from models.attention.base import Pattern
from tasks.checks import DataError, Progress

Batch = dict[str, Tensor]
SELF = frozenset({Pattern.CAUSAL_SELF, Pattern.NONCAUSAL_SELF})
# has the signature of a model: a model, or a baseline in its place
Predictor = Callable[..., Any]


class Split(Protocol):
    """Examples that are addressed by number, so that the harness chooses the order and a resumed run repeats it."""

    def __len__(self) -> int: ...

    def batch(self, indices: Sequence[int]) -> Batch: ...

    def checked(self, indices: Sequence[int]) -> np.ndarray:
        """The numbers of examples, int64. Raises IndexError for one that the split does not have."""
        index = np.asarray(indices, np.int64)
        if index.size and not 0 <= index.min() <= index.max() < len(self):
            raise IndexError(f"examples are numbered 0 to {len(self) - 1}, not {index.min()} to {index.max()}")
        return index

    def lengths(self) -> np.ndarray | None:
        """(n,) int: the tokens of each example, for batches that are cut by tokens. None: all have the same number."""
        return None


@dataclass(frozen=True)
class DataInfo:
    """Where the examples came from; goes into every record.

    `source` is `full` (the paper's data), `slice:<name>` (a part of it) or `synthetic` (generated data in its place, or
    the paper's generator with other settings). Only `full` may be compared with a paper's number.
    """

    source: str
    fingerprint: str  # sha256 of the examples, hexadecimal
    sizes: dict[str, int]  # examples in each split


@dataclass(frozen=True)
class FinalEvaluation:
    """A pass that is made once after `test`, with the chosen weights: other lengths, another corpus, decoding.

    `batch_size` None takes the recipe's; `metrics` and `score` None take the task's own. `baselines`, as those of the
    task, are scored in this pass as the model is. The name has no slash.

    `write`: the texts that a slow pass, such as a beam search, gives for a batch; `score` then takes them in place of
    the model. A pass that is killed continues after the last batch that was written.
    """

    name: str
    split: Split
    batch_size: int | None = None
    metrics: Callable[[], MetricCollection] | None = None
    score: Callable[[Any, Batch, MetricCollection], dict[str, Tensor]] | None = None
    baselines: Mapping[str, Callable[[], Predictor]] = field(default_factory=dict)
    write: Callable[[Predictor, Batch], list[str]] | None = None


class Task(ABC):
    """Data, loss and metrics of one experiment.

    `pattern` is the slot, one of `patterns`, that the attention under test fills; `metric` names the entry of
    `metrics()` that the tables print and checkpoints are selected by.

    Its yaml declares which keys hold paths and what the ranges of its scores are: `harness/config/declared.py`.
    """

    metric: ClassVar[str]
    higher_is_better: ClassVar[bool]
    loss_mean_over: ClassVar[str] = "examples"  # or "tokens": what `loss` is a mean over, if micro-batches differ
    baseline_name: ClassVar[str]  # the one of `baselines()` that is the chance level: majority_class, unigram, ...

    _splits: Mapping[str, Split] = {}
    patterns: ClassVar[Collection[Pattern]] = frozenset(Pattern)
    pattern: Pattern
    outputs_of: ClassVar[str] = "test"
    vocab_size: int | None = None  # token ids are 0, ..., vocab_size - 1; None: the examples hold no token ids

    def check_pattern(self) -> None:
        """Makes `pattern` a Pattern. Raises ValueError unless it is one of `patterns`."""
        self.pattern = Pattern(self.pattern)
        if self.pattern not in self.patterns:
            has = ", ".join(sorted(self.patterns))
            raise ValueError(f"pattern: {self.name} has no {self.pattern} form (it has: {has})")

    def check_source(self) -> None:
        """Raises DataError if a setting that only the user can give is missing, such as a path. Called before a run."""
        return

    @abstractmethod
    def prepare(self, progress: Progress) -> None:
        """Download or generate what is missing under the data folder. Raises DataError."""

    @abstractmethod
    def load(self) -> DataInfo:
        """Open the prepared data. Raises DataError, which names `do=prepare`, if the data are missing."""

    def check_is_prepared(self) -> None:
        """Raises DataError, which names `do=prepare`, if `load` would not find its data. Reads only manifests."""
        self.load()

    def split(self, name: str) -> Any:
        """`train`, `val` or `test` of the loaded data, a `Split`."""
        if not self._splits:
            raise RuntimeError(f"{self.name}: load() comes before split()")
        return self._splits[name]

    @abstractmethod
    def backbone_kwargs(self) -> dict[str, object]:
        """Keyword arguments of a backbone's constructor, known before any data are loaded."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Training loss, a scalar."""

    @abstractmethod
    def metrics(self) -> MetricCollection:
        """Fresh accumulators for one pass over a split."""

    @abstractmethod
    def score(self, model: Predictor, batch: Batch, metrics: MetricCollection) -> dict[str, Tensor]:
        """Add one batch to `metrics`; returns one or more scores of each example, (B,) each, for paired comparison.

        The names of scores have no slash. A score with the name of a metric averages to that metric, and a metric
        follows from `log_<metric>`, or from `<metric>_sum` and `<metric>_count` (`harness/records/evidence.py`); tables
        leave out a record where it does not. `model` needs to be callable, nothing else.
        """

    @abstractmethod
    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        """Simple predictors by name: `last_value`, `root_operator`. Each call fits a predictor.

        A predictor may be fitted to the loaded training split, within a minute. It is scored like a model, on the
        validation split and once on the test split. The predictor `baseline_name` ignores the input.

        `seen`: the number of training examples that a model draws, repeats included; None: all training data. A
        predictor that says what it was fitted to has the text `saw`: "1,228,800 bytes". A call that cannot fit raises
        ValueError or ImportError with the reason in one line.

        The suffix `_all` (`6gram_all`): fitted to all training data, also where a model draws less. Such a predictor is
        never the strongest of its column; a page opens with it only where a row beats the strongest of the others.
        """

    @abstractmethod
    def tokens(self, batch: Batch) -> int:
        """Tokens in a batch, without padding."""

    def with_common_length(self, batch: Batch) -> Batch:
        """The batch with more padding, so that batches have few lengths: `resources.compile` makes a graph for each."""
        return batch

    def encode(self, inputs: Sequence[Any]) -> Tensor:
        """What a model reads of a user's inputs, such as texts: tokens (B, N). Raises DataError."""
        raise DataError(f"{type(self).__name__} reads no inputs of a user")

    def continued(self, model: nn.Module, prompt: str, tokens: int, draws: Mapping[str, Any] | None, seed: int) -> str:
        """A text and its continuation by so many tokens: the most probable ones, or random ones by `sample(**draws)`.

        Raises DataError for a task without such texts, ValueError for settings that cannot be.
        """
        raise DataError(f"{type(self).__name__} continues no texts")

    def describe(self, outputs: Tensor) -> list[dict[str, Any]]:
        """A model's outputs (B, ...) in the task's words, one mapping per input. Raises DataError."""
        raise DataError(f"{type(self).__name__} describes no outputs")

    def final_evaluations(self) -> Sequence[FinalEvaluation]:
        """Further passes over the loaded data, made once after the test."""
        return ()

    def outputs(self, model: nn.Module, indices: Sequence[int]) -> dict[str, Sequence[Any]]:
        """What a model gives for examples of `self.split(self.outputs_of)`, beside what it read and what is true.

        Columns of one length; `example` has the number of each row's example. Values are numbers, texts, or bytes of a
        file, whose column ends with the file's type: `predicted.ply`. Raises DataError for a task without outputs.
        """
        raise DataError(f"{type(self).__name__} gives only scores; longhaul.predictions returns those of each example")

    def artifacts(self, model: nn.Module) -> dict[str, object]:
        """Small files to keep with the record, by the end of their name: what the model does on a few test examples.

        A value is a Figure (made without pyplot) for "png", a str for "....txt", or bytes. Called once after the test,
        in evaluation mode and without gradients. No number may depend on it.
        """
        return {}
