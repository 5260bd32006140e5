"""Multi-query associative recall, MQAR (Arora et al., 2023, Zoology, arXiv 2312.04927): what was the value of this key?

    facts    k1 v1 k2 v2 ... kK vK             different keys; values from a vocabulary of their own
    queries  k3 . . . k1 . k2 . ...            each key once; at the even place 2 g with probability ~ g^(power - 1)

The sizes of conf/task are those of Zoology's longest setting: 512 tokens, 64 pairs, 8,192 tokens of vocabulary. Its
code fills the places between queries with random tokens, `fill=random`; ours are blank by default, as in its equations.
Deviation: with `queries` there are more of them than pairs, and each key is asked for several times, so that a short
run has more to learn from; with fewer, keys that are drawn at random are asked for.

    n examples, K pairs
"""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from tasks.checks import at_least, one_of
from tasks.probe.draws import Draws
from tasks.probe.probe import BLANK, NO_ANSWER, Probe, Sequences

FILLS = ("blank", "random")
GRAIN = 1 << 16  # the largest weight of a place


@dataclass(kw_only=True, eq=False, repr=False)
class Recall(Probe):
    """`pairs` in `length` tokens, `queries` included. Half of `vocabulary` tokens are keys, half values.

    `queries` None: as many as pairs, each key once.
    """

    name = "probe/recall"
    asks_for_keys = True

    length: int = 512
    pairs: int = 64
    vocabulary: int = 8192
    queries: int | None = None
    power: float = 0.01
    fill: str = "blank"

    def __post_init__(self) -> None:
        self.half = self.vocabulary // 2
        at_least(1, pairs=self.pairs, queries=self.queries)
        one_of(FILLS, fill=self.fill)
        if self.power <= 0:
            raise ValueError(f"power={self.power} is not positive")
        if self.half - 1 < self.pairs:
            raise ValueError(f"vocabulary={self.vocabulary} has {self.half - 1} keys, fewer than pairs={self.pairs}")
        if self.length < 2 * (self.pairs + self.asked):
            problem = f"pairs={self.pairs} and queries={self.asked}"
            raise ValueError(f"length={self.length} has no room for {problem}: each takes 2 tokens")
        self.vocab_size = 2 * self.half
        self.lengths = 2 * self.pairs, self.length - 2 * self.pairs
        self.answer_tokens = range(self.half, 2 * self.half)
        super().__post_init__()

    @property
    def asked(self) -> int:
        """Queries that have an answer."""
        return self.queries or self.pairs

    def facts_in(self, tokens: Tensor) -> Tensor:
        return tokens[:, : self.lengths[0]]

    def sequences(self, draws: Draws, length: int | None = None) -> Sequences:
        """Examples of `length` tokens; None: of the task's own."""
        facts_length = self.lengths[0]
        length = (length or self.length) - facts_length
        keys = 1 + draws.distinct(self.half - 1, self.pairs)  # (n, K)
        values = self.half + draws.integers(self.half, self.pairs)
        facts = np.stack([keys, values], 2).reshape(len(draws), facts_length)
        law = np.arange(1, length // 2 + 1, dtype=float) ** (self.power - 1)
        places = 2 * draws.weighted(np.maximum(1, np.round(GRAIN * law)).astype(np.int64), self.asked)
        # every key equally often, as far as possible
        which = draws.orders(max(self.asked, self.pairs))[:, : self.asked] % self.pairs
        random = draws.integers(self.vocab_size, length)
        queries = random if self.fill == "random" else np.full_like(random, BLANK)
        answers = np.full_like(random, NO_ANSWER)
        np.put_along_axis(queries, places, np.take_along_axis(keys, which, 1), 1)
        np.put_along_axis(answers, places, np.take_along_axis(values, which, 1), 1)
        return Sequences(facts, queries, answers)
