"""Transformer encoder that classifies a sequence of symbols (Vaswani et al., 2017; the LRA tasks).

The options are the union of the Long Range Arena recipes' options (docs/decisions.md):

    google     pre-LN, final norm, sinusoidal positions, `cls`, ReLU classifier as wide as the FFN
    skyformer  pre-LN, final norm, learned positions, `mean` over all positions, Linear-ReLU-Linear classifier
    luna       post-LN, embedding norm, learned positions, `cls`, `cls_mean` or `packed`, Linear-ReLU-Linear classifier
               whose last Linear has no bias
    latte      pre-LN, no final norm, sinusoidal positions, `masked_mean` over the real tokens

    B batch, N length, D width, C classes
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from torch import Tensor, nn

from models.attention.base import Attention, Pattern
from models.backbones.config import LINEAR_INITS, TransformerConfig, check_shares, check_sizes
from models.backbones.embedding import EMBEDDINGS, TokenEmbedder
from models.backbones.layer import layer_stack
from models.layers.dropout import Dropout
from models.layers.feedforward import ACTIVATIONS
from models.layers.initialisers import bert_linears_


def first_pooling(states: Tensor, valid: Tensor, max_length: int) -> Tensor:
    """The state at the first position: the leading learned vector (`cls`) or the first token (`first`, X3)."""
    return states[:, 0]


def mean_pooling(states: Tensor, valid: Tensor, max_length: int) -> Tensor:
    """The sum over the tokens divided by `max_length`: padding up to `max_length` counts, as in Skyformer's code.

    The result does not depend on the padded length of the batch.
    """
    return (states * valid).sum(1) / max_length


def masked_mean_pooling(states: Tensor, valid: Tensor, max_length: int) -> Tensor:
    """The mean over the tokens and, with `cls_mean`, the leading learned vector."""
    return (states * valid).sum(1) / valid.sum(1).clamp(min=1)


def all_mean_pooling(states: Tensor, valid: Tensor, max_length: int) -> Tensor:
    """The mean over all positions, including padding, as in LRA's code, where black pixels are hidden."""
    return states.mean(1)


