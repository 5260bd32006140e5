"""Sizes and options of Transformer backbones, one typed object per model.

`EncoderClassifier`, `DecoderLM`, `Seq2Seq` and `PerceiverAR` each have a `Config` that extends `TransformerConfig`. A
recipe's `backbone:` keys are its fields. The fields are the union of the options in the papers' recipes; a name that is
missing in a table below is refused with the list of its names.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch import nn

from models.attention.base import Pattern, check_choice
from models.layers.convolution import ShortConvolution
from models.layers.feedforward import FeedForward, GatedFeedForward
from models.layers.initialisers import bert_linears_, keep_as_they_are, lecun_normal_linears_
from models.layers.norms import BatchNorm, ScaleNorm
from models.layers.positions import LearnedPositions, NoPositions, SinusoidalPositions


def check_sizes(**sizes: int | None) -> None:
    """Raises ValueError for a size below 1. None is no size."""
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"{name}={size} is less than 1")


def check_shares(**shares: float | None) -> None:
    """Raises ValueError for a share outside [0, 1]."""
    for name, share in shares.items():
        if share is not None and not 0 <= share <= 1:
            raise ValueError(f"{name}={share} is not between 0 and 1")


def no_feed_forward(dim: int, hidden_dim: int, dropout: float, *, activation_dropout: float | None = None) -> None:
    """No feed-forward network: the layer consists of attention."""


NORM_PLACEMENTS = ("pre", "post")
NORMS: Mapping[str, Callable[..., nn.Module]] = {
    "layernorm": nn.LayerNorm,
    "rmsnorm": partial(nn.RMSNorm, eps=1e-6),
    "scalenorm": ScaleNorm,
    "batchnorm": BatchNorm,
}
FFNS: Mapping[str, Callable[..., nn.Module | None]] = {
    "gelu": FeedForward,
    "gelu_tanh": partial(FeedForward, activation="gelu_tanh"),
    "relu": partial(FeedForward, activation="relu"),
    "silu": partial(FeedForward, activation="silu"),
    "gelu_unbiased": partial(FeedForward, bias=False),
    "glu": GatedFeedForward,
    "geglu": partial(GatedFeedForward, activation="gelu_tanh"),
    "swiglu": partial(GatedFeedForward, activation="silu"),
    "none": no_feed_forward,
}
POSITIONS: Mapping[str, Callable[[int, int, float], nn.Module]] = {
    "learned": LearnedPositions,
    "sinusoidal": SinusoidalPositions,
    "none": NoPositions,
}
LINEAR_INITS: Mapping[str, Callable[[nn.Module], None]] = {
    "torch": keep_as_they_are,
    "lecun_normal": lecun_normal_linears_,
    "bert": bert_linears_,
}


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """One Transformer layer around a given attention. Raises ValueError for an unknown choice or size."""

    CHOICES: ClassVar[Mapping[str, Collection[str]]] = {
        "norm": NORM_PLACEMENTS,
        "norm_kind": NORMS,
        "ffn": FFNS,
        "linear_init": LINEAR_INITS,
    }

    dim: int
    """Width D of the residual stream."""
    ffn_dim: int
    """Hidden width of the feed-forward network."""
    dropout: float = 0.1
    """Share of the outputs of embedding, attention and feed-forward network that training drops."""
    activation_dropout: float | None = None
    """Share of the feed-forward network's hidden units that training drops; None: same as `dropout`."""
    norm: str = "pre"
    """Placement of norms: `pre` x + f(norm(x)), `post` norm(x + f(x))."""
    norm_kind: str = "layernorm"
    """A key of `NORMS`."""
    norm_eps: float | None = None
    """The epsilon of norms; None: 1e-5, or 1e-6 for `rmsnorm`."""
    ffn: str = "gelu"
    """A key of `FFNS`: the feed-forward network's activation; `glu` is a gated network, `none` no network."""
    linear_init: str = "torch"
    """A key of `LINEAR_INITS`: initial values of Linears in feed-forward networks and classifiers; `bert` also applies
    to an encoder's attention."""
    short_conv: int | None = None
    """Taps of a depthwise convolution on the input of every self-attention, behind its norm; None or 1: none. It is
    causal where the attention is, else centred."""

    takes_short_conv: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, choices in self.CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        check_sizes(dim=self.dim, ffn_dim=None if self.ffn == "none" else self.ffn_dim)
        check_shares(dropout=self.dropout, activation_dropout=self.activation_dropout)
        check_sizes(short_conv=self.short_conv)
        if (self.short_conv or 1) > 1 and not self.takes_short_conv:
            raise ValueError(f"short_conv={self.short_conv}: this model has no place for a short convolution")

    def make_norm(self) -> nn.Module:
        eps = {} if self.norm_eps is None else {"eps": self.norm_eps}
        return NORMS[self.norm_kind](self.dim, **eps)

    def make_short_conv(self, pattern: Pattern) -> ShortConvolution | None:
        if pattern.cross or (self.short_conv or 1) == 1:
            return None
        return ShortConvolution(self.dim, self.short_conv, causal=pattern.causal)

    def make_ffn(self) -> nn.Module | None:
        ffn = FFNS[self.ffn](self.dim, self.ffn_dim, self.dropout, activation_dropout=self.activation_dropout)
        if ffn is not None:
            LINEAR_INITS[self.linear_init](ffn)
        return ffn


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(LayerConfig):
    """Options of every Transformer over tokens."""

    CHOICES: ClassVar[Mapping[str, Collection[str]]] = {**LayerConfig.CHOICES, "positions": POSITIONS}

    vocab_size: int
    """Number of token ids V."""
    max_length: int
    """Longest training sequence."""
    heads: int
    """Attention heads H of each layer."""
    layers: int
    """Number of layers; in an encoder-decoder, per stack."""
    attention_dropout: float = 0.1
    """Share of attention weights that training drops."""
    positions: str = "learned"
    """A key of `POSITIONS`: the position encoding added to the embeddings."""
    final_norm: bool = True
    """Whether a norm follows the last layer."""
    embedding_norm: bool = False
    """Whether a norm follows embedding and positions."""
    embedding_scale: bool = False
    """Whether embeddings are multiplied by sqrt(D)."""
    embedding_std: float = 0.02
    """Initial standard deviation of the embeddings."""
    positions_std: float = 0.02
    """Initial standard deviation of learned positions; the default is BERT's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(vocab_size=self.vocab_size, max_length=self.max_length, heads=self.heads)
        check_shares(attention_dropout=self.attention_dropout)
        if (self.short_conv or 1) > self.max_length:
            raise ValueError(f"short_conv={self.short_conv} is longer than the text of {self.max_length} tokens")
        if min(self.embedding_std, self.positions_std) < 0:
            raise ValueError(f"embedding_std={self.embedding_std}, positions_std={self.positions_std}: less than 0")
