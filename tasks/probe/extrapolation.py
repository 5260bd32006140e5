"""Recall in sequences longer than those of training: trained at N tokens, scored at N and at multiples of it.

The facts are those of `probe/noisy_recall` with every pair once; more tokens mean more noise between the pairs and the
queries, and no new pair, so that a method that is independent of length loses nothing. A model whose positions or
weights end at N cannot be scored further: its evaluations are `unsupported`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tasks.checks import at_least
from tasks.probe.draws import Draws
from tasks.probe.noisy_recall import NoisyRecall
from tasks.probe.probe import Sequences


@dataclass(kw_only=True, eq=False, repr=False)
class Extrapolation(NoisyRecall):
    """`factors`: after the test, sequences of `length` times each factor are scored."""

    name = "probe/extrapolation"

    noise: float | None = None
    factors: Sequence[int] = (2, 4, 8, 16)

    def __post_init__(self) -> None:
        at_least(2, **{f"factors[{i}]": factor for i, factor in enumerate(self.factors)})
        super().__post_init__()
        if self.length % 2 and any(factor % 2 == 0 for factor in self.factors):
            raise ValueError(f"length={self.length} is odd, so are not its multiples: facts come in twos")

    def variants(self) -> dict[str, Callable[[Draws], Sequences]]:
        return {f"factor_{factor}": partial(self.sequences, length=factor * self.length) for factor in self.factors}
