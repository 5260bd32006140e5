"""Transformer encoder with one output per position: tokens (B, N) -> logits (B, N, V).

It serves tasks with one target token per position. With pattern causal_self it computes the same as a decoder, but has
no decoding state.

    B batch, N length, D width, V vocabulary
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from models.attention.base import Attention, Pattern
from models.backbones.config import TransformerConfig
from models.backbones.embedding import TokenEmbedder
from models.backbones.layer import layer_stack


@dataclass(frozen=True, kw_only=True)
class TokenClassifierConfig(TransformerConfig):
    """Sizes and options of `TokenClassifier`. Raises ValueError for a cross pattern."""

    pattern: Pattern | str = Pattern.NONCAUSAL_SELF
    """The slot that attention fills."""
    tied: bool = True
    """Whether the embeddings are also the weights of the logits."""
    padding_id: int | None = None
    """The padding token; None: no padding."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if Pattern(self.pattern).cross:
            raise ValueError(f"an encoder has no second sequence to attend to: pattern={self.pattern}")


class TokenClassifier(TokenEmbedder):
    """Embedding, `layers` x (attention, feed-forward network), logits: tokens (B, N) -> logits (B, N, V).

    `attention` is called once per layer as `attention(dim, heads, pattern=, max_length=, dropout=)`. `length_limit` is
    `max_length` if positions or attention end there, else None.
    """

    Config: ClassVar[type[TokenClassifierConfig]] = TokenClassifierConfig

    def __init__(self, attention: Callable[..., Attention], config: TokenClassifierConfig):
        super().__init__(config, config.max_length, padding_id=config.padding_id)
        self.padding_id = config.padding_id
        self.layers = layer_stack(attention, config, config.pattern, config.max_length)
        if any(layer.attention.fixed_length for layer in self.layers):
            self.length_limit = config.max_length
        self.final_norm = config.make_norm() if config.final_norm else nn.Identity()
        self.head = nn.Linear(config.dim, config.vocab_size, bias=False)
        if config.tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (B, N), long -> logits (B, N, V)."""
        return self.head(self.encode(tokens))

    def encode(self, tokens: Tensor) -> Tensor:
        """tokens (B, N), long -> states after the final norm (B, N, D)."""
        x, carry = self.embed(tokens), None
        padding = None if self.padding_id is None else tokens == self.padding_id
        for layer in self.layers:
            x, carry = layer(x, padding, carry)
        return self.final_norm(x)
