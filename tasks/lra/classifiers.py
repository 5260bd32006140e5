"""Classifiers that are fitted by counting, for comparison: a table, naive Bayes.

Each is fitted to the training split once and then takes tokens, as a model does, and gives log-probabilities (B, K).

    Lookup       p(class | key), where a function of the tokens gives a key to each example
    NaiveBayes   p(class) prod_i p(feature_i | class), with one more of each feature in each class (Laplace)

    B examples, N length, K classes, F features
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from tasks.base import Split

PRIOR = 1.0  # examples added to each key, with classes as frequent as in the whole split
PIECE = 1000  # examples read at once
BUCKETS = 1 << 22  # of features that are too many to count one by one

Features = Callable[[np.ndarray], np.ndarray]  # of tokens (B, N), or (B, 2, N) of pairs


def pieces(split: Split, most: int | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Tokens and labels of the first `most` examples of a split, some at a time."""
    count = min(len(split), most or len(split))
    for start in range(0, count, PIECE):
        batch = split.batch(range(start, min(start + PIECE, count)))
        yield batch["tokens"].numpy(), batch["label"].numpy()


def saw(examples: int) -> str:
    """What a predictor was fitted to, in words."""
    return f"{examples:,} examples"


class Lookup:
    """The class that is most frequent with an example's key, a number below `keys`. `counts` is (keys, K)."""

    def __init__(self, counts: np.ndarray, key: Features):
        self.key = key
        self.saw = saw(int(counts.sum()))
        prior = (counts.sum(0) + PRIOR) / (counts.sum() + PRIOR * counts.shape[1])
        smoothed = counts + PRIOR * prior
        self.log_probability = torch.from_numpy(np.log(smoothed / smoothed.sum(1, keepdims=True)))  # (keys, K)

    @classmethod
    def fitted(cls, split: Split, classes: int, keys: int, key: Features, most: int | None = None) -> "Lookup":
        counts = np.zeros((keys, classes))
        for tokens, label in pieces(split, most):
            np.add.at(counts, (key(tokens), label), 1)
        return cls(counts, key)

    @classmethod
    def by_level(cls, split: Split, classes: int, levels: int, number: Features, most: int | None = None) -> "Lookup":
        """The key is the level of a number (B,) of each example; levels have equally many training examples."""
        parts = [(number(tokens), label) for tokens, label in pieces(split, most)]
        numbers, label = (np.concatenate(column) for column in zip(*parts, strict=True))
        edges = np.quantile(numbers, np.arange(1, levels) / levels)
        counts = np.zeros((levels, classes))
        np.add.at(counts, (np.searchsorted(edges, numbers), label), 1)
        return cls(counts, lambda tokens: np.searchsorted(edges, number(tokens)))

    def __call__(self, tokens: Tensor) -> Tensor:
        return self.log_probability[self.key(tokens.cpu().numpy())].to(tokens.device)


class NaiveBayes:
    """`features(tokens)` gives the numbers of each example's features, (B, F) int64, -1 where there is none.

    Features are hashed into BUCKETS. A feature that is absent from the first `most` training examples is ignored.
    """

    def __init__(self, split: Split, classes: int, features: Features, most: int | None = None):
        self.features = features
        seen, examples = np.zeros((classes, BUCKETS)), np.zeros(classes)
        for tokens, label in pieces(split, most):
            numbers = bucket(features(tokens))
            for number in range(classes):
                of_class = numbers[label == number]
                seen[number] += np.bincount(of_class[of_class >= 0], minlength=BUCKETS)
            examples += np.bincount(label, minlength=classes)
        self.saw = saw(int(examples.sum()))
        counted = seen.any(0)
        smoothed = (seen + counted) / (seen.sum(1, keepdims=True) + counted.sum())
        log_likelihood = np.log(smoothed, out=np.zeros_like(smoothed), where=counted)
        self.log_likelihood = np.concatenate([log_likelihood, np.zeros((classes, 1))], 1)  # -1: no feature
        self.log_prior = np.log((examples + PRIOR) / (examples.sum() + PRIOR * classes))

    def __call__(self, tokens: Tensor) -> Tensor:
        numbers = bucket(self.features(tokens.cpu().numpy()))
        logits = np.stack([of_class[numbers].sum(1) for of_class in self.log_likelihood], 1) + self.log_prior
        return torch.from_numpy(logits).log_softmax(1).to(tokens.device)


def bucket(features: np.ndarray) -> np.ndarray:
    """Numbers below BUCKETS, -1 as it is: the middle of a product with a large odd number (Fibonacci hashing)."""
    mixed = (features.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - BUCKETS.bit_length() + 1)
    return np.where(features < 0, -1, mixed.astype(np.int64))


def ngrams(tokens: np.ndarray, n: int, symbols: int) -> np.ndarray:
    """Ids (..., N) below `symbols`, 0 at padding -> numbers (..., N - n + 1) below symbols^n, -1 at padding."""
    length = tokens.shape[-1] - n + 1
    numbers = np.zeros((*tokens.shape[:-1], max(0, length)), np.int64)
    for start in range(n):
        numbers = numbers * symbols + tokens[..., start : start + length]
    whole = np.ones(numbers.shape, bool)
    for start in range(n):
        whole &= tokens[..., start : start + length] > 0
    return np.where(whole, numbers, -1)
