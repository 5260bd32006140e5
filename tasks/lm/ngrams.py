"""n-gram language models over token ids: interpolated absolute discounting (Ney, Essen and Kneser, 1994).

With c(h w) the count of token w after the context h of k - 1 tokens, c(h) their sum over w, and h' the context h
without its first token:

    p_k(w | h) = (c(h w) - D_k(c(h w))) / c(h)  +  sum_j D_k(j) n_j(h) / c(h)  p_{k-1}(w | h'),    p_0(w) = 1 / V

n_j(h) is how many tokens follow h exactly j times. D_k has three values, for counts of 1, of 2, and of 3 and more, as
in modified Kneser-Ney smoothing (Chen and Goodman, 1999). After a context that was never seen, p_k = p_{k-1}.

Counts of every order are those of the text: a lower order also predicts the first tokens of a window, where there is no
longer context, so it has no Kneser-Ney continuation counts. No context reaches beyond the window, in the fit as in the
score. The discounts minimise the perplexity of validation windows.

All n-grams of one order are one sorted array of integers: the number of the (k - 1)-gram, times V, plus the last token.

    W windows, N tokens of a window, S targets of it, T targets of all windows, K order, V vocabulary, G n-grams
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

DISCOUNTS = 3  # of an order: for counts of 1, of 2, and of 3 and more
MARGIN = 1e-3  # to a discount of 0, which gives unseen tokens no probability, and to the whole count


class Level(NamedTuple):
    """The n-grams of one order k. The last number in each array stands for all that was not seen."""

    keys: np.ndarray  # (G + 1,) int64, ascending
    counts: np.ndarray  # (G + 1,) int64
    totals: np.ndarray  # (G' + 1,) int64: c(h) of each (k - 1)-gram
    followers: np.ndarray  # (G' + 1, 3) int64: n_1(h), n_2(h), n_3(h) + n_4(h) + ...

    def numbers(self, prefixes: np.ndarray, tokens: np.ndarray, vocab_size: int) -> np.ndarray:
        """The number of the n-gram of each prefix, itself a number, and token; G where there is none."""
        keys = prefixes * vocab_size + tokens
        places = np.searchsorted(self.keys, keys)
        return np.where(self.keys[places] == keys, places, len(self.keys) - 1)


class Facts(NamedTuple):
    """What the formula takes of each target, for the orders 1 to K."""

    counts: np.ndarray  # (K, T) c(h w)
    totals: np.ndarray  # (K, T) c(h); 0 where the window has no such context
    followers: np.ndarray  # (K, T, 3) float64: n_j(h)


class NGramCounts:
    """Counts of the n-grams of windows (W, N + 1) of token ids. Those of an order are made when it is first asked for.

    The first token of a window is context only. Raises ValueError for windows without a target.
    """

    def __init__(self, windows: np.ndarray, vocab_size: int):
        if windows.size == 0 or windows.shape[1] < 2:
            raise ValueError("no training window with a target")
        self.vocab_size = vocab_size
        self._windows = self._numbers = windows.astype(np.int64, copy=False)
        counts = np.bincount(self._windows[:, 1:].ravel(), minlength=vocab_size)
        total, followers = np.array([counts.sum()]), by_count(counts, np.zeros_like(counts), 1)
        self._levels = [Level(np.arange(vocab_size + 1), np.append(counts, 0), total, followers)]

    @property
    def tokens(self) -> int:
        """Targets that were counted."""
        return self._windows[:, 1:].size

    def levels(self, order: int) -> list[Level]:
        while len(self._levels) < order:
            self._add_level()
        return self._levels[:order]

    def _add_level(self) -> None:
        tokens = self._windows[:, len(self._levels) :]  # the last ones of the n-grams
        keys = self._numbers[:, : tokens.shape[1]] * self.vocab_size + tokens
        keys, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
        contexts, size = keys // self.vocab_size, len(self._levels[-1].counts)
        totals = np.bincount(contexts, weights=counts, minlength=size).astype(np.int64)
        keys, after = np.append(keys, np.iinfo(np.int64).max), by_count(counts, contexts, size)
        self._levels.append(Level(keys, np.append(counts, 0), totals, after))
        self._numbers = inverse.reshape(tokens.shape)

    def facts(self, windows: np.ndarray, targets: int, order: int) -> Facts:
        """Of the last S = `targets` tokens of windows (W, N + 1), in the order of windows and tokens."""
        windows = windows[:, -(targets + order - 1) :]  # no context is longer
        shape = (order, len(windows), targets)
        facts = Facts(np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros((*shape, DISCOUNTS)))
        numbers = windows
        for k, level in enumerate(self.levels(order)):
            scored = min(targets, windows.shape[1] - k)  # the others have fewer than k tokens before them
            if scored <= 0:
                break
            if k:
                contexts = numbers[:, : windows.shape[1] - k][:, -scored:]
                numbers = level.numbers(numbers[:, : windows.shape[1] - k], windows[:, k:], self.vocab_size)
            else:
                contexts = np.zeros((len(windows), scored), np.int64)
            facts.counts[k, :, -scored:] = level.counts[numbers[:, -scored:]]
            facts.totals[k, :, -scored:] = level.totals[contexts]
            facts.followers[k, :, -scored:] = level.followers[contexts]
        return Facts(*(array.reshape(order, -1, *array.shape[3:]) for array in facts))


def by_count(counts: np.ndarray, contexts: np.ndarray, size: int) -> np.ndarray:
    """(size, 3): how many n-grams of each context were counted once, twice, and more often."""
    kinds = (counts == 1, counts == 2, counts > 2)
    return np.stack([np.bincount(contexts[kind], minlength=size) for kind in kinds], 1)


def probabilities(facts: Facts, discounts: np.ndarray, vocab_size: int) -> np.ndarray:
    """p_0, ..., p_K (K + 1, T) float64 of the targets. discounts (K, 3)."""
    p = [np.full(facts.counts.shape[1], 1 / vocab_size)]
    for counts, totals, followers, discount in zip(*facts, discounts, strict=True):
        kept = counts - np.append(0.0, discount)[np.minimum(counts, DISCOUNTS)]
        interpolated = (kept + followers @ discount * p[-1]) / np.maximum(totals, 1)
        p.append(np.where(totals > 0, interpolated, p[-1]))
    return np.stack(p)


def mean_nats(facts: Facts, discounts: np.ndarray, vocab_size: int) -> tuple[float, np.ndarray]:
    """The mean negative log-likelihood of the targets, and its gradient (K, 3)."""
    p = probabilities(facts, discounts, vocab_size)
    gradient, slope = np.empty_like(discounts), -1 / p[-1] / p.shape[1]  # slope: of the mean by p_k
    for k in reversed(range(len(discounts))):
        totals, followers = np.maximum(facts.totals[k], 1), facts.followers[k]
        share = np.where(facts.totals[k] > 0, slope / totals, 0.0)
        taken = np.minimum(facts.counts[k], DISCOUNTS)
        gradient[k] = (share * p[k]) @ followers - np.bincount(taken, weights=share, minlength=DISCOUNTS + 1)[1:]
        slope = np.where(facts.totals[k] > 0, share * (followers @ discounts[k]), slope)
    return float(-np.log(p[-1]).mean()), gradient


def leaving_out(levels: Iterable[Level]) -> np.ndarray:
    """(K, 3) discounts n_1 / (n_1 + 2 n_2) of each order, Ney's estimate from the training counts alone."""
    times = [np.bincount(np.minimum(level.counts, DISCOUNTS), minlength=DISCOUNTS)[1:3] for level in levels]
    estimates = [once / (once + 2 * twice) if once else 0.5 for once, twice in times]
    return np.repeat(np.clip(estimates, MARGIN, 1 - MARGIN)[:, None], DISCOUNTS, 1)


