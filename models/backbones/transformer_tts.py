"""Transformer TTS: a spectrogram from phonemes, one step at a time (Li et al., 2019, arXiv 1809.08895).

    encoder   embedding, 3 x (convolution, batch norm, ReLU, dropout), projection, positions, pre-LN layers, norm
    decoder   r frames of the previous step -> prenet 2 x (Linear, ReLU, dropout) and a Linear, positions, pre-LN layers
              with cross attention, norm -> r frames, and the logit of being the last step
    postnet   5 x (convolution, batch norm, tanh except in the last, dropout) over all steps, added to the frames

Positions are sinusoids times a learned alpha per stack. Sizes and order are those of fairseq's tts_transformer, which
LAVO's benchmark runs with r = 4, so causal attention runs over a quarter as many positions as frames (X42).

Our readings:
- As published, the prenet applies dropout in evaluation as well. Its masks then depend only on the example's seed, the
  step and the unit, so a score depends neither on the batch nor on whether frames are decoded together or one by one.
- Convolutions read padding as zeros in every layer, so in evaluation no example depends on others in the batch. In
  training, batch norm includes padding, as published.

    B batch, M phonemes, N frames, r frames per step, S = N / r steps, F mels, D width
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.attention.base import Attention, Pattern, State, projection
from models.attention.vanilla import Vanilla
from models.backbones.config import TransformerConfig, check_sizes
from models.backbones.embedding import table_embedding
from models.backbones.layer import DecoderLayer, TransformerLayer, advance_layers, chain
from models.layers.dropout import Dropout
from models.layers.positions import SinusoidalPositions
from models.ops.dropout import drop
from models.ops.heads import split_heads

SLOTS: Mapping[Pattern, str] = {Pattern.CAUSAL_SELF: "decoder", Pattern.NONCAUSAL_SELF: "encoder"}


@dataclass(frozen=True, kw_only=True)
class TransformerTTSConfig(TransformerConfig):
    """Sizes and options of `TransformerTTS`; the defaults are fairseq's. Raises ValueError for a pattern without slot.

    `vocab_size` counts phonemes, padding (0) among them; `max_length` is that of the decoder, in steps.
    """

    CHOICES: ClassVar[Mapping[str, Collection[str]]] = {**TransformerConfig.CHOICES, "positions": ("sinusoidal",)}

    pattern: Pattern | str
    """The slot of the attention under test: `causal_self` the decoder, `noncausal_self` the encoder."""
    max_source_length: int
    """Longest training sequence of phonemes."""
    mels: int
    """Numbers F per frame."""
    frames_per_step: int = 4
    """Frames r that the decoder reads and predicts at once."""
    convolutions: int = 3
    """Number of convolutions in the encoder's prenet."""
    convolution_dropout: float = 0.5
    """Share of each convolution's outputs that training drops, in prenet and postnet."""
    kernel: int = 5
    """Taps of each convolution, an odd number."""
    prenet_dim: int = 256
    prenet_dropout: float = 0.5
    """Dropped share in the decoder's prenet, in training and in evaluation."""
    postnet_dim: int = 512
    postnet_layers: int = 5
    ffn: str = "relu"
    positions: str = "sinusoidal"
    alpha: float = 1.0
    """Initial factor of the sinusoids in both stacks."""
    embedding_std: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if Pattern(self.pattern) not in SLOTS:
            raise ValueError(f"Transformer TTS has the slots {', '.join(SLOTS)}, not {self.pattern}")
        check_sizes(frames_per_step=self.frames_per_step, convolutions=self.convolutions, mels=self.mels)
        if self.postnet_layers < 2 or not self.kernel % 2:
            raise ValueError(f"postnet_layers={self.postnet_layers} is less than 2, or kernel={self.kernel} is even")


