"""Encoder-decoder Transformer (Vaswani et al., 2017): translation and summarisation.

Attention has three slots, which tables fill one at a time (LAVO Tables 4 and 6) or together (Luna Table 5). A task
selects one by its pattern; a recipe that fills several lists them in `slots`:

    encoder_self   noncausal_self   self-attention over the source
    decoder_self   causal_self      self-attention over the target
    cross          causal_cross     attention of the target to the encoder's states

The carry (Luna's packed P) passes up the encoder, then through both attentions of each decoder layer. Decoding projects
the source once per layer; a token costs one step of each self-attention and one query of each cross attention.

    B batch, M source length, N target length, K hypotheses per source, D width, V vocabulary
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from models.attention.base import Attention, Pattern, State, check_choice
from models.attention.vanilla import Vanilla
from models.backbones.config import TransformerConfig
from models.backbones.embedding import TokenEmbedder
from models.backbones.layer import DecoderLayer, TransformerLayer, advance_layers, chain

SLOTS: Mapping[str, Pattern] = {
    "encoder_self": Pattern.NONCAUSAL_SELF,
    "decoder_self": Pattern.CAUSAL_SELF,
    "cross": Pattern.CAUSAL_CROSS,
}
SLOT_OF: Mapping[Pattern, str] = {pattern: slot for slot, pattern in SLOTS.items()}


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig(TransformerConfig):
    """Sizes and options of `Seq2Seq`; the defaults are those of the original Transformer.

    Raises ValueError for an unknown choice, and for `slots` that lack the slot of `pattern`.
    """

    max_source_length: int
    """Longest training source; `max_length` is that of the target."""
    pattern: Pattern | str | None = None
    """The slot of the attention under test, a value of `SLOTS`; softmax attention fills the others. None: all slots,
    or `slots`."""
    slots: Collection[str] | None = None
    """The slots that it fills, keys of `SLOTS`, if they are more than that of `pattern`, which they include."""
    norm: str = "post"
    ffn: str = "relu"
    positions: str = "sinusoidal"
    final_norm: bool = False
    embedding_scale: bool = True
    shared: bool = True
    """Whether source, target and logits share one embedding matrix or have three."""
    padding_id: int | None = 0
    """The padding token; None: no padding."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for slot in self.slots or ():
            check_choice("a slot", slot, SLOTS)
        if self.pattern is None:
            return
        check_choice("pattern", self.pattern, SLOTS.values())
        if SLOT_OF[Pattern(self.pattern)] not in self.filled_slots:
            filled = ", ".join(self.filled_slots) or "none"
            raise ValueError(f"pattern {self.pattern} belongs to a slot that is not in slots ({filled})")

    @property
    def filled_slots(self) -> tuple[str, ...]:
        """The slots that the attention under test fills."""
        if self.slots is not None:
            return tuple(self.slots)
        return tuple(SLOTS) if self.pattern is None else (SLOT_OF[Pattern(self.pattern)],)


class Seq2Seq(nn.Module):
    """source (B, M), target (B, N) -> logits (B, N, V) of the target's next tokens.

    `attention`, called as `attention(dim, heads, pattern=, max_length=, dropout=)`, fills its slots. Padding is hidden
    in the source; in the target it comes last, where no token sees it.
    """

    Config: ClassVar[type[Seq2SeqConfig]] = Seq2SeqConfig

    def __init__(self, attention: Callable[..., Attention], config: Seq2SeqConfig):
        super().__init__()
        self.padding_id, self.slots = config.padding_id, config.filled_slots

        def fill(slot: str, max_length: int) -> Attention:
            make = attention if slot in self.slots else Vanilla
            sizes = {"max_length": max_length, "dropout": config.attention_dropout}
            return make(config.dim, config.heads, pattern=SLOTS[slot], **sizes)

        self.source = TokenEmbedder(config, config.max_source_length, padding_id=config.padding_id)
        self.target = TokenEmbedder(config, config.max_length, padding_id=config.padding_id)
        self.head = nn.Linear(config.dim, config.vocab_size, bias=False)
        if config.shared:
            self.target.embedding = self.source.embedding
            self.head.weight = self.source.embedding.weight
        self.encoder = nn.ModuleList(
            TransformerLayer(fill("encoder_self", config.max_source_length), config) for _ in range(config.layers)
        )
        longer = max(config.max_length, config.max_source_length)
        self.decoder = nn.ModuleList(
            DecoderLayer(fill("decoder_self", config.max_length), fill("cross", longer), config)
            for _ in range(config.layers)
        )
        self.encoder_norm, self.decoder_norm = (
            config.make_norm() if config.final_norm else nn.Identity() for _ in range(2)
        )
        over_source = [layer.attention for layer in self.encoder] + [layer.cross for layer in self.decoder]
        if any(layer.fixed_length for layer in over_source):
            self.source.length_limit = config.max_source_length
        if any(layer.attention.fixed_length for layer in self.decoder):
            self.target.length_limit = config.max_length
        # the attentions in the order of the carry; softmax attention passes it through
        order = [("encoder_self", layer.attention) for layer in self.encoder]
        for layer in self.decoder:
            order += [("decoder_self", layer.attention), ("cross", layer.cross)]
        chain([attention for slot, attention in order if slot in self.slots])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """source (B, M), target (B, N), long -> logits (B, N, V)."""
        states, padding, carry = self.encode(source)
        x = self.target.embed(target)
        for layer in self.decoder:
            x, carry = layer(x, states, padding, carry)
        return self.head(self.decoder_norm(x))

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor | None, Any]:
        """source (B, M) -> (states (B, M, D), padding (B, M) or None, carry for the decoder)."""
        padding = None if self.padding_id is None else source == self.padding_id
        x, carry = self.source.embed(source), None
        for layer in self.encoder:
            x, carry = layer(x, padding, carry)
        return self.encoder_norm(x), padding, carry

    def init_state(self, source: Tensor) -> State:
        """source (B, M) -> state before the target's first token. The source is encoded and projected once.

        `target` has one row per hypothesis, at first one per source; `source` keeps one row per source.
        """
        states, padding, carry = self.encode(source)
        layers = []
        for layer in self.decoder:
            layer_state, carry = layer.init_state(states, padding, carry)
            layers.append(layer_state)
        parts = {"target": "attention", "source": "cross"}
        return {name: [layer[part] for layer in layers] for name, part in parts.items()} | {"seen": 0}

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        """The target's next token (B,) -> (logits (B, V), state), equal to the same row of `forward`.

        With K hypotheses per source, tokens are (B, K), logits (B, K, V), and `state["target"]` has B K rows.
        """
        hypotheses = token.shape[1] if token.dim() == 2 else 1
        x = self.target.embed(token.reshape(-1, 1), state["seen"])[:, 0]
        before = zip(state["target"], state["source"], strict=True)
        before = [{"attention": attention, "cross": context} for attention, context in before]
        x, layers = advance_layers(self.decoder, before, x, "step", hypotheses)
        logits = self.head(self.decoder_norm(x))
        return logits.view(*token.shape, -1), {
            "target": [layer["attention"] for layer in layers],
            "source": [layer["cross"] for layer in layers],
            "seen": state["seen"] + 1,
        }
