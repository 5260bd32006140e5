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

from tasks.metrics import Sums

LARGEST = 34.5  # the logarithm of about 1e15, the largest number that a record takes


class TextScores(Sums):
    """All scores of a text, and its tokens, words and bytes, whose sums are exact for any batches."""

    def __init__(self) -> None:
        super().__init__(4)

    def update(self, nats: Tensor, tokens: Tensor, words: Tensor, bytes_: Tensor) -> None:
        """Sums over some part of the text, of any one shape."""
        self.sums += torch.stack([part.double().sum() for part in (nats, tokens, words, bytes_)])

    def compute(self) -> dict[str, Tensor]:
        nats, tokens, words, bytes_ = self.sums
        values = {
            "ppl": (nats / tokens).clamp(max=LARGEST).exp(),
            "word_ppl": (nats / words).clamp(max=LARGEST).exp(),
            "bits_per_byte": nats / (math.log(2) * bytes_),
            "loss": nats / tokens,
        }
        return values | {"tokens": tokens, "words": words, "bytes": bytes_}
