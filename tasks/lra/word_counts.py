"""The words of byte sequences and pairs of neighbouring words, weighted by the classes that they occur in.

Wang and Manning (2012), "Baselines and Bigrams": whether a word occurs, times the logarithm of its frequency in one
class over that in the other, goes into a linear classifier (NB-SVM; here a logistic regression).

B sequences, N length, F features
"""

from typing import Any

import numpy as np

from tasks.lra.byte_tokens import BYTE_SHIFT, BYTE_SYMBOLS

BUCKETS = 1 << 20  # of hashed words and pairs
NGRAM = 2  # words


def word_counts(tokens: np.ndarray) -> Any:
    """Ids (B, N) of `tasks.lra.byte_tokens` -> whether each word or pair of words occurs, (B, BUCKETS) float32, sparse.

    Raises ImportError without scikit-learn.
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    is_byte = (tokens >= BYTE_SHIFT) & (tokens < BYTE_SYMBOLS)
    rows = zip(tokens - BYTE_SHIFT, is_byte, strict=True)
    texts = [row[kept].astype(np.uint8).tobytes().decode(errors="ignore") for row, kept in rows]
    how = {"binary": True, "norm": None, "alternate_sign": False, "dtype": np.float32}
    return HashingVectorizer(ngram_range=(1, NGRAM), n_features=BUCKETS, **how).transform(texts)


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
