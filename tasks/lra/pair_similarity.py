"""What two texts have in common, in numbers for boosted trees and as sparse vectors for a linear classifier.

B pairs, N length, F = BUCKETS of `ngram_counts`
"""

import numpy as np
from scipy.sparse import csr_array, hstack

from tasks.lra.ngram_counts import ngram_counts

LONGEST = 5  # bytes of an n-gram, about one word


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
