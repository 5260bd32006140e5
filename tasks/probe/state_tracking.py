"""State tracking: the running product in a group (Liu et al., 2023; Merrill et al., 2024; Grazzi et al., 2024).

    queries  x1  x2     x3       ...    elements of the group, drawn at random
    answers  x1  x1 x2  x1 x2 x3 ...    their product so far, at each place

    parity   0 and 1 under addition: is the number of ones odd?
    s3       the 6 permutations of 3, which do not commute; solvable
    a5       the 60 even permutations of 5, the smallest group that is not solvable

arXiv 2210.10749, 2404.08819 and 2411.12537. A model of fixed depth whose state transitions are diagonal, or have no
negative eigenvalue, keeps no such product at every length. All products are equally likely, whatever the last elements
are, so that a guess by the last k elements is right at the first k places only. Trained at `length` and scored there
and at multiples of it. `acc` is the share of right places, `whole` that of sequences without a wrong place. No test
example occurs in training, but for parity by chance: of 2^32 sequences of 32 places, 0.02 of 1,000 and 100,000.

    n examples, N tokens, G elements of the group
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import permutations

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from models.attention.base import Pattern
from tasks.base import Batch, Predictor
from tasks.checks import at_least, one_of
from tasks.metrics import means
from tasks.probe.draws import Draws
from tasks.probe.multiples import Multiples
from tasks.probe.probe import Probe, Sequences

LAST = (1, 2, 3)  # elements that the tables of the last ones read


def is_even(order: tuple[int, ...]) -> bool:
    """Whether a permutation has an even number of pairs in the wrong order."""
    return sum(left > right for i, left in enumerate(order) for right in order[i + 1 :]) % 2 == 0


# the elements of each group as permutations, in the order of their tokens
GROUPS = {
    "parity": list(permutations(range(2))),
    "s3": list(permutations(range(3))),
    "a5": [order for order in permutations(range(5)) if is_even(order)],
}


def product_table(elements: list[tuple[int, ...]]) -> np.ndarray:
    """int64 (G, G): the number of the product of elements p and q, which applies q first."""
    numbers = {element: number for number, element in enumerate(elements)}
    return np.array([[numbers[tuple(p[i] for i in q)] for q in elements] for p in elements])


@dataclass(kw_only=True, eq=False, repr=False)
class StateTracking(Multiples, Probe):
    """`length` elements of `group`: parity | s3 | a5."""

    name = "probe/state_tracking"
    patterns = frozenset({Pattern.CAUSAL_SELF})
    counts_values = False

    group: str = "s3"
    length: int = 32

    def __post_init__(self) -> None:
        one_of(GROUPS, group=self.group)
        at_least(1, length=self.length)
        self.table = product_table(GROUPS[self.group])
        self.lengths, self.vocab_size, self.answer_tokens = (0, self.length), len(self.table), range(len(self.table))
        super().__post_init__()

    def sequences(self, draws: Draws, length: int | None = None) -> Sequences:
        elements = draws.integers(len(self.table), length or self.length)  # (n, N)
        products = elements.copy()
        for place in range(1, elements.shape[1]):
            products[:, place] = self.table[products[:, place - 1], elements[:, place]]
        return Sequences(elements[:, :0], elements, products)

    def metrics(self) -> MetricCollection:
        return means("acc", "whole", "loss")

    def score(self, model: nn.Module, batch: Batch, metrics: MetricCollection) -> dict[str, Tensor]:
        scores = super().score(model, batch, means("acc"))
        scores["whole"] = 100.0 * (scores["acc"] == 100).to(scores["acc"].dtype)
        metrics.update(**scores)
        return scores

    def baselines(self, seen: int | None = None) -> Mapping[str, Callable[[], Predictor]]:
        """The product of the last k elements, as training shows it: right at the first k places."""
        tables = {
            f"last_{count}_elements": partial(self._query_table, seen, partial(self._last, count)) for count in LAST
        }
        return super().baselines(seen) | tables

    def _last(self, count: int, tokens: Tensor) -> Tensor:
        """(B, N): the last `count` elements at each place as one number; fewer at the first places."""
        keys = torch.zeros_like(tokens)
        for back in range(count):
            earlier = torch.nn.functional.pad(tokens + 1, (back, 0))[:, : tokens.shape[1]]
            keys = keys * (self.vocab_size + 1) + earlier
        return keys
