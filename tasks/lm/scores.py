"""Scores of a language model, from one sum of negative log-likelihoods over a text.

    loss           nats / tokens                   ppl             exp(nats / tokens)
    word_ppl       exp(nats / words)               bits_per_byte   nats / (ln 2 x bytes)

Tokens depend on the tokenizer, and so do `loss` and `ppl`: they compare models with the same tokenizer. Words (between
white space, as PG-19's authors count; Rae et al., 2020, arXiv 1911.05507) and UTF-8 bytes belong to the text, so
`word_ppl` and `bits_per_byte` compare any two models. The end tokens of documents are also predicted and count as
tokens, not as words or bytes.
"""

import math

import torch
from torch import Tensor
from torchmetrics import Metric

LARGEST = 34.5  # the logarithm of about 1e15, the largest number that a record takes


class TextScores(Metric):
    """All scores of a text, and its tokens, words and bytes; sums in float64 and integers, exact for any batches."""

    is_differentiable = False
    higher_is_better = False
    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        self.add_state("nats", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("counts", torch.zeros(3, dtype=torch.long), dist_reduce_fx="sum")

    def update(self, nats: Tensor, tokens: Tensor, words: Tensor, bytes_: Tensor) -> None:
        """Sums over some part of the text, of any one shape."""
        self.nats += nats.double().sum()
        self.counts += torch.stack([count.sum() for count in (tokens, words, bytes_)])

    def compute(self) -> dict[str, Tensor]:
        tokens, words, bytes_ = counts = self.counts.double()
        values = {
            "ppl": (self.nats / tokens).clamp(max=LARGEST).exp(),
            "word_ppl": (self.nats / words).clamp(max=LARGEST).exp(),
            "bits_per_byte": self.nats / (math.log(2) * bytes_),
            "loss": self.nats / tokens,
        }
        return values | dict(zip(("tokens", "words", "bytes"), counts, strict=True))
