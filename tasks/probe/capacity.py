"""Capacity: the recall of `probe/recall`, trained on a mixture of few and many pairs and scored at each number of them.

    facts    k1 v1 k2 v2 ... kK vK         K is drawn for each example
    queries  . k3 . . . k1 . k2 . ...      as many in every example, so that all numbers of pairs weigh the same

A state of fixed size holds so many pairs and no more: the number of pairs at which accuracy falls is the capacity. The
mixture is that of Based's Figure 2 (Arora et al., 2024, arXiv 2402.18668). Deviations: all examples have one length, so
that pairs are the only difference between the evaluations; an evaluation may have more pairs than any training example.

    n examples, N tokens, K pairs
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from torch import Tensor

from tasks.base import SELF
from tasks.probe.draws import Draws
from tasks.probe.probe import NO_ANSWER, Probe, Sequences
from tasks.probe.recall import Recall


@dataclass(kw_only=True, eq=False, repr=False)
class Capacity(Probe):
    """`pairs`: the numbers of pairs in training, validation and test, equally likely; `scored`: those of the
    evaluations `pairs_<K>`. The other settings are those of `Recall`. Raises ValueError for pairs that do not fit.
    """

    name = "probe/capacity"
    patterns = SELF
    asks_for_keys = True

    length: int = 256
    pairs: Sequence[int] = (4, 8, 16, 32, 64)
    scored: Sequence[int] = (4, 8, 16, 32, 64)
    vocabulary: int = 8192
    queries: int | None = None
    power: float = 0.01

    def __post_init__(self) -> None:
        if not self.pairs:
            raise ValueError("pairs has no number")
        recall = partial(
            Recall, length=self.length, vocabulary=self.vocabulary, queries=self.queries, power=self.power,
            train=self.train, val=self.val, test=self.test,
        )  # fmt: skip
        self._recall = {count: recall(pairs=count) for count in {*self.pairs, *self.scored}}
        one = self._recall[self.pairs[0]]
        self.lengths, self.vocab_size, self.answer_tokens = (0, self.length), one.vocab_size, one.answer_tokens
        super().__post_init__()

    def facts_in(self, tokens: Tensor) -> Tensor:
        """All tokens: there is no value among the queries."""
        return tokens

    def variants(self) -> dict[str, Callable[[Draws], Sequences]]:
        return {f"pairs_{count}": partial(self.of, count) for count in self.scored}

    def of(self, count: int, draws: Draws) -> Sequences:
        """Examples of `count` pairs. They end at different places, so that facts and queries are one sequence."""
        facts, queries, answers = self._recall[count].sequences(draws)
        unasked = np.full_like(facts, NO_ANSWER)
        return Sequences(facts[:, :0], np.hstack([facts, queries]), np.hstack([unasked, answers]))

    def sequences(self, draws: Draws) -> Sequences:
        which = draws.integers(len(self.pairs), 1)[:, 0]
        queries, answers = np.empty((2, len(draws), self.length), np.int64)
        for place, count in enumerate(self.pairs):
            rows = which == place
            _, queries[rows], answers[rows] = self.of(count, draws.at(rows))
        return Sequences(queries[:, :0], queries, answers)