# (states (B, N, D), valid (B, N, 1), max_length) -> (B, D)
Pooling = Callable[[Tensor, Tensor, int], Tensor]
POOLING: Mapping[str, Pooling] = {
    "cls": first_pooling,
    "first": first_pooling,
    "mean": mean_pooling,
    "masked_mean": masked_mean_pooling,
    "cls_mean": masked_mean_pooling,
    "all_mean": all_mean_pooling,
    "packed": masked_mean_pooling,  # over the last packed sequence instead of the tokens (Luna, Table 3)
}
WITH_CLS = ("cls", "cls_mean")  # the keys with a leading learned vector


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(TransformerConfig):
    """Sizes and options of `EncoderClassifier`."""

    CHOICES: ClassVar[Mapping[str, Collection[str]]] = {
        **TransformerConfig.CHOICES,
        "pooling": POOLING,
        "head_activation": ACTIVATIONS,
        "embedding": EMBEDDINGS,
    }

    classes: int
    """Number of classes C."""
    pattern: Pattern | str = Pattern.NONCAUSAL_SELF
    """The slot that attention fills."""
    attention_bias: bool = True
    """Whether attention projections have biases; False drops those of the multi-head methods."""
    pooling: str = "masked_mean"
    """A key of `POOLING`. With the keys in `WITH_CLS` a learned vector precedes the tokens."""
    head_dim: int | Sequence[int] | None = None
    """Hidden widths of the classifier; None: a single Linear."""
    head_activation: str = "relu"
    """A key of `ACTIVATIONS`, between the classifier's layers."""
    head_bias: bool = True
    """Whether the classifier's last layer has a bias; its hidden layers always have one."""
    cls_std: float | None = None
    """Initial standard deviation of the leading learned vector; None: that of the embeddings."""
    head_dropout: float = 0.0
    """Share of the pooled states that training drops."""
    embedding: str = "table"
    """A key of `EMBEDDINGS`: a `table` of vectors, or a map of token levels (`linear`) or of `one_hot` tokens."""
    padding_id: int | None = 0
    """The padding token; None: no padding."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for width in [self.head_dim] if isinstance(self.head_dim, int) else self.head_dim or ():
            check_sizes(head_dim=width)
        check_shares(head_dropout=self.head_dropout)


class EncoderClassifier(TokenEmbedder):
    """Embedding, `layers` x (attention, feed-forward network), pooling, classifier: tokens (B, N) -> logits (B, C).

    `attention` is called once per layer as `attention(dim, heads, pattern=, max_length=, dropout=)`; a leading learned
    vector makes the sequence one longer. `length_limit` is `max_length` if positions, pooling or attention end there,
    else None. Raises ValueError for `packed` pooling if attention packs nothing, and for `cls` and `first` if the first
    position sees no other.
    """

    Config: ClassVar[type[EncoderConfig]] = EncoderConfig
    pooled_vectors: ClassVar[int] = 1  # concatenated vectors of width D that the classifier reads

    def __init__(self, attention: Callable[..., Attention], config: EncoderConfig):
        cls = config.pooling in WITH_CLS
        cls_std = config.embedding_std if config.cls_std is None else config.cls_std
        super().__init__(
            config,
            config.max_length,
            kind=config.embedding,
            padding_id=config.padding_id,
            cls_std=cls_std if cls else None,
        )
        self.max_length, self.padding_id = config.max_length, config.padding_id
        self.pool, self.pools_packed = POOLING[config.pooling], config.pooling == "packed"
        length = config.max_length + cls
        self.layers = layer_stack(attention, config, config.pattern, length, reads_carry=self.pools_packed)
        if not config.attention_bias:
            for layer in self.layers:
                layer.attention.drop_biases()
        sees_only_itself = self.layers and not any(layer.attention.looks_ahead for layer in self.layers)
        if POOLING[config.pooling] is first_pooling and sees_only_itself:
            raise ValueError(
                f"pooling={config.pooling} reads the first position, which sees no other here: the output would be "
                "constant; set backbone.pooling=masked_mean, or a form of the model that looks ahead"
            )
        if self.pools_packed and not any(layer.attention.has_packed_carry for layer in self.layers[-1:]):
            raise ValueError("pooling=packed requires attention that returns a packed sequence, as noncausal Luna does")
        if config.pooling == "mean" or any(layer.attention.fixed_length for layer in self.layers):
            self.length_limit = config.max_length
        self.final_norm = config.make_norm() if config.final_norm else nn.Identity()
        self.head = self.make_head(config)
        if config.linear_init == "bert":
            bert_linears_(self.layers)

    def make_head(self, config: EncoderConfig) -> nn.Sequential:
        """(B, `pooled_vectors` D) -> logits (B, C)."""
        hidden = [config.head_dim] if isinstance(config.head_dim, int) else config.head_dim or []
        widths = [self.pooled_vectors * config.dim, *hidden]
        head = nn.Sequential(Dropout(config.head_dropout))
        for width, following in pairwise(widths):
            head.extend([nn.Linear(width, following), ACTIVATIONS[config.head_activation]()])
        head.append(nn.Linear(widths[-1], config.classes, bias=config.head_bias))
        LINEAR_INITS[config.linear_init](head)
        return head

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (B, N), long -> logits (B, C)."""
        return self.head(self.encode(tokens))

    def encode(self, tokens: Tensor) -> Tensor:
        """tokens (B, N), long -> the pooled states (B, D)."""
        x, carry = self.embed(tokens), None
        padding = None if self.padding_id is None else tokens == self.padding_id  # (B, N)
        if self.cls is not None and padding is not None:
            padding = nn.functional.pad(padding, (1, 0), value=False)
        for layer in self.layers:
            x, carry = layer(x, padding, carry)
        if self.pools_packed:
            x, padding = carry, (carry == 0).all(-1)
        valid = x.new_ones(1, x.shape[1], 1) if padding is None else (~padding)[:, :, None].to(x.dtype)
        return self.pool(self.final_norm(x), valid, self.max_length)
