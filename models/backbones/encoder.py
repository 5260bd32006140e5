"""Transformer encoder that reads a sequence of symbols and names its class (Vaswani et al., 2017; the LRA tasks).

The options are the union of what the recipes for the Long Range Arena do (docs/decisions.md):

    google     pre-LN, final norm, sinusoidal positions, `cls`, ReLU classifier of the width of the FFN
    skyformer  pre-LN, final norm, learned positions, `mean` over all positions, Linear-ReLU-Linear classifier
    luna       post-LN, embedding norm, embeddings times sqrt(D), sinusoidal positions, `cls` or `packed`, one Linear
               without bias
    latte      pre-LN, `masked_mean` over the tokens that are not padding

    B batch, N length, D width, C classes
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from models.attention.base import Attention, Pattern
from models.backbones.layer import FFNS, LAYERS, NORMS, POSITIONS, choose


def cls_pooling(states: Tensor, valid: Tensor, max_length: int) -> Tensor:
    """State of the learned vector in front."""
    return states[:, 0]


def first_pooling(states: Tensor, valid: Tensor, max_length: int) -> Tensor:
    """State of the first token, with nothing in front: what LRA's pairs of documents are read by (X3)."""
    return states[:, 0]


def mean_pooling(states: Tensor, valid: Tensor, max_length: int) -> Tensor:
    """Sum over the tokens by the longest length: padding up to `max_length` counts, as in Skyformer's code.

    So a batch may be padded to any length, or to none, with the same result.
    """
    return (states * valid).sum(1) / max_length


def masked_mean_pooling(states: Tensor, valid: Tensor, max_length: int) -> Tensor:
    """Mean over the tokens."""
    return (states * valid).sum(1) / valid.sum(1).clamp(min=1)


def all_mean_pooling(states: Tensor, valid: Tensor, max_length: int) -> Tensor:
    """Mean over all positions, those of padding, too: as LRA's code does where black pixels are hidden."""
    return states.mean(1)


def packed_pooling(states: Tensor, valid: Tensor, max_length: int) -> Tensor:
    """Mean over the rows of the last packed sequence in place of the tokens (Luna, Table 3)."""
    return masked_mean_pooling(states, valid, max_length)


Pooling = Callable[[Tensor, Tensor, int], Tensor]  # (B, N, D), (B, N, 1), max_length -> (B, D)
POOLING: dict[str, Pooling] = {
    "cls": cls_pooling,
    "first": first_pooling,
    "mean": mean_pooling,
    "masked_mean": masked_mean_pooling,
    "all_mean": all_mean_pooling,
    "packed": packed_pooling,
}
ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU}


