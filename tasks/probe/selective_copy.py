"""Selective copying (MAD, Poli et al., 2024, arXiv 2403.17844; Gu and Dao, 2023): repeat the tokens among blanks.

    facts    . a . . b . . . c .       `copies` tokens at random places, in order
    queries  copy . . .                answers: -, a, b, c

As in MAD's code a sequence has `length` tokens, and the vocabulary has a blank and the copy token besides the copied
tokens. Deviation: MAD's code puts no blank after the last token; here all positions are equally likely.

    n examples, m copies
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from tasks.base import Predictor
from tasks.checks import at_least
from tasks.probe.draws import Draws
from tasks.probe.predictors import nearest_to_mean_place
from tasks.probe.probe import BLANK, NO_ANSWER, Probe, Sequences


@dataclass(kw_only=True, eq=False, repr=False)
class SelectiveCopy(Probe):
    """`copies` tokens in `length` tokens, queries included; `vocabulary` - 2 different ones."""

    name = "probe/selective_copy"

    length: int = 256
    copies: int = 16
    vocabulary: int = 16

    def __post_init__(self) -> None:
        at_least(1, copies=self.copies)
        at_least(4, vocabulary=self.vocabulary)
        if self.length < 2 * self.copies + 1:
            raise ValueError(f"length={self.length} has no room for copies={self.copies}: each takes 2 tokens, and one")
        self.vocab_size = self.vocabulary
        self.lengths = self.length - self.copies - 1, self.copies + 1
        self.answer_tokens = range(1, self.vocabulary - 1)
        super().__post_init__()

    def sequences(self, draws: Draws) -> Sequences:
        count, asked = self.lengths
        tokens = 1 + draws.integers(len(self.answer_tokens), self.copies)  # (n, m)
        places = np.sort(draws.orders(count)[:, : self.copies], axis=1)
        facts, queries = np.full((len(draws), count), BLANK), np.full((len(draws), asked), BLANK)
        np.put_along_axis(facts, places, tokens, 1)
        queries[:, 0] = self.vocabulary - 1
        answers = np.hstack([np.full((len(draws), 1), NO_ANSWER), tokens])
        return Sequences(facts, queries, answers)

    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        return {**super().baselines(seen), "nearest_to_mean_place": partial(self.from_facts, self._nearest)}

    def _nearest(self, facts: Tensor, values: range) -> Tensor:
        """(B, Q): nothing is asked at the copy token."""
        return F.pad(nearest_to_mean_place(facts, values, self.copies), (1, 0))
