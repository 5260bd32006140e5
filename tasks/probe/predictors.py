"""Simple predictors of the probes: what counting tells without binding a value to its key.

    most_frequent_value     the value that stands most often among the facts; of several, the smallest id. The logits
                            are those of the frequencies, so that the loss is the least one without keys
    first_value             the value that stands first among the facts
    last_value              the value that stands last among the facts
    nearest_to_mean_place   answer j of m: the value nearest to the mean place of the j-th of m values in random places
    QueryTable              the answer that the query's token has most often in training (`answer_of_query`)

A value is a token that may answer a query. The value behind the last occurrence of a key is no simple predictor: it is
the definition of recall.

    B examples, F facts, Q queries, N tokens, V vocabulary
"""

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

PIECE = 1000  # examples read at once
UNSEEN = 1e-9  # of a count
MOST = 50_000  # examples of a fit, which then takes seconds

# facts (B, F) and the tokens that may be an answer -> a token for all queries of an example (B,), or for each (B, Q)
Choice = Callable[[Tensor, range], Tensor]


def is_value(facts: Tensor, values: range) -> Tensor:
    """bool (B, F)"""
    return (facts >= values.start) & (facts < values.stop)


def value_counts(facts: Tensor, values: range) -> Tensor:
    """(B, V): how often each value is among the facts, 0 for other tokens; V is the end of `values`."""
    counts = facts.new_zeros(len(facts), values.stop)
    counts.scatter_add_(1, facts.where(is_value(facts, values), 0), is_value(facts, values).to(counts.dtype))
    return counts


def log_shares(counts: Tensor, vocabulary: int) -> Tensor:
    """Logits (..., vocabulary) of the frequencies of tokens. They are finite, so that any answer has a loss."""
    return (F.pad(counts.double(), (0, vocabulary - counts.shape[-1])) + UNSEEN).log().float()


def first_value(facts: Tensor, values: range) -> Tensor:
    """(B,)"""
    first = is_value(facts, values).int().argmax(1, keepdim=True)
    return facts.gather(1, first)[:, 0]


def last_value(facts: Tensor, values: range) -> Tensor:
    """(B,)"""
    return first_value(facts.flip(1), values)


def nearest_to_mean_place(facts: Tensor, values: range, answers: int) -> Tensor:
    """(B, answers): the mean place of the j-th of m places among F is j (F + 1) / (m + 1), counted from 1."""
    length = facts.shape[1]
    means = torch.arange(1, answers + 1, device=facts.device) * (length + 1) / (answers + 1)
    distances = (torch.arange(1, length + 1, device=facts.device) - means[:, None]).abs()  # (answers, F)
    distances = distances.where(is_value(facts, values)[:, None], torch.inf)
    return facts.gather(1, distances.argmin(2))


COUNTING: dict[str, Choice] = {"first_value": first_value, "last_value": last_value}


class QueryTable:
    """`examples` gives pieces of queries and their answers (n, Q) each, -1 or less where nothing is asked.

    Called with sequences, the last of which ends in the queries, it gives logits (B, N, V) at each token of the last:
    those of `fallback` where no training query has the token. `saw` says how many examples it was fitted to. `key`
    makes of tokens (B, N) what is looked up, numbers (B, N); None: the tokens.
    """

    def __init__(
        self,
        examples: Iterable[tuple[np.ndarray, np.ndarray]],
        vocabulary: int,
        fallback: int,
        key: Callable[[Tensor], Tensor] | None = None,
    ):
        self.key = key or Tensor.long
        pairs, count = [], 0
        for queries, answers in examples:
            is_asked = answers >= 0
            keys = self.key(torch.from_numpy(queries)).numpy()
            pairs.append(keys[is_asked] * vocabulary + answers[is_asked])
            count += len(queries)
        self.saw, self.vocabulary = f"{count:,} examples", vocabulary
        pair, repeats = np.unique(np.concatenate(pairs), return_counts=True)
        rare_first = pair[np.argsort(repeats, kind="stable")]  # the most frequent answer of a query is written last
        table = np.full(max(vocabulary, pair[-1] // vocabulary + 1), fallback)
        table[rare_first // vocabulary] = rare_first % vocabulary
        self.table, self.fallback = torch.from_numpy(table), fallback

    def __call__(self, *sequences: Tensor) -> Tensor:
        keys = self.key(sequences[-1])
        known = keys < len(self.table)
        answers = self.table.to(keys.device)[keys.where(known, 0)].where(known, self.fallback)
        return F.one_hot(answers, self.vocabulary).float()