class LevelEmbedding(nn.Linear):
    """Tokens as levels of brightness, 0 to `vocab_size` - 1, scaled to [-1, 1] and mapped linearly: (...) -> (..., D).

    Latte's code reads Pathfinder so. The map is drawn from N(0, std^2) and its bias is 0; padding is a level, too.
    """

    def __init__(self, vocab_size: int, dim: int, padding_id: int | None, std: float):
        super().__init__(1, dim)
        self.highest = vocab_size - 1
        nn.init.normal_(self.weight, std=std)
        nn.init.zeros_(self.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(2 * tokens.to(self.weight.dtype)[..., None] / self.highest - 1)


def table_embedding(vocab_size: int, dim: int, padding_id: int | None, std: float) -> nn.Embedding:
    """A vector for each token, drawn from N(0, std^2); that of `padding_id` is zero."""
    table = nn.Embedding(vocab_size, dim, padding_idx=padding_id)
    nn.init.normal_(table.weight, std=std)
    if padding_id is not None:
        nn.init.zeros_(table.weight[padding_id])
    return table


EMBEDDINGS: dict[str, Callable[[int, int, int | None, float], nn.Module]] = {
    "table": table_embedding,
    "linear": LevelEmbedding,
}


class EncoderClassifier(nn.Module):
    """Embedding, positions, `layers` x (attention, feed-forward), pooling, classifier: tokens (B, N) -> logits (B, C).

    `attention` is called once per layer as `attention(dim, heads, pattern=, max_length=, dropout=)`; with `cls` pooling
    the sequence is one longer. `head_dim` is the hidden width of the classifier, a list for several hidden layers, None
    for a single Linear. `embedding` is a `table` of vectors, or `linear` in tokens that are levels. `padding_id` is the
    token that is no token, None if there is none. Raises ValueError for an unknown option, for `packed` pooling of
    attention that packs nothing, and for a sequence longer than `longest`: `max_length` where positions, pooling or
    attention end there, None where nothing does.
    """

    vectors: ClassVar[int] = 1  # of width D, side by side, that the classifier reads

    def __init__(
        self,
        attention: Callable[..., Attention],
        *,
        pattern: Pattern | str = Pattern.NONCAUSAL_SELF,
        vocab_size: int,
        classes: int,
        max_length: int,
        dim: int,
        heads: int,
        layers: int,
        ffn_dim: int,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        norm: str = "pre",
        norm_kind: str = "layernorm",
        ffn: str = "gelu",
        positions: str = "learned",
        pooling: str = "masked_mean",
        head_dim: int | Sequence[int] | None = None,
        head_activation: str = "relu",
        head_bias: bool = True,
        head_dropout: float = 0.0,
        final_norm: bool = True,
        embedding: str = "table",
        embedding_norm: bool = False,
        embedding_scale: bool = False,
        embedding_std: float = 0.02,
        padding_id: int | None = 0,
    ):
        super().__init__()
        self.max_length, self.padding_id = max_length, padding_id
        self.pool = choose(POOLING, "pooling", pooling)
        layer, normalise = choose(LAYERS, "norm", norm), choose(NORMS, "norm_kind", norm_kind)
        feed_forward = choose(FFNS, "ffn", ffn)
        self.embedding = choose(EMBEDDINGS, "embedding", embedding)(vocab_size, dim, padding_id, embedding_std)
        self.cls = None
        if self.pool is cls_pooling:
            self.cls = nn.Parameter(torch.empty(dim))
            nn.init.normal_(self.cls, std=embedding_std)
        length = max_length + (self.cls is not None)
        self.scale = math.sqrt(dim) if embedding_scale else 1.0
        self.positions = choose(POSITIONS, "positions", positions)(length, dim)
        self.embedding_norm = normalise(dim) if embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            layer(
                attention(dim, heads, pattern=pattern, max_length=length, dropout=attention_dropout),
                dim,
                ffn_dim,
                dropout,
                norm=normalise,
                ffn=feed_forward,
            )
            for _ in range(layers)
        )
        for previous, layer in pairwise(self.layers):
            layer.attention.set_previous(previous.attention)
        if self.pool is packed_pooling and not any(layer.attention.has_packed_carry for layer in self.layers[-1:]):
            raise ValueError("pooling=packed needs attention that hands over a packed sequence, as noncausal Luna does")
        self.final_norm = normalise(dim) if final_norm else nn.Identity()
        fixed = self.positions.ends or self.pool is mean_pooling or any(y.attention.fixed_length for y in self.layers)
        self.length_limit = max_length if fixed else None
        activation = choose(ACTIVATIONS, "head_activation", head_activation)
        widths = [self.vectors * dim, *([head_dim] if isinstance(head_dim, int) else head_dim or [])]
        self.head = nn.Sequential(nn.Dropout(head_dropout))
        for width, hidden in pairwise(widths):
            self.head.extend([nn.Linear(width, hidden, bias=head_bias), activation()])
        self.head.append(nn.Linear(widths[-1], classes, bias=head_bias))

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (B, N), long -> logits (B, C)."""
        return self.head(self.encode(tokens))

    def encode(self, tokens: Tensor) -> Tensor:
        """tokens (B, N), long -> the pooled states (B, D)."""
        if self.length_limit is not None and tokens.shape[1] > self.length_limit:
            raise ValueError(f"a sequence of {tokens.shape[1]} tokens, but max_length is {self.length_limit}")
        padding = None if self.padding_id is None else tokens == self.padding_id  # (B, N)
        x = self.embedding(tokens)  # (B, N, D)
        if self.cls is not None:
            x = torch.cat([self.cls.expand(len(x), 1, -1), x], 1)
            padding = None if padding is None else nn.functional.pad(padding, (1, 0), value=False)
        x = self.dropout(self.embedding_norm(self.positions(x * self.scale)))
        carry = None
        for layer in self.layers:
            x, carry = layer(x, padding, carry)
        if self.pool is packed_pooling:
            x, padding = carry, (carry == 0).all(-1)
        valid = x.new_ones(1, x.shape[1], 1) if padding is None else (~padding)[:, :, None].to(x.dtype)
        return self.pool(self.final_norm(x), valid, self.max_length)
