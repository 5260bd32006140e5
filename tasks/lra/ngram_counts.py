"""Counts of the n-grams of byte sequences as sparse vectors, for a linear classifier.

B sequences, N length, F = BUCKETS
"""

import numpy as np
from scipy.sparse import csr_array

from tasks.lra import classifiers
from tasks.lra.classifiers import ngrams

BUCKETS = 1 << 18  # of hashed n-grams


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
    hashed = classifiers.bucket(number[row, column]) % BUCKETS
    ones = np.ones(len(row), np.float32)
    counts = csr_array((ones, (row, hashed)), shape=(len(tokens), BUCKETS))  # the same place twice is added up
    counts.sum_duplicates()
    return counts
