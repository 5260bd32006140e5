"""The base of all probes: examples generated when they are read, and the loss and the score of the answers.

An example is a sequence of facts and a sequence of queries; some queries have an answer, a token. The probe's file
defines both. Every pattern asks the same questions of the same examples:

    causal_self      one sequence, facts then queries, read by a decoder; the answer is predicted at its query
    noncausal_self   the same, read by an encoder with an output for each position
    causal_cross     facts are the source and queries the target of an encoder-decoder; attention under test is `cross`

An answer is never a part of the input, so that it follows from facts and queries alone, in every pattern. Nothing is
cached: an example is a function of `data_seed`, its split and its number. `acc` is the percentage of an example's
answers that are right, averaged over examples. Chance is one over the number of possible answers. Predictors that count
values without their keys (`tasks.probe.predictors`) stand beside the models, except where counting is the solution.

    n examples, B batch, F facts, Q queries, N = F + Q, V vocabulary
"""

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MetricCollection

from models.attention.base import Pattern
from models.generation.state import numbers_kept
from tasks.base import SELF, Batch, DataInfo, FinalEvaluation, Predictor, Split, Task
from tasks.checks import DataError, Progress, at_least
from tasks.data_task import SPLITS, SYNTHETIC
from tasks.metrics import means
from tasks.probe.draws import Draws
from tasks.probe.predictors import COUNTING, MOST, PIECE, Choice, QueryTable, log_shares, value_counts

BLANK = 0  # the token of an empty position
NO_ANSWER = -100  # at a query that is not scored
HASHED = 1000  # training examples in the fingerprint, and in the search for the most frequent answer
STATE = "decoding_state"  # the evaluation of how much a decoder keeps


class Sequences(NamedTuple):
    """Examples: int64 each."""

    facts: np.ndarray  # (n, F)
    queries: np.ndarray  # (n, Q)
    answers: np.ndarray  # (n, Q), NO_ANSWER where there is no question


class GeneratedSplit(Split):
    """`batch(indices)` generates {"tokens": (B, F + Q), "answers": (B, Q)}, int64."""

    def __init__(self, make: Callable[[Draws], Sequences], seed: int, stream: int, count: int):
        self.make, self.seed, self.stream, self.count = make, seed, stream, count

    def __len__(self) -> int:
        return self.count

    def sequences(self, indices: Sequence[int]) -> Sequences:
        index = self.checked(indices)
        return self.make(Draws(self.seed, self.stream, index))

    def batch(self, indices: Sequence[int]) -> Batch:
        facts, queries, answers = self.sequences(indices)
        return {"tokens": torch.from_numpy(np.hstack([facts, queries])), "answers": torch.from_numpy(answers)}


