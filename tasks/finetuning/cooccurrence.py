"""Naive Bayes over which word of a first text occurs with which word of a second one (Lewis, 1998).

    log p(1 | a, b) / p(0 | a, b) = log p(1) / p(0) + sum over words u of a, v of b of log p(u, v | 1) / p(u, v | 0)

Each distinct pair of words (u, v) of an example counts once, and every pair that occurs gets PRIOR in both classes. It
is fitted to the fine-tuning set alone, so a score above chance needs no pre-training.

Class 1 is a right pair of texts, class 0 a wrong one.

    B examples, O answers, N length, V words that are told apart
"""

from collections.abc import Iterator

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from tasks.base import Split
from tasks.finetuning.labelled_texts import different_pieces
from tasks.lra.classifiers import pieces, saw

PRIOR = 1.0  # counted once more in each class
WORDS = 4096  # most frequent words that are told apart: a table of WORDS^2 numbers


class Cooccurrence:
    """Of two texts it gives log-probabilities of two classes, (B, 2); of a question and O answers scores, (B, O).

    `choice`: whether an example is a question with answers, of which `label` is the right one. The first `most`
    examples of the split are used. Called with tokens (B, N) or (B, O, N).
    """

    def __init__(self, split: Split, vocabulary: int, choice: bool, most: int | None = None):
        self.choice = choice
        examples, used = list(pieces(split, most)), np.zeros(vocabulary, np.int64)
        for tokens, _ in examples:
            used += np.bincount(tokens.ravel(), minlength=vocabulary)
        kept = np.sort(np.argsort(-used, kind="stable")[:WORDS])
        self.column = np.full(vocabulary, -1)
        self.column[kept] = np.arange(len(kept))
        counts = np.zeros((2, len(kept), len(kept)), np.float32)
        members, total = np.zeros(2), 0
        for tokens, label in examples:
            rows = tokens.reshape(-1, tokens.shape[-1])
            right = (label[:, None] == np.arange(tokens.shape[1])).ravel() if choice else label == 1
            first, second = self._words(rows)
            for number, member in enumerate((~right, right)):
                counts[number] += (first[member].T @ second[member]).toarray()
            members += [(~right).sum(), right.sum()]
            total += len(label)
        seen = counts.any(0)
        smoothed = (counts + PRIOR) / (counts.sum((1, 2), keepdims=True) + PRIOR * seen.sum())
        self.weight = np.where(seen, np.log(smoothed[1]) - np.log(smoothed[0]), 0.0).astype(np.float32)  # (V, V)
        self.prior = float(np.log((members[1] + PRIOR) / (members[0] + PRIOR)))
        self.saw = saw(total)

    def __call__(self, tokens: Tensor) -> Tensor:
        first, second = self._words(tokens.reshape(-1, tokens.shape[-1]).cpu().numpy())
        odds = torch.from_numpy(second.multiply(first @ self.weight).sum(1).astype(np.float64)) + self.prior
        if self.choice:
            return odds.reshape(tokens.shape[:2]).to(tokens.device)
        return torch.stack([torch.zeros_like(odds), odds], 1).log_softmax(1).to(tokens.device)

    def _words(self, rows: np.ndarray) -> tuple[csr_array, csr_array]:
        """Rows (n, N) -> for the first and for the second text which words occur in it, (n, V)."""
        texts = list(different_pieces(rows))
        return tuple(self._occurrence(text[part] for text in texts) for part in (0, 1))

    def _occurrence(self, texts: Iterator[np.ndarray]) -> csr_array:
        columns = [self.column[text] for text in texts]
        columns = [known[known >= 0] for known in columns]
        edges = np.cumsum([0, *map(len, columns)])
        number = np.concatenate(columns) if columns else np.zeros(0, np.int64)
        shape = (len(columns), int(self.column.max(initial=-1)) + 1)
        return csr_array((np.ones(len(number), np.float32), number, edges), shape=shape)
