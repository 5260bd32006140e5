"""Perceiver AR (Hawthorne et al., 2022, arXiv 2202.07765) and V1 to V3 (Mahmood & Huang, 2024, arXiv 2412.06106).

The last l of n tokens are the latents x_l, the earlier ones the history x_h. In the first layer the latents attend to
the history and, causally, to themselves; in later layers only to themselves:

    y_l = W_o softmax( E^-1/2 (W_q x_l) (W_k [x_h; x_l])' ) W_v [x_h; x_l]          latent i sees j <= n - l + i  (4-7)
    V1    every layer does that; the history attends to itself, unmasked, with separate weights                  (8-12)
    V2    V1, the history attending within segments of s tokens
    V3    V1 on p slots instead of the history, x_p = W_ph x_h along the sequence, once below all layers        (13-21)

No token sees those that `key_padding_mask` hides: a shorter prompt in a batch is padded at the front, in its history,
with the same result as without the batch (D-46). Only the latents have logits. Time with L layers and h = n - l:
O(l n + L l^2), V1 O(L (h^2 + l n)), V2 O(L (h s + l n)), V3 O(L (p^2 + l (p + l))). Every generated token shifts the
latents, so decoding recomputes the last n tokens (D-15). Layers are pre-LN. V3 compresses below all layers or, as its
printed tables imply, after the first; slots take the middle of their share of the history as position (D-16).

    B batch, N length, l latents, S history, M = S + l, H heads, E head width
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.base import State
from models.backbones.config import check_sizes
from models.backbones.decoder import DecoderConfig, LanguageModel
from models.layers.dropout import Dropout
from models.layers.feedforward import in_slices
from models.ops.attention import attention
from models.ops.heads import merge_heads, split_heads
from models.ops.padding import see_something
from models.ops.positions import apply_rope, rope_frequencies


@dataclass(frozen=True, kw_only=True)
class PerceiverConfig(DecoderConfig):
    """Sizes and options of Perceiver AR. Raises ValueError for sizes that do not fit."""

    takes_short_conv: ClassVar[bool] = False
    CHOICES: ClassVar[Mapping[str, Collection[str]]] = {**DecoderConfig.CHOICES, "norm": ("pre",)}

    latents: int
    """Number l of latents, 1 to `max_length`."""
    rotary: bool = True
    """Whether queries and keys have rotary positions, in addition to `positions` of the embedding."""
    head_dim: int | None = None
    """Head width E; None: D / H."""
    output_bias: bool = True
    """Whether the output projections of all layers but the first have a bias."""
    history_dropout: float = 0.0
    """Share of history tokens that training hides from the latents."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.latents <= self.max_length:
            raise ValueError(f"latents={self.latents} is not in 1..{self.max_length}, the max_length")
        if self.head_dim is None and self.dim % self.heads:
            raise ValueError(f"width {self.dim} is not a multiple of {self.heads} heads")


@dataclass(frozen=True, kw_only=True)
class SegmentedPerceiverConfig(PerceiverConfig):
    """Sizes and options of V2."""

    segment: int
    """Length s of the segments for the attention within the history."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(segment=self.segment)


@dataclass(frozen=True, kw_only=True)
class CompressedPerceiverConfig(PerceiverConfig):
    """Sizes and options of V3."""

    compressed: int
    """Number p of slots that replace the history."""
    compress_after_first: bool = False
    """Whether the first layer's latents see the whole history, which is compressed after that layer (D-16)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(compressed=self.compressed)
        if self.compress_after_first and self.layers < 2:
            raise ValueError(f"compress_after_first requires a second layer, not layers={self.layers}")


