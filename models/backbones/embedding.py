"""Tokens to vectors: the bottom of every backbone that reads tokens.

    embed(t) = dropout(norm(positions(scale * [cls; embedding(t)])))

Positions, norm, scale and the leading learned vector `cls` are options.

    B batch, N length, D width
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from models.backbones.config import POSITIONS, TransformerConfig
from models.layers.dropout import Dropout
from models.layers.initialisers import truncated_normal_


class LevelEmbedding(nn.Linear):
    """Tokens as brightness levels, 0 to `vocab_size` - 1, scaled to [-1, 1] and mapped linearly: (...) -> (..., D).

    Latte's code embeds Pathfinder this way. The initial map is drawn from N(0, std^2) with a zero bias; padding counts
    as a level.
    """

    def __init__(self, vocab_size: int, dim: int, padding_id: int | None, std: float):
        super().__init__(1, dim)
        self.highest = vocab_size - 1
        nn.init.normal_(self.weight, std=std)
        nn.init.zeros_(self.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(2 * tokens.to(self.weight.dtype)[..., None] / self.highest - 1)


class OneHotEmbedding(nn.Embedding):
    """A Linear map of one-hot tokens: one vector per token, including padding, and one bias for all (D-44).

    S5's code embeds tokens with flax's Dense: initial weights are truncated normal with standard deviation `std`, the
    initial bias is zero.
    """

    def __init__(self, vocab_size: int, dim: int, padding_id: int | None, std: float):
        super().__init__(vocab_size, dim)
        truncated_normal_(self.weight, std)
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) + self.bias


def table_embedding(vocab_size: int, dim: int, padding_id: int | None, std: float) -> nn.Embedding:
    """One vector per token, initially from N(0, std^2); that of `padding_id` is zero."""
    table = nn.Embedding(vocab_size, dim, padding_idx=padding_id)
    nn.init.normal_(table.weight, std=std)
    if padding_id is not None:
        nn.init.zeros_(table.weight[padding_id])
    return table


EMBEDDINGS: Mapping[str, Callable[[int, int, int | None, float], nn.Module]] = {
    "table": table_embedding,
    "linear": LevelEmbedding,
    "one_hot": OneHotEmbedding,
}


class TokenEmbedder(nn.Module):
    """Base of the models that read tokens, and the embedding of one language. `embed` maps (B, N) -> (B, N, D).

    `kind` is a key of `EMBEDDINGS`; with `cls_std` a learned vector from N(0, cls_std^2) precedes the tokens.
    `length_limit` is the longest sequence that can be embedded: `max_length` if the positions end there, else None. A
    model sets it if its own layers have a limit.
    """

    def __init__(
        self,
        config: TransformerConfig,
        max_length: int,
        *,
        kind: str = "table",
        padding_id: int | None = None,
        cls_std: float | None = None,
    ):
        super().__init__()
        dim = config.dim
        self.embedding = EMBEDDINGS[kind](config.vocab_size, dim, padding_id, config.embedding_std)
        self.cls = None
        if cls_std is not None:
            self.cls = nn.Parameter(torch.empty(dim))
            nn.init.normal_(self.cls, std=cls_std)
        self.embedding_scale = math.sqrt(dim) if config.embedding_scale else 1.0
        self.positions = POSITIONS[config.positions](max_length + (self.cls is not None), dim, config.positions_std)
        self.length_limit = max_length if self.positions.ends else None
        self.embedding_norm = config.make_norm() if config.embedding_norm else nn.Identity()
        self.embedding_dropout = Dropout(config.dropout)

    def embed(self, tokens: Tensor, start: int = 0) -> Tensor:
        """tokens (B, N), the first at position `start` -> (B, N, D), or (B, 1 + N, D) with the leading learned vector.

        Raises ValueError for a sequence that is longer than `length_limit`.
        """
        end = start + tokens.shape[1]
        if self.length_limit is not None and end > self.length_limit:
            raise ValueError(f"a sequence of {end} tokens, but max_length is {self.length_limit}")
        x = self.embedding(tokens)  # (B, N, D)
        if self.cls is not None:
            x = torch.cat([self.cls.expand(len(x), 1, -1), x], 1)
        return self.embedding_dropout(self.embedding_norm(self.positions(x * self.embedding_scale, start)))
