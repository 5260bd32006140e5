"""One Transformer layer, the embedding below all of them, and the options that backbones share.

A norm stands before each half of a layer, or after it, with f = attention, then f = feed-forward:

    pre-LN   x + f(norm(x))
    post-LN  norm(x + f(x))

    B batch, N length, D width
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from torch import Tensor, nn

from models.attention.base import Attention, State
from models.layers.feedforward import FeedForward, GatedFeedForward
from models.layers.norms import BatchNorm, ScaleNorm
from models.layers.positions import LearnedPositions, NoPositions, SinusoidalPositions

Choice = TypeVar("Choice")


def choose(options: Mapping[str, Choice], name: str, value: str) -> Choice:
    """options[value]. Raises ValueError that lists the options."""
    if value not in options:
        raise ValueError(f"{name} is one of {', '.join(options)}, not {value}")
    return options[value]


def no_feed_forward(dim: int, hidden_dim: int, dropout: float) -> None:
    """A layer is its first half."""


POSITIONS = {"learned": LearnedPositions, "sinusoidal": SinusoidalPositions, "none": NoPositions}
NORMS: dict[str, Callable[[int], nn.Module]] = {
    "layernorm": nn.LayerNorm,
    "rmsnorm": partial(nn.RMSNorm, eps=1e-6),
    "scalenorm": ScaleNorm,
    "batchnorm": BatchNorm,
}
FFNS: dict[str, Callable[[int, int, float], nn.Module | None]] = {
    "gelu": FeedForward,
    "relu": partial(FeedForward, activation="relu"),
    "silu": partial(FeedForward, activation="silu"),
    "gelu_unbiased": partial(FeedForward, bias=False),
    "glu": GatedFeedForward,
    "none": no_feed_forward,
}


class Embedding(nn.Module):
    """A vector for each token, times sqrt(D) if `scale`, plus its position, norm, dropout: (B, N) -> (B, N, D).

    Vectors are drawn from N(0, std^2), that of `padding_id` is zero. `longest` is the longest sequence it can read:
    `max_length` where positions end there, None where nothing does, or what a backbone sets. Raises ValueError for a
    longer one, and for unknown `positions`.
    """

    def __init__(
        self,
        vocab_size: int,
        dim: int,
        max_length: int,
        *,
        positions: str,
        norm: Callable[[int], nn.Module] | None,
        dropout: float,
        scale: bool,
        std: float,
        padding_id: int | None = None,
    ):
        super().__init__()
        self.table = nn.Embedding(vocab_size, dim, padding_idx=padding_id)
        nn.init.normal_(self.table.weight, std=std)
        if padding_id is not None:
            nn.init.zeros_(self.table.weight[padding_id])
        self.scale = math.sqrt(dim) if scale else 1.0
        self.positions = choose(POSITIONS, "positions", positions)(max_length, dim)
        self.length_limit = max_length if self.positions.ends else None
        self.norm = nn.Identity() if norm is None else norm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        """tokens (B, N), the first at position `start` -> (B, N, D)."""
        end = start + tokens.shape[1]
        if self.length_limit is not None and end > self.length_limit:
            raise ValueError(f"a sequence of {end} tokens, but max_length is {self.length_limit}")
        return self.dropout(self.norm(self.positions(self.table(tokens) * self.scale, start)))


class PreNormLayer(nn.Module):
    """x + f(norm(x)) for f = attention, then for f = feed-forward, unless there is none and no norm of it either."""

    def __init__(
        self,
        attention: Attention,
        dim: int,
        ffn_dim: int,
        dropout: float,
        *,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        ffn: Callable[[int, int, float], nn.Module | None] = FeedForward,
    ):
        super().__init__()
        self.attention, self.ffn = attention, ffn(dim, ffn_dim, dropout)
        self.attention_norm, self.ffn_norm = norm(dim), None if self.ffn is None else norm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, padding: Tensor | None, carry: Any) -> tuple[Tensor, Any]:
        """x (B, N, D), padding (B, N) or None, carry of the layer before -> (x (B, N, D), carry for the next one)."""
        x, carry = self.mix(x, padding, carry)
        return self.feed(x), carry

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        """One token x_t (B, D) -> (B, D), equal to the same row of `forward`."""
        x_t, state = self.mix_step(x_t, state)
        return self.feed(x_t), state

    def mix(self, x: Tensor, padding: Tensor | None, carry: Any) -> tuple[Tensor, Any]:
        """The first half of `forward`."""
        entering = self.enter(self.attention_norm, x)
        y, carry = self.attention(entering, key_padding_mask=padding, carry=carry, **self.residual(x))
        return self.leave(self.attention_norm, x, self.dropout(y)), carry

    def mix_step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        """The first half of `step`."""
        y, state = self.attention.step(self.enter(self.attention_norm, x_t), state, **self.residual(x_t))
        return self.leave(self.attention_norm, x_t, self.dropout(y)), state

    def feed(self, x: Tensor) -> Tensor:
        """The second half of both."""
        if self.ffn is None:
            return x
        return self.leave(self.ffn_norm, x, self.ffn(self.enter(self.ffn_norm, x)))

    def residual(self, x: Tensor) -> dict[str, Tensor]:
        """What attention is told of x besides norm(x)."""
        return {"residual": x} if self.attention.gates_residual else {}

    @staticmethod
    def enter(norm: nn.Module, x: Tensor) -> Tensor:
        """What a half reads."""
        return norm(x)

    @staticmethod
    def leave(norm: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """What a half that gave y for x leaves."""
        return x + y


class PostNormLayer(PreNormLayer):
    """norm(x + f(x)) for f = attention, then for f = feed-forward, if there is one."""

    @staticmethod
    def enter(norm: nn.Module, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def leave(norm: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return norm(x + y)


LAYERS = {"pre": PreNormLayer, "post": PostNormLayer}
