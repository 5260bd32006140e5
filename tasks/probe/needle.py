"""Needle: one fact at a distance, the passkey of Mohtashami and Jaggi (2023, arXiv 2305.16300) without its words.

    facts    x x x mark v x x x x x x     x from a vocabulary of noise
    query    mark                         answer: v

In training and test the fact stands anywhere; final evaluations put its value `distances` tokens before the query. The
values have a vocabulary of their own, so that no binding is needed: the task measures how far a method sees. Its facts
hold a single value, so a predictor that counts values is the solution, and none stands beside the models.

    n examples, N tokens
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tasks.checks import at_least
from tasks.probe.draws import Draws
from tasks.probe.probe import Probe, Sequences


@dataclass(kw_only=True, eq=False, repr=False)
class Needle(Probe):
    """`length` tokens, the query included; `values` different values and `noise_vocabulary` tokens of noise.

    A value is 1 to `length` - 2 tokens before the query.
    """

    name = "probe/needle"
    counts_values = False

    length: int = 1024
    values: int = 16
    noise_vocabulary: int = 16
    distances: Sequence[int] = (1, 4, 16, 64, 256, 1022)

    def __post_init__(self) -> None:
        at_least(3, length=self.length)
        at_least(2, values=self.values)
        at_least(1, noise_vocabulary=self.noise_vocabulary)
        for distance in self.distances:
            if not 1 <= distance <= self.length - 2:
                raise ValueError(f"distances={distance} is not from 1 to {self.length - 2}, length={self.length} - 2")
        self.vocab_size = 1 + self.values + self.noise_vocabulary
        self.lengths = self.length - 1, 1
        self.answer_tokens = range(1, 1 + self.values)
        super().__post_init__()

    def sequences(self, draws: Draws, distance: int | None = None, length: int | None = None) -> Sequences:
        """`distance` None: any. `length` None: the task's own."""
        length = length or self.length
        count, rows = length - 1, np.arange(len(draws))
        facts = 1 + self.values + draws.integers(self.noise_vocabulary, count)
        value, back = 1 + draws.integers(self.values, 1), 1 + draws.integers(length - 2, 1)[:, 0]
        position = count - (back if distance is None else distance)
        facts[rows, position - 1], facts[rows, position] = 0, value[:, 0]
        return Sequences(facts, np.zeros_like(value), value)

    def variants(self) -> dict[str, Callable[[Draws], Sequences]]:
        return {f"distance_{distance}": partial(self.sequences, distance=distance) for distance in self.distances}
