"""Encoder-decoder Transformer (Vaswani et al., 2017): translation and summarisation.

Its attention stands in three slots, which tables fill one at a time (LAVO Tables 4 and 6) or together (Luna Table 5):

    encoder_self   noncausal self-attention over the source
    decoder_self   causal self-attention over the target
    cross          attention of the target to the states of the source

What one layer hands to the next (Luna's packed P) goes up the encoder, then through both attentions of each decoder
layer. Decoding keeps the states of the source; a token costs a step of each self-attention and one query of each cross
attention.

    B batch, M source length, N target length, D width, V vocabulary
"""

from collections.abc import Callable, Collection
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from models.attention.base import Attention, Pattern, State
from models.attention.vanilla import Vanilla
from models.backbones.layer import FFNS, LAYERS, NORMS, Embedding, PostNormLayer, PreNormLayer, choose

SLOTS = {
    "encoder_self": Pattern.NONCAUSAL_SELF,
    "decoder_self": Pattern.CAUSAL_SELF,
    "cross": Pattern.CAUSAL_CROSS,
}


class WithCross(PreNormLayer):
    """A layer whose second attention, `cross`, reads a source between the two halves."""

    def __init__(
        self,
        attention: Attention,
        cross: Attention,
        dim: int,
        ffn_dim: int,
        dropout: float,
        *,
        norm: Callable[[int], nn.Module],
        ffn: Callable[[int, int, float], nn.Module | None],
    ):
        super().__init__(attention, dim, ffn_dim, dropout, norm=norm, ffn=ffn)
        self.cross, self.cross_norm = cross, norm(dim)

    def forward(self, x: Tensor, source: Tensor, padding: Tensor | None, carry: Any) -> tuple[Tensor, Any]:
        """x (B, N, D), source (B, M, D), padding of the source (B, M) or None -> (x, carry for the next layer)."""
        x, carry = self.mix(x, None, carry)
        x, carry = self.look(x, source, padding, carry)
        return self.feed(x), carry

    def step(
        self, x_t: Tensor, state: State, source: Tensor, padding: Tensor | None, carry: Any
    ) -> tuple[Tensor, State]:
        """One token x_t (B, D) -> (B, D), equal to the same row of `forward`; `carry` as for `look`."""
        x_t, state = self.mix_step(x_t, state)
        return self.feed(self.look(x_t[:, None], source, padding, carry)[0][:, 0]), state

    def look(self, x: Tensor, source: Tensor, padding: Tensor | None, carry: Any) -> tuple[Tensor, Any]:
        """The part between the halves; no query changes the carry that it gives."""
        y, carry = self.cross(self.enter(self.cross_norm, x), source, key_padding_mask=padding, carry=carry)
        return self.leave(self.cross_norm, x, self.dropout(y)), carry


class PostNormWithCross(WithCross, PostNormLayer):
    """The same, post-LN."""


WITH_CROSS = {"pre": WithCross, "post": PostNormWithCross}


