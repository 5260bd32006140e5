"""What byte sequences count, as vectors for linear classifiers: n-grams of bytes, words, and what two texts share.

Wang and Manning (2012), "Baselines and Bigrams": whether a word occurs, times the logarithm of its frequency in one
class over that in the other, goes into a linear classifier (NB-SVM; here a logistic regression).

    B sequences or pairs, N length, F = BUCKETS
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack

from tasks.base import Predictor
from tasks.examples import BYTE_SHIFT, BYTE_SYMBOLS
from tasks.lra.classification import SequenceClassification
from tasks.lra.classifiers import NaiveBayes, bucket, ngrams
from tasks.lra.fitted import at_most, logistic, within

BUCKETS = 1 << 18  # of hashed n-grams
LONGEST = 5  # bytes of an n-gram, about one word
WORD_BUCKETS = 1 << 20  # of hashed words and pairs of neighbouring words
WORDS = 2  # of an n-gram of words
FIT_ON, TOKENS = 16_000, 4_000_000  # examples, and tokens of them, for a regression: a fit of less than a minute


def ngram_counts(tokens: np.ndarray, most: int, symbols: int) -> csr_array:
    """Ids (B, N) below `symbols`, 0 at padding -> how often each n-gram of 1 to `most` ids occurs, (B, F) float32.

    N-grams of different lengths are different features, but for collisions of their hashes.
    """
    # ids below symbols^n and one number per length: no two n-grams have the same number before they are hashed
    numbers = []
    for n in range(1, most + 1):
        number = ngrams(tokens, n, symbols)
        numbers.append(np.where(number < 0, -1, number * most + n - 1))
    number = np.concatenate(numbers, 1)
    row, column = np.nonzero(number >= 0)
    hashed = bucket(number[row, column]) % BUCKETS
    ones = np.ones(len(row), np.float32)
    counts = csr_array((ones, (row, hashed)), shape=(len(tokens), BUCKETS))  # the same place twice is added up
    counts.sum_duplicates()
    return counts


def ngram_fits(
    task: SequenceClassification, most: int, unit: str, seen: int | None
) -> dict[str, Callable[[], Predictor]]:
    """Naive Bayes on n-grams of `most` ids of the training split, and logistic regression on those of 1 to `most`."""
    train, symbols = task.split("train"), task.vocab_size
    naive_bayes = partial(NaiveBayes, train, task.classes, partial(ngrams, n=most, symbols=symbols), seen)
    counts = partial(ngram_counts, most=most, symbols=symbols)
    regression = partial(task.fitted, counts, logistic, within(train, TOKENS, at_most(FIT_ON, seen)))
    return {f"{unit}_{most}gram_naive_bayes": naive_bayes, f"{unit}_{most}gram_logistic_regression": regression}


def similarities(tokens: np.ndarray, symbols: int) -> np.ndarray:
    """Pairs (B, 2, N) -> (B, 2 x LONGEST + 3) float32.

    Columns: for n-grams of 1 byte, of 1 and 2, ..., the cosine of the two vectors of counts and the Jaccard index of
    the two sets; the lengths of both texts and their difference.
    """
    columns = []
    for longest in range(1, LONGEST + 1):
        first, second = (ngram_counts(tokens[:, side], longest, symbols) for side in (0, 1))
        norms = np.sqrt(_sum(first.multiply(first)) * _sum(second.multiply(second)))
        columns.append(_sum(first.multiply(second)) / np.maximum(norms, 1e-9))
        both = _sum(first.sign().multiply(second.sign()))
        columns.append(both / np.maximum(_sum(first.sign()) + _sum(second.sign()) - both, 1))
    lengths = (tokens > 0).sum(2)
    columns += [lengths[:, 0], lengths[:, 1], lengths[:, 0] - lengths[:, 1]]
    return np.stack(columns, 1).astype(np.float32)


def shared_and_not(tokens: np.ndarray, symbols: int) -> csr_array:
    """Pairs (B, 2, N) -> (B, 2 F): the counts of n-grams that the texts share, and of those that one has alone."""
    first, second = (ngram_counts(tokens[:, side], LONGEST, symbols) for side in (0, 1))
    both = first.minimum(second)
    return csr_array(hstack([both, first + second - 2 * both], format="csr"))


def _sum(counts: csr_array) -> np.ndarray:
    """(B, F) -> (B,) float64."""
    return np.asarray(counts.sum(1), np.float64).reshape(-1)


def word_counts(tokens: np.ndarray) -> Any:
    """Ids (B, N) of bytes -> whether each word or pair of words occurs, (B, WORD_BUCKETS) float32, sparse.

    Raises ImportError without scikit-learn.
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    is_byte = (tokens >= BYTE_SHIFT) & (tokens < BYTE_SYMBOLS)
    rows = zip(tokens - BYTE_SHIFT, is_byte, strict=True)
    texts = [row[kept].astype(np.uint8).tobytes().decode(errors="ignore") for row, kept in rows]
    how = {"binary": True, "norm": None, "alternate_sign": False, "dtype": np.float32}
    return HashingVectorizer(ngram_range=(1, WORDS), n_features=WORD_BUCKETS, **how).transform(texts)


class LogRatioRegression:
    """A classifier of two classes, as those of scikit-learn: `fit` and `predict_proba` of non-negative features."""

    def fit(self, x: Any, y: np.ndarray) -> "LogRatioRegression":
        from sklearn.linear_model import LogisticRegression

        shares = [(of_class := np.asarray(x[y == label].sum(0)).ravel() + 1) / of_class.sum() for label in (0, 1)]
        self.ratio = np.log(shares[1] / shares[0]).astype(np.float32)  # (F,)
        self.regression = LogisticRegression(C=0.1, max_iter=200).fit(self._weighted(x), y)
        self.classes_ = self.regression.classes_
        return self

    def predict_proba(self, x: Any) -> np.ndarray:
        return self.regression.predict_proba(self._weighted(x))

    def _weighted(self, x: Any) -> Any:
        return x.multiply(self.ratio).tocsr()
