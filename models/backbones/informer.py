"""Informer: a forecast of a series in one pass, from its past (Zhou et al., 2021, arXiv 2012.07436).

    x         = Conv3(values) + sinusoids + W time, the convolution circular                      (embedding)
    encoder   ProbSparse layers; between them x = MaxPool_3,2(ELU(BatchNorm(Conv3(x))))                   (5)
    decoder   reads the last `label_len` past values, and zeros for `pred_len` future values              (6)
              masked ProbSparse self-attention, then cross attention to the encoder's states

The attention under test fills the cross attention, where Informer has softmax attention. Where the paper gives no
details, this module follows its code: layers are post-LN, both stacks end in a LayerNorm, every embedding has a bias
but no norm. Attention layers are those of this repository, the same for all models in a table, with Xavier weights. The
decoder's self-attention follows the published code: sums of values for queries that are not chosen, and head outputs
read without a transposition (D-33).

    B batch, S past length, L label length, P predicted length, C channels, T time features
    D width, H heads, E head width
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from models.attention.base import Attention, Pattern
from models.attention.probsparse import ProbSparse, logarithmic, sparsity
from models.backbones.config import LayerConfig
from models.backbones.layer import DecoderLayer, TransformerLayer, chain
from models.layers.dropout import Dropout
from models.layers.positions import SinusoidalPositions
from models.ops.attention import attention
from models.ops.precision import autocast_disabled, upcast


class SeriesEmbedding(nn.Module):
    """(B, N, C) and time features (B, N, T) -> (B, N, D)."""

    def __init__(self, channels: int, time_features: int, length: int, dim: int, dropout: float):
        super().__init__()
        self.values = nn.Conv1d(channels, dim, 3, padding=1, padding_mode="circular")
        nn.init.kaiming_normal_(self.values.weight, nonlinearity="leaky_relu")
        self.time = nn.Linear(time_features, dim)
        self.positions = SinusoidalPositions(length, dim)
        self.dropout = Dropout(dropout)

    def forward(self, values: Tensor, time: Tensor) -> Tensor:
        x = self.values(values.mT).mT + self.time(time)
        return self.dropout(self.positions(x))


class DistillingLayer(nn.Sequential):
    """Halve the length, rounded up: (B, N, D) -> (B, ceil(N / 2), D)."""

    def __init__(self, dim: int):
        super().__init__(
            nn.Conv1d(dim, dim, 3, padding=1, padding_mode="circular"),
            nn.BatchNorm1d(dim),
            nn.ELU(),
            nn.MaxPool1d(3, stride=2, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.mT).mT


class MaskedProbSparse(ProbSparse):
    """The decoder's self-attention: x (B, N, D) -> (B, N, D).

    Chosen queries see keys up to their own; the others get the sum (not the mean) of the values up to their own. The
    choice depends on all positions, so it is not causal (D-27), but the future part of the input is zero. With `mix`
    the head outputs (H, N, E) are read as (N, D) without a transposition, so a position gets H adjacent rows of one
    head, as in the published numbers (D-33).
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.CAUSAL_SELF})

    def __init__(self, dim: int, heads: int, *, mix: bool, **options: Any):
        super().__init__(dim, heads, **options)
        self.mix = mix

    def merge(self, y: Tensor) -> Tensor:
        return y.reshape(len(y), y.shape[2], -1) if self.mix else super().merge(y)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        if key_padding_mask is not None:
            raise ValueError("Informer's decoder takes no padding")
        return masked_probsparse(q, k, v, self.sample(), factor=self.factor, dropout=self.active_dropout)


def masked_probsparse(q: Tensor, k: Tensor, v: Tensor, draws: Tensor, *, factor: int, dropout: float = 0.0) -> Tensor:
    """q, k, v (B, H, N, E), draws as for `probsparse` -> (B, H, N, E)."""
    length = q.shape[2]
    lengths = torch.full((1,), length, device=q.device)
    budget = logarithmic(lengths, factor)
    largest = int(logarithmic(torch.tensor(length, device="cpu"), factor))
    sample = draws[:length, :largest].long()[None] * length // len(draws)  # (1, N, U)
    with torch.no_grad(), autocast_disabled(q):
        chosen = sparsity(upcast(q), upcast(k), sample, budget, lengths).topk(largest, sorted=True)[1]  # (B, H, u)
    rows = chosen[..., None].expand(-1, -1, -1, q.shape[-1])
    visible = torch.arange(length, device=q.device) <= chosen[..., None]  # (B, H, u, N)
    queries, k = q.gather(2, rows).to(v.dtype), k.to(v.dtype)
    attended = attention(queries, k, v, mask=visible, dropout=dropout)
    return upcast(v).cumsum(2).to(attended.dtype).scatter(2, rows, attended)