class Seq2Seq(nn.Module):
    """source (B, M), target (B, N) -> logits (B, N, V) of the target's next tokens.

    `attention`, called as `attention(dim, heads, pattern=, max_length=, dropout=)`, fills `slots`; softmax attention
    fills the others. `layers` are those of the encoder, and of the decoder. With `shared` the source, the target and
    the logits have one embedding, else three. Padding, `padding_id` or None, is hidden in the source; in the target it
    comes last, where nothing sees it. Raises ValueError for an unknown option or slot.
    """

    def __init__(
        self,
        attention: Callable[..., Attention],
        *,
        slots: Collection[str] = tuple(SLOTS),
        vocab_size: int,
        max_source_length: int,
        max_length: int,
        dim: int,
        heads: int,
        layers: int,
        ffn_dim: int,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        norm: str = "post",
        norm_kind: str = "layernorm",
        ffn: str = "relu",
        positions: str = "sinusoidal",
        final_norm: bool = False,
        shared: bool = True,
        embedding_norm: bool = False,
        embedding_scale: bool = True,
        embedding_std: float = 0.02,
        padding_id: int | None = 0,
    ):
        super().__init__()
        for slot in slots:
            choose(SLOTS, "a slot", slot)
        self.padding_id, self.slots = padding_id, tuple(slots)
        layer_norm = choose(NORMS, "norm_kind", norm_kind)
        options = {"norm": layer_norm, "ffn": choose(FFNS, "ffn", ffn)}

        def fill(slot: str, length: int) -> Attention:
            build = attention if slot in slots else Vanilla
            return build(dim, heads, pattern=SLOTS[slot], max_length=length, dropout=attention_dropout)

        def embedding(length: int) -> Embedding:
            return Embedding(
                vocab_size,
                dim,
                length,
                positions=positions,
                norm=layer_norm if embedding_norm else None,
                dropout=dropout,
                scale=embedding_scale,
                std=embedding_std,
                padding_id=padding_id,
            )

        self.source, self.target = embedding(max_source_length), embedding(max_length)
        self.head = nn.Linear(dim, vocab_size, bias=False)
        if shared:
            self.target.table = self.source.table
            self.head.weight = self.source.table.weight
        self.encoder = nn.ModuleList(
            choose(LAYERS, "norm", norm)(fill("encoder_self", max_source_length), dim, ffn_dim, dropout, **options)
            for _ in range(layers)
        )
        self.decoder = nn.ModuleList(
            WITH_CROSS[norm](
                fill("decoder_self", max_length),
                fill("cross", max(max_length, max_source_length)),
                dim,
                ffn_dim,
                dropout,
                **options,
            )
            for _ in range(layers)
        )
        self.encoder_norm, self.decoder_norm = (layer_norm(dim) if final_norm else nn.Identity() for _ in range(2))
        readers = [layer.attention for layer in self.encoder] + [layer.cross for layer in self.decoder]
        if any(reader.fixed_length for reader in readers):
            self.source.length_limit = max_source_length
        if any(layer.attention.fixed_length for layer in self.decoder):
            self.target.length_limit = max_length
        # the way of the carry; what fills the other slots passes it through
        way = [("encoder_self", layer.attention) for layer in self.encoder]
        for layer in self.decoder:
            way += [("decoder_self", layer.attention), ("cross", layer.cross)]
        for previous, following in pairwise(attention for slot, attention in way if slot in slots):
            following.set_previous(previous)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """source (B, M), target (B, N), long -> logits (B, N, V)."""
        states, padding, carry = self.encode(source)
        x = self.target(target)
        for layer in self.decoder:
            x, carry = layer(x, states, padding, carry)
        return self.head(self.decoder_norm(x))

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor | None, Any]:
        """source (B, M) -> (states (B, M, D), padding (B, M) or None, carry for the decoder)."""
        padding = None if self.padding_id is None else source == self.padding_id
        x, carry = self.source(source), None
        for layer in self.encoder:
            x, carry = layer(x, padding, carry)
        return self.encoder_norm(x), padding, carry

    def init_state(self, source: Tensor) -> State:
        """State before the first token of the target; an attention that hands on a carry takes one in `init_state`."""
        states, padding, carry = self.encode(source)
        query, layers = torch.zeros_like(states[:, :1]), []
        for layer in self.decoder:
            handed = {"carry": carry} if carry is not None and "decoder_self" in self.slots else {}
            layers.append((layer.attention.init_state(len(source), **handed), carry))
            carry = layer.look(query, states, padding, carry)[1]
        return {"source": states, "padding": padding, "layers": layers, "seen": 0}

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        """One more token (B,) of the target -> (logits (B, V), state), equal to the same row of `forward`."""
        x, layers = self.target(token[:, None], state["seen"])[:, 0], []
        for layer, (past, carry) in zip(self.decoder, state["layers"], strict=True):
            x, past = layer.step(x, past, state["source"], state["padding"], carry)
            layers.append((past, carry))
        return self.head(self.decoder_norm(x)), {**state, "layers": layers, "seen": state["seen"] + 1}
