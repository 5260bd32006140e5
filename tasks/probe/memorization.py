"""Memorisation (MAD, Poli et al., 2024, arXiv 2403.17844): the value of a key, by a dictionary in the weights.

    queries  k1 ? k2 ? ...     answers at `?`: the value of the key before it

One dictionary serves all splits; it follows from `data_seed`. No fact is in the sequence, and the answer is asked for
one token after its key: mixing spans one step, and the rest is in the weights. There is no cross form. A table of the
values that training shows behind each key is the solution, so none stands beside the models.

    n examples, h keys
"""

from dataclasses import dataclass

import numpy as np

from tasks.base import SELF
from tasks.checks import at_least
from tasks.probe.draws import Draws
from tasks.probe.probe import NO_ANSWER, Probe, Sequences

DICTIONARY = 1 << 32  # stream of the dictionary, separate from the splits' streams


@dataclass(kw_only=True, eq=False, repr=False)
class Memorization(Probe):
    """`length` tokens, half of them keys. One of `vocabulary` tokens is `?`; half of the rest are keys, half values."""

    name = "probe/memorization"
    counts_values = False
    patterns = SELF
    has_state = False  # it keeps no facts

    length: int = 32
    vocabulary: int = 256

    def __post_init__(self) -> None:
        self.half = (self.vocabulary - 1) // 2
        at_least(2, length=self.length)
        at_least(5, vocabulary=self.vocabulary)
        if self.length % 2:
            raise ValueError(f"length={self.length} is odd: keys and queries take turns")
        self.vocab_size = 2 * self.half + 1
        self.lengths = 0, self.length
        self.answer_tokens = range(self.half, 2 * self.half)
        super().__post_init__()

    @property
    def values(self) -> np.ndarray:
        """int64 (h,): the value of each key."""
        return self.half + Draws(self.data_seed, DICTIONARY, [0]).orders(self.half)[0]

    def sequences(self, draws: Draws) -> Sequences:
        keys = draws.integers(self.half, self.length // 2)
        queries = np.full((len(draws), self.length), 2 * self.half)
        queries[:, ::2] = keys
        answers = np.full((len(draws), self.length), NO_ANSWER)
        answers[:, 1::2] = self.values[keys]
        return Sequences(np.empty((len(draws), 0), np.int64), queries, answers)