class Convolutions(nn.Module):
    """Convolutions with batch norm, activation and dropout: x (B, N, widths[0]) -> (B, N, widths[-1]).

    `padding` (B, N), True at padding, or None.
    """

    def __init__(self, widths: Sequence[int], kernel: int, activations: Sequence[str], dropout: float):
        super().__init__()
        self.activations = [{"relu": torch.relu, "tanh": torch.tanh, "none": lambda x: x}[name] for name in activations]
        self.convolutions = nn.ModuleList(nn.Conv1d(*pair, kernel, padding=kernel // 2) for pair in pairwise(widths))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in widths[1:])
        self.dropout = Dropout(dropout)
        gain = nn.init.calculate_gain(activations[0])  # one gain for all, as in the published code
        for convolution in self.convolutions:
            nn.init.xavier_uniform_(convolution.weight, gain=gain)

    def forward(self, x: Tensor, padding: Tensor | None) -> Tensor:
        for convolution, norm, activation in zip(self.convolutions, self.norms, self.activations, strict=True):
            if padding is not None:
                x = x.masked_fill(padding[..., None], 0.0)
            x = self.dropout(activation(norm(convolution(x.mT)))).mT
        return x


class Prenet(nn.Module):
    """x (B, S, inputs) -> (B, S, D). Dropout is always active; in evaluation `seeds` (B,) determine its masks."""

    def __init__(self, inputs: int, hidden: int, dim: int, dropout: float):
        super().__init__()
        self.hidden = nn.ModuleList([nn.Linear(inputs, hidden), nn.Linear(hidden, hidden)])
        self.out, self.dropout = nn.Linear(hidden, dim), dropout

    def forward(self, x: Tensor, seeds: Tensor, start: int = 0) -> Tensor:
        for number, linear in enumerate(self.hidden):
            x = torch.relu(linear(x))
            if self.training:
                x = drop(x, self.dropout)
            elif self.dropout:
                x = x * kept(seeds, start, *x.shape[1:], self.dropout, number) / (1 - self.dropout)
        return self.out(x)


class ScaledPositions(SinusoidalPositions):
    """x (B, N, D) + alpha times the sinusoids; alpha is learned."""

    def __init__(self, max_length: int, dim: int, alpha: float):
        super().__init__(max_length, dim)
        self.alpha = nn.Parameter(torch.tensor(alpha))

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return x + self.alpha * super().forward(torch.zeros_like(x[:1]), start)


class TransformerTTS(nn.Module):
    """phonemes (B, M), frames (B, N, F) -> (before, after (B, N, F), stop logits (B, S)).

    A step sees the phonemes and the frames of earlier steps: `before` is the decoder's output, `after` adds the
    postnet, which sees all steps. `attention`, called as `attention(dim, heads, pattern=, max_length=, dropout=)`,
    fills the slot of `config.pattern`; softmax attention fills the others. The padding phoneme is 0.
    """

    Config: ClassVar[type[TransformerTTSConfig]] = TransformerTTSConfig

    def __init__(self, attention: Callable[..., Attention], config: TransformerTTSConfig):
        super().__init__()
        self.slot, self.frames_per_step, self.mels = SLOTS[Pattern(config.pattern)], config.frames_per_step, config.mels
        dim, step = config.dim, config.frames_per_step * config.mels

        def make(slot: str, pattern: Pattern, max_length: int) -> Attention:
            made = attention if slot == self.slot else Vanilla
            return made(dim, config.heads, pattern=pattern, max_length=max_length, dropout=config.attention_dropout)

        count, source, target = config.layers, config.max_source_length, config.max_length
        self.embedding = table_embedding(config.vocab_size, dim, 0, config.embedding_std)
        widths = [dim] * (config.convolutions + 1)
        options = {"kernel": config.kernel, "dropout": config.convolution_dropout}
        self.convolutions = Convolutions(widths, activations=["relu"] * config.convolutions, **options)
        self.projection = nn.Linear(dim, dim)
        self.prenet = Prenet(step, config.prenet_dim, dim, config.prenet_dropout)
        self.source_positions, self.positions = (ScaledPositions(n, dim, config.alpha) for n in (source, target))
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(
            TransformerLayer(make("encoder", Pattern.NONCAUSAL_SELF, source), config) for _ in range(count)
        )
        self.decoder = nn.ModuleList(
            DecoderLayer(
                make("decoder", Pattern.CAUSAL_SELF, target),
                make("cross", Pattern.CAUSAL_CROSS, max(source, target)),
                config,
            )
            for _ in range(count)
        )
        self.encoder_norm, self.decoder_norm = config.make_norm(), config.make_norm()
        self.features, self.stop = projection(dim, step, 1.0), nn.Linear(dim, 1)
        widths = [step, *[config.postnet_dim] * (config.postnet_layers - 1), step]
        activations = [*["tanh"] * (config.postnet_layers - 1), "none"]
        self.postnet = Convolutions(widths, activations=activations, **options)
        chain([layer.attention for layer in getattr(self, self.slot)])
        fixed = [any(layer.attention.fixed_length for layer in stack) for stack in (self.encoder, self.decoder)]
        self.limits = tuple(
            limit if is_fixed else None for limit, is_fixed in zip((source, target), fixed, strict=True)
        )

    def forward(
        self, phonemes: Tensor, frames: Tensor, *, frame_padding: Tensor | None = None, seeds: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`frame_padding` (B, N) is True at padding, in whole steps; `seeds` (B,), long, determine the prenet's masks.

        Raises ValueError for frames that are not a whole number of steps.
        """
        states, padding, carry = self.encode(phonemes)
        steps = self.packed(frames)  # (B, S, r F)
        check_limit(steps, self.limits[1])
        x = self.read(F.pad(steps[:, :-1], (0, 0, 1, 0)), seeds_of(seeds, phonemes), 0)
        for layer in self.decoder:
            x, carry = layer(x, states, padding, carry)
        before, stop = self.predict(x)
        return before.unflatten(2, (-1, self.mels)).flatten(1, 2), self.refine(before, frame_padding), stop

    def encode(self, phonemes: Tensor) -> tuple[Tensor, Tensor, object]:
        """phonemes (B, M) -> (states (B, M, D), padding (B, M), carry for the decoder)."""
        check_limit(phonemes, self.limits[0])
        padding, carry = phonemes == 0, None
        x = self.projection(self.convolutions(self.embedding(phonemes), padding))
        x = self.dropout(self.source_positions(x))
        for layer in self.encoder:
            x, carry = layer(x, padding, carry)
        return self.encoder_norm(x), padding, carry

    def init_state(self, phonemes: Tensor, *, seeds: Tensor | None = None) -> State:
        """phonemes (B, M) -> state before the first step. The source is encoded and projected once."""
        states, padding, carry = self.encode(phonemes)
        layers = []
        for layer in self.decoder:
            layer_state, carry = layer.init_state(states, padding, carry)
            layers.append(layer_state)
        return {"layers": layers, "seeds": seeds_of(seeds, phonemes), "seen": 0}

    def step(self, frames: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """frames (B, r, F) of the previous step, initially zeros -> (`before` (B, r, F), stop logits (B,), state).

        Equal to the same step of `forward`.
        """
        x = self.read(frames.flatten(1)[:, None], state["seeds"], state["seen"])[:, 0]
        x, layers = advance_layers(self.decoder, state["layers"], x, "step")
        before, stop = self.predict(x)
        return before.unflatten(1, (-1, self.mels)), stop, {**state, "layers": layers, "seen": state["seen"] + 1}

    def refined(self, before: Tensor, frame_padding: Tensor | None = None) -> Tensor:
        """`before` of all steps (B, N, F) -> `after` (B, N, F). `frame_padding` (B, N) is True at padding."""
        return self.refine(self.packed(before), frame_padding)

    def alignments(self, phonemes: Tensor, frames: Tensor, *, seeds: Tensor | None = None) -> Tensor:
        """Weights of the softmax cross attention, (layers, B, H, S, M), for `phonemes` without padding."""
        weights: list[Tensor] = []

        def look(cross: Vanilla, inputs: tuple[Tensor, Tensor]) -> None:
            queries, keys = (
                split_heads(linear(x), cross.head_dim)
                for linear, x in zip((cross.q_proj, cross.k_proj), inputs, strict=True)
            )
            weights.append((queries @ keys.mT / cross.head_dim**0.5).softmax(-1))

        hooks = [layer.cross.register_forward_pre_hook(look) for layer in self.decoder]
        try:
            self(phonemes, frames, seeds=seeds)
        finally:
            for hook in hooks:
                hook.remove()
        return torch.stack(weights)

    def read(self, steps: Tensor, seeds: Tensor, start: int) -> Tensor:
        """The input of the decoder's layers: steps (B, n, r F) from number `start` on -> (B, n, D)."""
        return self.dropout(self.positions(self.prenet(steps, seeds, start), start))

    def predict(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The last layer's output (..., D) -> frames (..., r F) and stop logits (...)."""
        x = self.decoder_norm(x)
        return self.features(x), self.stop(x)[..., 0]

    def refine(self, steps: Tensor, frame_padding: Tensor | None) -> Tensor:
        """steps (B, S, r F), with the postnet's correction, as frames (B, N, F)."""
        padding = None if frame_padding is None else frame_padding[:, :: self.frames_per_step]
        after = steps + self.postnet(steps, padding)
        return after.unflatten(2, (-1, self.mels)).flatten(1, 2)

    def packed(self, frames: Tensor) -> Tensor:
        """(B, N, F) -> (B, S, r F). Raises ValueError for frames that are not a whole number of steps."""
        if not frames.shape[1] or frames.shape[1] % self.frames_per_step:
            raise ValueError(f"{frames.shape[1]} frames are not a whole number of steps of {self.frames_per_step}")
        return frames.reshape(len(frames), -1, self.frames_per_step * self.mels)


def check_limit(x: Tensor, limit: int | None) -> None:
    """Raises ValueError for a sequence (B, n, ...) beyond the attention's fixed length."""
    if limit is not None and x.shape[1] > limit:
        raise ValueError(f"a sequence of {x.shape[1]}, but max_length is {limit}")


def seeds_of(seeds: Tensor | None, phonemes: Tensor) -> Tensor:
    return phonemes.new_zeros(len(phonemes)) if seeds is None else seeds


WORD = 2**32 - 1  # 32 bits; products wrap around in 64 bits, which does not affect their lower half


def kept(seeds: Tensor, start: int, steps: int, units: int, dropout: float, layer: int) -> Tensor:
    """Kept units, bool (B, steps, units): a function of seed (B,), step, unit and layer, the same on every device.

    Each of the four is mixed in with MurmurHash3's finaliser.
    """
    step = torch.arange(start, start + steps, device=seeds.device)
    unit = torch.arange(units, device=seeds.device)
    mixed = scrambled(scrambled((seeds.long() & WORD) * 2 + layer)[:, None] + step)[..., None] + unit
    return scrambled(mixed) >= dropout * 2**32


def scrambled(x: Tensor) -> Tensor:
    """Each number of x, long, hashed to 32 bits."""
    x = (x + 0x9E3779B9) & WORD
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & WORD
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & WORD
    return x ^ (x >> 16)
