"""Probes that are scored on sequences longer than those of training: at multiples of their length.

A longer example has no more facts and no more queries. The distance between them grows, so that a method that is
independent of length loses nothing. A model whose positions or weights end at the length of training cannot be scored
further: these evaluations are `unsupported`.

A longer evaluation has fewer examples, so that it reads about as many tokens as the test, but never fewer than LEAST.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tasks.base import FinalEvaluation
from tasks.checks import at_least
from tasks.probe.draws import Draws
from tasks.probe.probe import Probe, Sequences

LEAST = 8  # examples of an evaluation
BATCH_TOKENS = 1 << 16  # of a batch of an evaluation: the activations of longer ones would not fit a small memory


def factor_of(evaluation: str) -> int | None:
    """The multiple of the length that an evaluation such as `factor_8` scores; None for any other."""
    name, _, factor = evaluation.rpartition("_")
    return int(factor) if name == "factor" else None


@dataclass(kw_only=True, eq=False, repr=False)
class Multiples(Probe):
    """`factors`: after the test, sequences of `length` times each factor are scored. Stands before another probe, whose
    `sequences` take a `length`."""

    factors: Sequence[int] = (4, 16)

    def __post_init__(self) -> None:
        at_least(2, **{f"factors[{i}]": factor for i, factor in enumerate(self.factors)})
        super().__post_init__()

    def variants(self) -> dict[str, Callable[[Draws], Sequences]]:
        return {f"factor_{factor}": partial(self.sequences, length=factor * self.length) for factor in self.factors}

    def examples_of(self, variant: str) -> int:
        return max(min(LEAST, self.test), self.test // factor_of(variant))

    def final_evaluations(self) -> Sequence[FinalEvaluation]:
        return [
            replace(final, batch_size=max(1, BATCH_TOKENS // (factor * self.length)))
            if (factor := factor_of(final.name))
            else final
            for final in super().final_evaluations()
        ]