class Informer(nn.Module):
    """past (B, S, C), its time features (B, S, T), time features of label and future (B, L + P, T) -> (B, P, C).

    `attention`, called as `attention(dim, heads, pattern=, max_length=, dropout=)`, is the decoder's cross attention.
    With `redraw` ProbSparse draws a new sample of keys at each training step, as in Informer, but never in evaluation.
    Raises ValueError for a label that is longer than the past, and for a pattern that is not a cross pattern.
    """

    def __init__(
        self,
        attention: Callable[..., Attention],
        *,
        pattern: Pattern | str,
        channels: int,
        time_features: int,
        seq_len: int,
        label_len: int,
        pred_len: int,
        dim: int,
        heads: int,
        encoder_layers: int,
        decoder_layers: int,
        ffn_dim: int,
        factor: int = 5,
        redraw: bool = True,
        distil: bool = True,
        mix: bool = True,
        dropout: float = 0.05,
        attention_dropout: float = 0.05,
    ):
        super().__init__()
        if label_len > seq_len:
            raise ValueError(f"label_len {label_len} is longer than the past, seq_len {seq_len}")
        if not Pattern(pattern).cross:
            raise ValueError(f"Informer's slot is its cross attention, not {pattern}")
        self.label_len, self.pred_len = label_len, pred_len
        sparse = {"dropout": attention_dropout, "factor": factor, "redraw": redraw}
        layer = LayerConfig(dim=dim, ffn_dim=ffn_dim, dropout=dropout, norm="post")
        future_len = label_len + pred_len
        self.past = SeriesEmbedding(channels, time_features, seq_len, dim, dropout)
        self.future = SeriesEmbedding(channels, time_features, future_len, dim, dropout)
        self.encoder, self.distils, length = nn.ModuleList(), nn.ModuleList(), seq_len
        for number in range(encoder_layers):
            if number and distil:
                self.distils.append(DistillingLayer(dim))
                length = -(-length // 2)
            probsparse = ProbSparse(dim, heads, pattern=Pattern.NONCAUSAL_SELF, max_length=length, **sparse)
            self.encoder.append(TransformerLayer(probsparse, layer))
        self.decoder = nn.ModuleList(
            DecoderLayer(
                MaskedProbSparse(dim, heads, pattern=Pattern.CAUSAL_SELF, max_length=future_len, mix=mix, **sparse),
                attention(dim, heads, pattern=pattern, max_length=max(future_len, length), dropout=attention_dropout),
                layer,
            )
            for _ in range(decoder_layers)
        )
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.head = nn.Linear(dim, channels)
        chain([layer.cross for layer in self.decoder])

    def forward(self, past: Tensor, past_time: Tensor, future_time: Tensor) -> Tensor:
        states = self.encode(past, past_time)
        label = past[:, past.shape[1] - self.label_len :]
        x = self.future(nn.functional.pad(label, (0, 0, 0, self.pred_len)), future_time)
        carry = None
        for layer in self.decoder:
            x, _ = layer.self_attend(x, None, None)
            x, carry = layer.cross_attend(x, states, None, carry)
            if layer is self.decoder[-1]:  # only the forecast is used
                x = x[:, -self.pred_len :]
            x = layer.feed_forward(x)
        return self.head(self.decoder_norm(x))

    def encode(self, past: Tensor, past_time: Tensor) -> Tensor:
        """(B, S, C) and (B, S, T) -> states (B, M, D)."""
        x = self.past(past, past_time)
        for number, layer in enumerate(self.encoder):
            if number and self.distils:
                x = self.distils[number - 1](x)
            x, _ = layer(x, None, None)
        return self.encoder_norm(x)
