"""Recall in sequences longer than those of training: trained at N tokens, scored at N and at multiples of it.

The facts are those of `probe/noisy_recall` with every pair once; more tokens mean more noise between the pairs and the
queries, and no new pair, so that a method that is independent of length loses nothing. A model whose positions or
weights end at N cannot be scored further: its evaluations are `unsupported`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.probe.multiples import Multiples
from tasks.probe.noisy_recall import NoisyRecall


@dataclass(kw_only=True, eq=False, repr=False)
class Extrapolation(Multiples, NoisyRecall):
    """Every evaluation has as many examples as the test."""

    name = "probe/extrapolation"

    noise: float | None = None
    factors: Sequence[int] = (2, 4, 8, 16)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length % 2 and any(factor % 2 == 0 for factor in self.factors):
            raise ValueError(f"length={self.length} is odd, so are not its multiples: facts come in twos")

    def examples_of(self, variant: str) -> int:
        return self.test