@dataclass(kw_only=True, eq=False, repr=False)
class Probe(Task):
    """Base of the probes. Subclasses give the class variables and `sequences`, and set `lengths`, `answer_tokens` and
    `vocab_size` before they call `super().__post_init__()`.

    `train`, `val` and `test` are numbers of examples. `data_root` is not used: no file is kept. Raises ValueError.
    """

    metric = "acc"
    higher_is_better = True
    baseline_name = "majority_answer"

    name: ClassVar[str]
    version: ClassVar[int] = 1  # raised when the same settings give other examples
    patterns: ClassVar[Collection[Pattern]] = SELF | {Pattern.CAUSAL_CROSS}
    has_state: ClassVar[bool] = True  # whether its decoder has a state that keeps facts
    counts_values: ClassVar[bool] = True  # whether predictors that count values stand beside the models
    asks_for_keys: ClassVar[bool] = False  # whether its queries are keys, so that a table of them is a predictor

    pattern: Pattern | str = Pattern.CAUSAL_SELF
    data_root: str | Path | None = None
    data_seed: int = 0
    train: int
    val: int
    test: int

    lengths: tuple[int, int] = field(init=False)  # facts F and queries Q of an example
    answer_tokens: range = field(init=False)  # the tokens that may answer a query, called values

    def __post_init__(self) -> None:
        self.check_pattern()
        at_least(0, data_seed=self.data_seed)
        at_least(1, train=self.train, val=self.val, test=self.test)
        self._splits: dict[str, GeneratedSplit] = {}

    @abstractmethod
    def sequences(self, draws: Draws) -> Sequences:
        """One example per draw."""

    @property
    def chance(self) -> float:
        """Accuracy in percent of a guess among the values."""
        return 100 / len(self.answer_tokens)

    def variants(self) -> dict[str, Callable[[Draws], Sequences]]:
        """Generators of other examples that are scored once after the test, by the name of their evaluation."""
        return {}

    def examples_of(self, variant: str) -> int:
        """The number of examples of such an evaluation."""
        return self.test

    def prepare(self, progress: Progress) -> None:
        """There is nothing to prepare."""

    def load(self) -> DataInfo:
        made = {name: (self.sequences, getattr(self, name)) for name in SPLITS}
        made |= {name: (make, self.examples_of(name)) for name, make in self.variants().items()}
        if self.has_state and self.pattern is not Pattern.NONCAUSAL_SELF:
            made[STATE] = (self.sequences, 1)
        streams = enumerate(made.items())  # of random numbers, one for each split
        self._splits = {
            name: GeneratedSplit(make, self.data_seed, stream, count) for stream, (name, (make, count)) in streams
        }
        sizes = {name: len(split) for name, split in self._splits.items()}
        return DataInfo(SYNTHETIC, self._fingerprint(), sizes)

    def check_is_prepared(self) -> None:
        return

    def backbone_kwargs(self) -> dict[str, object]:
        facts, queries = self.lengths
        if self.pattern.cross:
            lengths = {"max_source_length": facts, "max_length": queries, "padding_id": None}
        else:
            lengths = {"max_length": facts + queries}
        return {"vocab_size": self.vocab_size, "pattern": self.pattern, **lengths}

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        logits, answers = self.answer_logits(model, batch), batch["answers"]
        return F.cross_entropy(logits.flatten(0, 1).float(), answers.flatten(), ignore_index=NO_ANSWER)

    def metrics(self) -> MetricCollection:
        return means("acc", "loss")

    def score(self, model: Predictor, batch: Batch, metrics: MetricCollection) -> dict[str, Tensor]:
        logits, answers = self.answer_logits(model, batch).detach().float(), batch["answers"]
        asked = answers != NO_ANSWER  # (B, Q)
        loss = F.cross_entropy(logits.transpose(1, 2), answers, ignore_index=NO_ANSWER, reduction="none")
        right = (logits.argmax(2) == answers) & asked
        scores = {"acc": 100.0 * right.sum(1) / asked.sum(1), "loss": loss.sum(1) / asked.sum(1)}
        metrics.update(**scores)
        return scores

    def answer_logits(self, model: Predictor, batch: Batch) -> Tensor:
        """(B, Q, V) at the queries. Raises ValueError for a model without outputs at all of them."""
        tokens, queries = batch["tokens"], batch["answers"].shape[1]
        if self.pattern.cross:
            return model(tokens[:, :-queries], tokens[:, -queries:])
        logits = model(tokens)
        if logits.shape[1] < queries:
            raise ValueError(f"the model has outputs for {logits.shape[1]} tokens, but {queries} are queries")
        return logits[:, -queries:]

    def encode(self, inputs: Sequence[Any]) -> Tensor:
        """Numbers of tokens, in a text (`3 40 5 41 3`) or a list, equally many in each input."""
        if self.pattern.cross:
            raise DataError(f"pattern={self.pattern} reads facts and queries apart: call the model with both")
        rows = []
        for entry in inputs:
            words = entry.split() if isinstance(entry, str) else entry
            try:
                row = [int(word) for word in words]
            except (TypeError, ValueError):
                raise DataError(f"{str(entry)[:20]!r}: numbers of tokens are expected, such as '3 40 5 41 3'") from None
            if not row or not 0 <= min(row) <= max(row) < self.vocab_size:
                raise DataError(f"{str(entry)[:20]!r}: tokens are numbered 0 to {self.vocab_size - 1}")
            if len(row) > sum(self.lengths):
                raise DataError(f"{len(row)} tokens, but the model reads {sum(self.lengths)} at most")
            rows.append(row)
        if len({len(row) for row in rows}) != 1:
            raise DataError("inputs of different numbers of tokens: give one at a time")
        return torch.tensor(rows)

    def describe(self, outputs: Tensor) -> list[dict[str, Any]]:
        """`token`: the most probable answer to the last token, and its `probability`."""
        best = outputs[:, -1].detach().float().softmax(-1).max(-1)
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [{"token": token, "probability": share} for token, share in pairs]

    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        predictors = {"majority_answer": self._answer_by_share}
        if self.counts_values:
            predictors["most_frequent_value"] = lambda: self._from_counts
            predictors |= {name: partial(self.from_facts, choose) for name, choose in COUNTING.items()}
        if self.asks_for_keys:
            predictors["answer_of_query"] = lambda: self._query_table(seen)
        return predictors

    def _answer_by_share(self) -> Predictor:
        """The shares of the answers of the first training examples, each possible answer counted once more."""
        counts = torch.from_numpy(self._answer_counts)
        counts[self.answer_tokens.start : self.answer_tokens.stop] += 1
        logits = log_shares(counts, self.vocab_size)
        return lambda *sequences: logits.to(sequences[-1].device).expand(*sequences[-1].shape, -1)

    def from_facts(self, choose: Choice) -> Predictor:
        """A predictor that chooses answers by the facts alone."""

        def predict(*sequences: Tensor) -> Tensor:
            facts = sequences[0] if self.pattern.cross else self.facts_in(sequences[0])
            answers = choose(facts, self.answer_tokens)
            answers = answers if answers.dim() == 2 else answers[:, None].expand(sequences[-1].shape)
            return F.one_hot(answers, self.vocab_size).float()

        return predict

    def _from_counts(self, *sequences: Tensor) -> Tensor:
        facts = sequences[0] if self.pattern.cross else self.facts_in(sequences[0])
        logits = log_shares(value_counts(facts, self.answer_tokens), self.vocab_size)
        return logits[:, None].expand(*sequences[-1].shape, -1)

    def facts_in(self, tokens: Tensor) -> Tensor:
        """The facts (B, F) of sequences of any length (B, N)."""
        return tokens[:, : -self.lengths[1]]

    def _query_table(self, seen: int | None, key: Callable[[Tensor], Tensor] | None = None) -> QueryTable:
        split = self.split("train")
        count = min(len(split), MOST, seen or MOST)
        pieces = (split.sequences(range(start, min(start + PIECE, count))) for start in range(0, count, PIECE))
        examples = ((queries, answers) for _, queries, answers in pieces)
        return QueryTable(examples, self.vocab_size, self.majority_answer, key)

    @property
    def majority_answer(self) -> int:
        """The most frequent answer of the first training examples."""
        return int(self._answer_counts.argmax())

    @property
    def _answer_counts(self) -> np.ndarray:
        """(V,): of the first training examples."""
        answers = self._first(self.split("train")).answers
        return np.bincount(answers[answers != NO_ANSWER], minlength=self.vocab_size)

    def tokens(self, batch: Batch) -> int:
        return batch["tokens"].numel()

    def final_evaluations(self) -> Sequence[FinalEvaluation]:
        how = {STATE: {"metrics": partial(means, "numbers"), "score": self.score_state}}
        names = (name for name in self._splits if name not in SPLITS)
        return [FinalEvaluation(name, self.split(name), **how.get(name, {})) for name in names]

    def score_state(self, model: nn.Module, batch: Batch, metrics: MetricCollection) -> dict[str, Tensor]:
        """The size of the state that the model decodes from, in numbers. Raises ValueError if it cannot decode."""
        tokens, queries = batch["tokens"], batch["answers"].shape[1]
        try:
            state = model.init_state(tokens[:, :-queries]) if self.pattern.cross else model.prefill(tokens)[1]
        except NotImplementedError as error:
            raise ValueError(str(error)) from error
        numbers = numbers_kept(state)
        scores = {"numbers": tokens.new_tensor([numbers / len(tokens)] * len(tokens), dtype=torch.float64)}
        metrics.update(**scores)
        return scores

    def settings(self) -> dict[str, Any]:
        """The settings that determine the examples."""
        values = {setting.name: getattr(self, setting.name) for setting in fields(self) if setting.init}
        chosen = sorted(values.keys() - {"data_root", "pattern"})
        return {"version": self.version, **{key: values[key] for key in chosen}}

    def _first(self, split: GeneratedSplit) -> Sequences:
        return split.sequences(range(min(len(split), HASHED)))

    def _fingerprint(self) -> str:
        """sha256 of the settings and of each split, where only the first training examples count."""
        digest = hashlib.sha256(json.dumps(self.settings(), sort_keys=True).encode())
        for name, split in self._splits.items():
            sequences = self._first(split) if name == "train" else split.sequences(range(len(split)))
            for part in sequences:
                digest.update(np.ascontiguousarray(part, "<i8"))
        return digest.hexdigest()
