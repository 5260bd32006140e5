"""Noisy in-context recall (MAD, Poli et al., 2024, arXiv 2403.17844): what was the value of this key, among noise?

    facts    k1 v1 x x k2 v2 x x k1 v1 ...     pairs in random order; x from a vocabulary of noise
    queries  k2 k1 ...                         each key once

As in MAD's code, noise takes whole pairs of places, and vocabularies of keys, values and noise are separate.
Deviations: in MAD every repetition of a key is a query, and its answer is shown, so that later queries see more
examples. Here all facts come first and answers are never shown; the number of noise pairs is fixed and not drawn; every
key appears equally often, as far as possible.

    n examples, S places for a pair, K pairs
"""

from dataclasses import dataclass

import numpy as np

from tasks.checks import at_least
from tasks.probe.draws import Draws
from tasks.probe.probe import Probe, Sequences


@dataclass(kw_only=True, eq=False, repr=False)
class NoisyRecall(Probe):
    """`pairs` in `length` tokens, queries included.

    `noise`: share of the places for a pair that noise takes; None: every pair appears once, and noise takes the rest.
    `noise_vocabulary` of the `vocabulary` tokens are noise; of the others half are keys, half values.
    """

    name = "probe/noisy_recall"
    asks_for_keys = True

    length: int = 128
    pairs: int = 8
    vocabulary: int = 32
    noise_vocabulary: int = 16
    noise: float | None = 0.2

    def __post_init__(self) -> None:
        self.half = (self.vocabulary - self.noise_vocabulary) // 2
        at_least(1, pairs=self.pairs, noise_vocabulary=self.noise_vocabulary)
        if self.half < self.pairs:
            raise ValueError(f"vocabulary={self.vocabulary} has {self.half} keys, fewer than pairs={self.pairs}")
        if (self.length - self.pairs) % 2:
            raise ValueError(f"length={self.length} without pairs={self.pairs} queries is odd: facts come in twos")
        if self.noise is not None and not 0 <= self.noise < 1:
            raise ValueError(f"noise={self.noise} is not from 0 to 1")
        if self.filled(self.length) < self.pairs:
            raise ValueError(f"length={self.length} with noise={self.noise} has no room for pairs={self.pairs}")
        self.vocab_size = 2 * self.half + self.noise_vocabulary
        self.lengths = self.length - self.pairs, self.pairs
        self.answer_tokens = range(self.half, 2 * self.half)
        super().__post_init__()

    def slots(self, length: int) -> int:
        """Places for a pair in so many tokens."""
        return (length - self.pairs) // 2

    def filled(self, length: int) -> int:
        """The number of places that hold a pair."""
        slots = self.slots(length)
        return min(self.pairs, slots) if self.noise is None else slots - round(self.noise * slots)

    def sequences(self, draws: Draws, length: int | None = None) -> Sequences:
        """Examples of `length` tokens; None: of the task's own."""
        slots, filled = self.slots(length or self.length), self.filled(length or self.length)
        keys = draws.distinct(self.half, self.pairs)  # (n, K)
        values = self.half + draws.integers(self.half, self.pairs)
        which = np.full((len(draws), slots), self.pairs)  # the pair of each place; `pairs`: noise
        order = draws.orders(slots)
        np.put_along_axis(which, order[:, :filled], np.tile(np.arange(filled) % self.pairs, (len(draws), 1)), 1)
        noise = 2 * self.half + draws.integers(self.noise_vocabulary, 2 * slots).reshape(len(draws), slots, 2)
        pairs = np.stack([keys, values], 2)[np.arange(len(draws))[:, None], np.minimum(which, self.pairs - 1)]
        facts = np.where((which == self.pairs)[:, :, None], noise, pairs).reshape(len(draws), 2 * slots)
        asked = draws.orders(self.pairs)
        queries, answers = (np.take_along_axis(part, asked, 1) for part in (keys, values))
        return Sequences(facts, queries, answers)