class CrossAttention(nn.Module):
    """Softmax attention of x (B, N, D) to a context (B, M, D) with rotary positions: D (4 H E + 1) parameters."""

    def __init__(self, config: PerceiverConfig, *, output_bias: bool):
        super().__init__()
        head_dim = config.head_dim or config.dim // config.heads
        self.head_dim, self.dropout = head_dim, config.attention_dropout
        # perceiver-ar-pytorch rotates the first max(32, E/2) channels of a head, in halves
        self.rotary_dim = min(head_dim, max(32, head_dim // 2)) if config.rotary else 0
        rope_frequencies(self.rotary_dim)  # refuses an odd width
        inner = config.heads * head_dim
        self.q_proj = nn.Linear(config.dim, inner, bias=False)
        self.kv_proj = nn.Linear(config.dim, 2 * inner, bias=False)
        self.out_proj = nn.Linear(inner, config.dim, bias=output_bias)

    def forward(self, x: Tensor, context: Tensor, positions: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        """`positions` (M,) are those of the context, whose last N tokens are x.

        attn_mask (N, M), (B, 1, 1, M) or (B, 1, N, M) is True where a key is visible.
        """
        q = split_heads(self.q_proj(x), self.head_dim)  # (B, H, N, E)
        k, v = (split_heads(part, self.head_dim) for part in self.kv_proj(context).chunk(2, -1))  # (B, H, M, E)
        if self.rotary_dim:
            frequencies = rope_frequencies(self.rotary_dim, device=x.device)
            q = apply_rope(q, positions[-q.shape[2] :], frequencies, interleaved=False)
            k = apply_rope(k, positions, frequencies, interleaved=False)
        dropout = self.dropout if self.training else 0.0
        y = attention(q, k, v, mask=attn_mask, dropout=dropout)
        return self.out_proj(merge_heads(y))


class PerceiverLayer(nn.Module):
    """Causal attention of the latents and feed-forward network, both pre-LN.

    With `reads_history` the latents also attend to the history. With `refines_history` the layer updates the history
    for the next one: the history attends to itself, within segments of `segment` tokens unless None, and passes through
    the same feed-forward network. One history norm precedes both attentions, each of which has a separate output
    projection, as in LLP's listing.
    """

    is_layer = True  # `resources.checkpoint_layers` computes it again

    def __init__(
        self,
        config: PerceiverConfig,
        *,
        reads_history: bool,
        refines_history: bool,
        output_bias: bool,
        segment: int | None,
    ):
        super().__init__()
        self.attention = CrossAttention(config, output_bias=output_bias)
        ffn = config.make_ffn()
        self.history_attention = CrossAttention(config, output_bias=config.output_bias) if refines_history else None
        self.ffn = ffn
        self.norm, self.ffn_norm = config.make_norm(), None if ffn is None else config.make_norm()
        self.history_norm = config.make_norm() if reads_history else None
        self.dropout, self.history_dropout, self.segment = Dropout(config.dropout), config.history_dropout, segment

    def forward(
        self, history: Tensor, x: Tensor, positions: Tensor, hidden: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """history (B, S, D), latents x (B, l, D), positions (S + l,) -> (history, x) for the next layer.

        `hidden` (B, S + l) is True at hidden tokens.
        """
        latents = context = self.norm(x)
        if self.history_norm is not None:
            normed = self.history_norm(history)
            context = torch.cat([normed, latents], 1)
            if self.history_attention is not None and normed.shape[1]:
                y = self.history_self_attend(normed, positions, hidden)
                history = self.feed_forward(history + self.dropout(y))
        positions = positions[-context.shape[1] :]
        y = self.attention(latents, context, positions, self.attention_mask(latents, context, hidden))
        return history, self.feed_forward(x + self.dropout(y))

    def feed_forward(self, x: Tensor) -> Tensor:
        if self.ffn is None:
            return x
        return x + in_slices(self.ffn, self.ffn_norm(x))

    def attention_mask(self, latents: Tensor, context: Tensor, hidden: Tensor | None = None) -> Tensor:
        """(l, M), or (B, 1, l, M) with hidden tokens: True where a latent sees a token. Training may hide more."""
        length, end = latents.shape[1], context.shape[1]
        history = end - length
        visible = torch.ones(length, end, dtype=torch.bool, device=latents.device).tril(history)
        dropped = int(history * self.history_dropout) if self.training else 0
        if dropped:
            order = torch.rand(len(latents), history, device=latents.device).argsort(1)
            visible = visible & F.pad(order >= dropped, (0, length), value=True)[:, None, None]
        return visible if hidden is None else hide(visible, hidden[:, -end:])

    def history_self_attend(self, history: Tensor, positions: Tensor, hidden: Tensor | None = None) -> Tensor:
        """Self-attention of the history within segments: (B, S, D) -> (B, S, D)."""
        batch, length, dim = history.shape
        size = self.segment or length
        end = length - length % size
        parts = []
        if end:  # full segments as a batch; rotary positions encode only distances, so each may start at 0
            full = history[:, :end].reshape(-1, size, dim)
            mask = None if hidden is None else hide(True, hidden[:, :end].reshape(-1, size))
            parts.append(self.history_attention(full, full, positions[:size], mask).reshape(batch, end, dim))
        if end < length:
            rest = history[:, end:]
            mask = None if hidden is None else hide(True, hidden[:, end:length])
            parts.append(self.history_attention(rest, rest, positions[end:length], mask))
        return torch.cat(parts, 1)


def hide(visible: Tensor | bool, hidden: Tensor) -> Tensor:
    """`visible` (.., N or 1, M) without the keys of `hidden` (B, M): (B, 1, N or 1, M)."""
    return see_something(visible & ~hidden[:, None, None])


class PerceiverAR(LanguageModel):
    """Tokens (B, N) -> logits (B, min(l, N), V) at the last l positions (`logit_positions`), or losses there."""

    Config: ClassVar[type[PerceiverConfig]] = PerceiverConfig
    refines_history: ClassVar[bool] = False  # True: every layer reads the history, and all but the last refine it

    def __init__(self, config: PerceiverConfig):
        super().__init__(config)
        self.latents, self.compression = config.latents, None
        self.compressed_before = int(getattr(config, "compress_after_first", False))  # number of a layer
        if (compressed := getattr(config, "compressed", None)) is not None:  # along the sequence, for all channels
            self.compression = nn.Linear(config.max_length - config.latents, compressed, bias=False)
            self.length_limit = config.max_length
        self.layers = nn.ModuleList(
            PerceiverLayer(
                config,
                reads_history=i == 0 or self.refines_history,
                # no layer reads the last layer's history, and none before the compression refines it
                refines_history=self.refines_history and self.compressed_before <= i < config.layers - 1,
                output_bias=config.output_bias or i == 0,
                segment=getattr(config, "segment", None),
            )
            for i in range(config.layers)
        )

    def forward(
        self, tokens: Tensor, targets: Tensor | None = None, *, key_padding_mask: Tensor | None = None
    ) -> Tensor:
        """tokens (B, N), long -> logits (B, min(l, N), V); with targets (B, k) losses (B, min(k, l, N)).

        `key_padding_mask` (B, N) is True at tokens to hide.
        """
        hidden = self.hidden_states(tokens, key_padding_mask)
        return self.logits(hidden) if targets is None else self.losses(hidden, targets)

    def hidden_states(self, tokens: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """The latents after the last layer, (B, min(l, N), D)."""
        x = self.embed(tokens)
        first = self.logit_positions(tokens.shape[1]).start
        positions = torch.arange(tokens.shape[1], device=x.device)
        history, x, hidden = x[:, :first], x[:, first:], key_padding_mask
        for i, layer in enumerate(self.layers):
            if i == self.compressed_before:
                if key_padding_mask is not None:  # V3's W_ph reads zeros there, as before a short history
                    history = history.masked_fill(key_padding_mask[:, :first, None], 0.0)
                history, positions = self.compress(history, positions)
                hidden = self.hidden_keys(key_padding_mask, first, history.shape[1])
            history, x = layer(history, x, positions, hidden)
        return x

    def hidden_keys(self, key_padding_mask: Tensor | None, first: int, slots: int) -> Tensor | None:
        """(B, N) with the history first -> (B, S + l); all slots of a hidden history are hidden."""
        if key_padding_mask is None or self.compression is None or not first:
            return key_padding_mask
        history, latents = key_padding_mask[:, :first], key_padding_mask[:, first:]
        return torch.cat([history.all(1, keepdim=True).expand(-1, slots), latents], 1)

    def compress(self, history: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """history (B, h, D) or, in V3, its slots (B, p, D), and the positions of both these and the latents.

        The position of slot i is the middle of its share of the history, floor((i + 1/2) h / p). A shorter history than
        in training uses the last columns of W_ph; an empty one has no slots (D-16).
        """
        length = history.shape[1]
        if self.compression is None or not length:
            return history, positions
        slots, span = self.compression.weight.shape
        middles = (2 * torch.arange(slots, device=positions.device) + 1) * span // (2 * slots) - (span - length)
        return self.compression.weight[:, span - length :] @ history, torch.cat([middles, positions[length:]])

    def logit_positions(self, length: int) -> range:
        return range(max(0, length - self.latents), length)

    def init_state(self, batch: int) -> State:
        """The tokens that the next step recomputes, and which of them are hidden."""
        return {"tokens": self.embedding.weight.new_zeros(batch, 0, dtype=torch.long), "key_padding_mask": None}

    def prefill(self, prompt: Tensor, *, key_padding_mask: Tensor | None = None) -> tuple[Tensor, State]:
        recent = prompt[:, -self.max_length :]
        hidden = None if key_padding_mask is None else key_padding_mask[:, -self.max_length :]
        logits = self.logits(self.hidden_states(recent, hidden)[:, -1])
        return logits, {"tokens": recent, "key_padding_mask": hidden}

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        tokens, hidden = torch.cat([state["tokens"], token[:, None]], 1), state["key_padding_mask"]
        return self.prefill(tokens, key_padding_mask=None if hidden is None else F.pad(hidden, (0, 1)))


class PerceiverARV1(PerceiverAR):
    """Every layer reads the history, and refines it for the next one."""

    refines_history = True


class PerceiverARV2(PerceiverARV1):
    """V1 whose history attends within segments of `segment` tokens."""

    Config = SegmentedPerceiverConfig


class PerceiverARV3(PerceiverARV1):
    """V1 on a history compressed to `compressed` vectors: p (max_length - l) additional parameters.

    Equations 13 to 21 compress below the first layer. According to Tables 7 and 8 the first layer reads the whole
    sequence, and later layers read and refine the slots: `compress_after_first` (D-16).
    """

    Config = CompressedPerceiverConfig