class NGram:
    """A predictor: (tokens (B, N), targets (B, S)) -> nats (B, S) float64, 0 for targets below 0.

    `discounts` (K, 3); `saw` says what was counted.
    """

    def __init__(self, counts: NGramCounts, order: int, discounts: np.ndarray, saw: str):
        self.counts, self.order, self.discounts, self.saw = counts, order, discounts, saw

    @classmethod
    def fitted(cls, counts: NGramCounts, order: int, validation: tuple[Tensor, Tensor] | None, saw: str) -> "NGram":
        """With the discounts that suit validation's (tokens, targets) best; None: those of the training counts."""
        discounts = leaving_out(counts.levels(order))
        if validation is not None:
            tokens, targets = validation
            facts = counts.facts(joined(tokens, targets), targets.shape[1], order)
            scored = (targets >= 0).flatten().numpy()
            facts = Facts(*(array[:, scored] for array in facts))

            def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
                nats, gradient = mean_nats(facts, flat.reshape(discounts.shape), counts.vocab_size)
                return nats, gradient.ravel()

            bounds = [(MARGIN, count - MARGIN) for count in range(1, DISCOUNTS + 1)] * order
            search = {"jac": True, "method": "L-BFGS-B", "bounds": bounds, "options": {"ftol": 1e-6}}
            best = minimize(objective, discounts.ravel(), **search)
            discounts = best.x.reshape(discounts.shape)
        return cls(counts, order, discounts, saw)

    def __call__(self, tokens: Tensor, targets: Tensor) -> Tensor:
        facts = self.counts.facts(joined(tokens, targets), targets.shape[1], self.order)
        p = probabilities(facts, self.discounts, self.counts.vocab_size)[-1]
        nats = torch.from_numpy(-np.log(p)).view(targets.shape).to(targets.device)
        return nats.where(targets >= 0, 0.0)


def joined(tokens: Tensor, targets: Tensor) -> np.ndarray:
    """(B, N + 1): the window's tokens and the last target, which is always scored."""
    return torch.cat([tokens, targets[:, -1:]], 1).cpu().numpy()
