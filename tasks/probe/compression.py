"""Compression (MAD, Poli et al., 2024, arXiv 2403.17844): all tokens from the state of the last one.

    facts    a b c d ...     random tokens
    query    compress        answers: a, b, c, d, ... only from its state and the position of the answer

The backbone is models/backbones/autoencoder.py: a small network reads the state of the last token plus a vector per
position. Sizes and vocabulary are MAD's. Deviation: MAD also scores the compress token, which is always the same.

    n examples, N tokens
"""

from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from tasks.base import SELF, Batch
from tasks.checks import at_least
from tasks.probe.draws import Draws
from tasks.probe.probe import Probe, Sequences


@dataclass(kw_only=True, eq=False, repr=False)
class Compression(Probe):
    """`length` tokens, the compress token included; `vocabulary` - 1 different ones beside it."""

    name = "probe/compression"
    patterns = SELF
    has_state = False  # a single token is read

    length: int = 32
    vocabulary: int = 16

    def __post_init__(self) -> None:
        at_least(2, length=self.length)
        at_least(3, vocabulary=self.vocabulary)
        self.vocab_size = self.vocabulary
        self.lengths = self.length - 1, 1
        self.answer_tokens = range(self.vocabulary - 1)
        super().__post_init__()

    def sequences(self, draws: Draws) -> Sequences:
        facts = draws.integers(len(self.answer_tokens), self.length - 1)
        return Sequences(facts, np.full((len(draws), 1), self.vocabulary - 1), facts)

    def answer_logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """(B, N - 1, V): at the places of the facts."""
        return model(batch["tokens"])[:, :-1]
