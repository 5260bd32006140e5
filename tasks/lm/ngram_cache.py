"""An n-gram model with a cache: it also counts what the window itself has said so far (Kuhn and De Mori, 1990).

With c(h w) the count of token w after the context h of k - 1 tokens earlier in the same window, c(h) their sum over w,
n(h) the number of different tokens counted, and h' the context h without its first token:

    q_k(w | h) = (c(h w) - d_k [c(h w) > 0] + (s_k + d_k n(h)) q_{k-1}(w | h')) / (c(h) + s_k)

q_0 is the n-gram's probability. The lower order weighs as much as s_k earlier tokens, and d_k discounts each count: the
predictive rule of a hierarchical Pitman-Yor process (Teh, 2006). All s_k and d_k minimise the perplexity of validation
windows; the n-gram keeps its own discounts. Every q_k sums to 1 over the vocabulary.

No count reaches beyond the window or its past. Time O(K M log M), memory O(K M) for M tokens of all windows.

    W windows, N tokens of a window, S targets of it, T targets of all windows, K order, M = W (N + 1)
"""

from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from tasks.lm.ngrams import MARGIN, NGram, joined

LEAST_STRENGTH, MOST_STRENGTH = 1e-3, 1e6  # bounds of s_k
AT_ONCE = 1 << 20  # tokens whose counts are made together


class Past(NamedTuple):
    """What the formula takes of each target, for the orders 1 to K; zeros where the window has no such context."""

    counts: np.ndarray  # (K, T) c(h w)
    totals: np.ndarray  # (K, T) c(h)
    kinds: np.ndarray  # (K, T) n(h)


def past(windows: np.ndarray, targets: int, order: int) -> Past:
    """Of the last S = `targets` tokens of windows (W, N + 1), in the order of windows and tokens."""
    rows = max(1, AT_ONCE // windows.shape[1])
    parts = [_past(windows[i : i + rows], targets, order) for i in range(0, len(windows), rows)]
    return Past(*(np.concatenate(arrays, 1) for arrays in zip(*parts, strict=True)))


def _past(windows: np.ndarray, targets: int, order: int) -> Past:
    seen = np.zeros((3, order, len(windows), targets))
    contexts = np.repeat(np.arange(len(windows))[:, None], windows.shape[1], 1)  # the empty context of each window
    for k in range(min(order, windows.shape[1])):
        tokens = windows[:, k:]  # those with k tokens before them
        keys = contexts * (windows.max() + 1) + tokens
        ngrams = np.unique(keys, return_inverse=True)[1].ravel()
        counts = earlier(ngrams, np.ones((1, ngrams.size)))[0]
        totals, kinds = earlier(contexts.ravel(), np.stack([np.ones(ngrams.size), counts == 0]))
        scored = min(targets, tokens.shape[1])
        for array, values in zip(seen[:, k], (counts, totals, kinds), strict=True):
            array[:, -scored:] = values.reshape(tokens.shape)[:, -scored:]
        contexts = ngrams.reshape(tokens.shape)[:, :-1]  # of the next order: the n-grams that end before its tokens
    return Past(*seen.reshape(3, order, -1))


def earlier(groups: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(n, M): for each of M items, the sums of `values` (n, M) over the earlier items of its group; `groups` (M,)."""
    order = np.argsort(groups, kind="stable")
    begins = np.flatnonzero(np.diff(groups[order], prepend=-1))
    before = np.cumsum(values[:, order], 1) - values[:, order]
    sums = np.empty_like(before)
    sums[:, order] = before - np.repeat(before[:, begins], np.diff(begins, append=len(groups)), 1)
    return sums


def probabilities(seen: Past, ngram: np.ndarray, strengths: np.ndarray, discounts: np.ndarray) -> np.ndarray:
    """q_0, ..., q_K (K + 1, T) float64 of the targets. ngram (T,) is q_0; strengths and discounts (K,)."""
    q = [ngram]
    for counts, totals, kinds, s, d in zip(*seen, strengths, discounts, strict=True):
        q.append((counts - d * (counts > 0) + (s + d * kinds) * q[-1]) / (totals + s))
    return np.stack(q)


def mean_nats(
    seen: Past, ngram: np.ndarray, strengths: np.ndarray, discounts: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """The mean negative log-likelihood of the targets, and its gradients by strengths and by discounts (K,)."""
    q = probabilities(seen, ngram, strengths, discounts)
    by_strength, by_discount = np.empty_like(strengths), np.empty_like(discounts)
    slope = -1 / q[-1] / q.shape[1]  # of the mean by q_k
    for k in reversed(range(len(strengths))):
        share = slope / (seen.totals[k] + strengths[k])
        by_strength[k] = share @ (q[k] - q[k + 1])
        by_discount[k] = share @ (seen.kinds[k] * q[k] - (seen.counts[k] > 0))
        slope = share * (strengths[k] + discounts[k] * seen.kinds[k])
    return float(-np.log(q[-1]).mean()), by_strength, by_discount


class NGramWithCache:
    """A predictor: (tokens (B, N), targets (B, S)) -> nats (B, S) float64, 0 for targets below 0.

    `strengths` (K,) are s_k, `discounts` (K,) d_k, for the orders 1 to K; `saw` says what the n-gram has counted.
    """

    def __init__(self, ngram: NGram, strengths: np.ndarray, discounts: np.ndarray):
        self.ngram, self.strengths, self.discounts, self.saw = ngram, strengths, discounts, ngram.saw

    @classmethod
    def fitted(cls, ngram: NGram, validation: tuple[Tensor, Tensor]) -> "NGramWithCache":
        """With the strengths and discounts that suit validation's (tokens, targets) best."""
        tokens, targets = validation
        scored = (targets >= 0).flatten().numpy()
        p = ngram(tokens, targets).neg().exp().flatten().numpy()[scored]
        seen = Past(*(array[:, scored] for array in past(joined(tokens, targets), targets.shape[1], ngram.order)))

        def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
            strengths, discounts = np.exp(flat[: ngram.order]), flat[ngram.order :]
            nats, by_strength, by_discount = mean_nats(seen, p, strengths, discounts)
            return nats, np.concatenate([by_strength * strengths, by_discount])

        start = np.repeat([np.log(100.0), 0.5], ngram.order)
        bounds = [(np.log(LEAST_STRENGTH), np.log(MOST_STRENGTH))] * ngram.order + [(0.0, 1 - MARGIN)] * ngram.order
        best = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-7}).x
        return cls(ngram, np.exp(best[: ngram.order]), best[ngram.order :])

    def __call__(self, tokens: Tensor, targets: Tensor) -> Tensor:
        p = self.ngram(tokens, targets).neg().exp().flatten().cpu().numpy()
        seen = past(joined(tokens, targets), targets.shape[1], self.ngram.order)
        q = probabilities(seen, p, self.strengths, self.discounts)[-1]
        nats = torch.from_numpy(-np.log(q)).view(targets.shape).to(targets.device)
        return nats.where(targets >= 0, 0.0)
