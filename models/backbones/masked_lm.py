"""Transformer encoder that restores masked tokens (Devlin et al., 2019, arXiv 1810.04805), with RoBERTa's head.

    h = encoder(tokens),   logits_t = LN(gelu(h_t W + b)) E' + c

E are the embeddings unless `tied` is false. The head is applied at the masked positions alone, in slices, so that the
logits of a batch never exist at once. Embedding, positions and layers have the names that they have in
`EncoderClassifier`, which starts from them in fine-tuning.

    B batch, N length, K masked positions, D width, V vocabulary
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from models.attention.base import Attention, Pattern
from models.backbones.config import LINEAR_INITS, TransformerConfig
from models.backbones.embedding import TokenEmbedder
from models.backbones.layer import layer_stack
from models.layers.initialisers import bert_linears_
from models.ops.cross_entropy import linear_cross_entropy


@dataclass(frozen=True, kw_only=True)
class MaskedLMConfig(TransformerConfig):
    """Sizes and options of `MaskedLM`. Raises ValueError for a cross pattern."""

    pattern: Pattern | str = Pattern.NONCAUSAL_SELF
    """The slot that attention fills."""
    tied: bool = True
    """Whether the embeddings are the weights of the logits, too."""
    padding_id: int | None = None
    """The token that stands for padding; None: there is no padding."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if Pattern(self.pattern).cross:
            raise ValueError(f"an encoder has no second sequence to attend to: pattern={self.pattern}")


class MaskedLM(TokenEmbedder):
    """Embedding, `layers` x (attention, feed-forward network), head: tokens (B, N) -> losses (B, K), or logits.

    `attention` is called once per layer as `attention(dim, heads, pattern=, max_length=, dropout=)`. `length_limit` is
    `max_length` where positions or attention end there, else None.
    """

    Config: ClassVar[type[MaskedLMConfig]] = MaskedLMConfig

    def __init__(self, attention: Callable[..., Attention], config: MaskedLMConfig):
        super().__init__(config, config.max_length, padding_id=config.padding_id)
        self.padding_id = config.padding_id
        self.layers = layer_stack(attention, config, config.pattern, config.max_length)
        if any(layer.attention.fixed_length for layer in self.layers):
            self.length_limit = config.max_length
        self.final_norm = config.make_norm() if config.final_norm else nn.Identity()
        self.transform = nn.Sequential(nn.Linear(config.dim, config.dim), nn.GELU(), config.make_norm())
        self.head = nn.Linear(config.dim, config.vocab_size)
        LINEAR_INITS[config.linear_init](nn.ModuleList([self.transform, self.head]))
        nn.init.zeros_(self.head.bias)
        if config.tied:
            self.head.weight = self.embedding.weight
        if config.linear_init == "bert":
            bert_linears_(self.layers)

    def forward(self, tokens: Tensor, masked: Tensor | None = None, targets: Tensor | None = None) -> Tensor:
        """tokens (B, N), long -> logits (B, N, V); with masked positions and targets (B, K) the losses there, (B, K).

        Losses are in float32, or in float64 if the states are.
        """
        states = self.encode(tokens)
        if masked is None:
            return self.head(self.transform(states))
        chosen = states.gather(1, masked[..., None].expand(-1, -1, states.shape[2]))  # (B, K, D)
        return linear_cross_entropy(self.transform(chosen), self.head.weight, self.head.bias, targets)

    def encode(self, tokens: Tensor) -> Tensor:
        """tokens (B, N), long -> states after the last layer (B, N, D)."""
        x, carry = self.embed(tokens), None
        padding = None if self.padding_id is None else tokens == self.padding_id
        for layer in self.layers:
            x, carry = layer(x, padding, carry)
        return self.final_norm(x)
