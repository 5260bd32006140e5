"""Transformer encoder that restores masked tokens (Devlin et al., 2019, arXiv 1810.04805), with RoBERTa's head.

    h = encoder(tokens),   logits_t = LN(gelu(h_t W + b)) E' + c

E are the embeddings unless `tied` is false. The head is applied only at masked positions and in slices, so a batch's
logits never exist at once. Embedding, positions and layers have the same names as in `EncoderClassifier`, which starts
from them in fine-tuning.

    B batch, N length, K masked positions, D width, V vocabulary
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from models.attention.base import Attention
from models.backbones.config import LINEAR_INITS
from models.backbones.token_classifier import TokenClassifier, TokenClassifierConfig
from models.layers.initialisers import bert_linears_
from models.ops.cross_entropy import linear_cross_entropy


class MaskedLM(TokenClassifier):
    """tokens (B, N) -> losses (B, K), or logits. Embedding and layers are those of `TokenClassifier`."""

    def __init__(self, attention: Callable[..., Attention], config: TokenClassifierConfig):
        super().__init__(attention, config)
        self.transform = nn.Sequential(nn.Linear(config.dim, config.dim), nn.GELU(), config.make_norm())
        self.head.bias = nn.Parameter(torch.zeros(config.vocab_size))
        # tied weights are initialised as embeddings
        LINEAR_INITS[config.linear_init](self.transform if config.tied else nn.ModuleList([self.transform, self.head]))
        if config.linear_init == "bert":
            bert_linears_(self.layers)

    def forward(self, tokens: Tensor, masked: Tensor | None = None, targets: Tensor | None = None) -> Tensor:
        """tokens (B, N), long -> logits (B, N, V); with masked positions and targets (B, K), losses (B, K) there.

        Losses are in float32, or in float64 if the states are.
        """
        states = self.encode(tokens)
        if masked is None:
            return self.head(self.transform(states))
        chosen = states.gather(1, masked[..., None].expand(-1, -1, states.shape[2]))  # (B, K, D)
        return linear_cross_entropy(self.transform(chosen), self.head.weight, self.head.bias, targets)
