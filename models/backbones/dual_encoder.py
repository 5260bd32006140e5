"""Two sequences through one encoder, and a classifier for the pair (LRA Retrieval; Tay et al., 2021).

With a and b the pooled states of the first and the second sequence, the classifier reads

    [a, b, a * b, a - b]    the paper, and the code of Skyformer and Latte (in a different order)
    [a, b]                  LRA's code, which differs from its paper (X2)
    [b, a]                  Luna's code, which also does (X2)

The two sequences do not attend to each other: the cost is that of 2 B sequences.

    B batch, N length, D width, C classes
"""

from typing import ClassVar

import torch
from torch import Tensor

from models.backbones.encoder import EncoderClassifier


class DualEncoderClassifier(EncoderClassifier):
    """Pairs of tokens (B, 2, N) -> logits (B, C) by [a, b, a * b, a - b]. Options as `EncoderClassifier`."""

    pooled_vectors: ClassVar[int] = 4

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (B, 2, N), long -> logits (B, C)."""
        a, b = self.encode(tokens.flatten(0, 1)).unflatten(0, (-1, 2)).unbind(1)  # (B, D)
        return self.head(self.combine(a, b))

    @staticmethod
    def combine(a: Tensor, b: Tensor) -> Tensor:
        """a and b (B, D) -> the classifier's input, (B, `pooled_vectors` D)."""
        return torch.cat([a, b, a * b, a - b], -1)


class ConcatDualEncoderClassifier(DualEncoderClassifier):
    """Pairs of tokens (B, 2, N) -> logits (B, C) by [a, b] alone."""

    pooled_vectors: ClassVar[int] = 2

    @staticmethod
    def combine(a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([a, b], -1)


class ReversedDualEncoderClassifier(ConcatDualEncoderClassifier):
    """Pairs of tokens (B, 2, N) -> logits (B, C) by [b, a]."""

    @staticmethod
    def combine(a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([b, a], -1)
