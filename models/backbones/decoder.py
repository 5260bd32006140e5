"""Transformer decoder that predicts the next token (Radford et al., 2018; the papers' language models).

The options cover the language models of three papers:

    lavo   fairseq's transformer_lm_gpt: pre-LN, GELU, final norm, tied embeddings times sqrt(D), sinusoidal positions;
           LAVO has none (Tables 2 and 10)
    latte  tied embeddings; "++" is RMSNorm and a gated feed-forward network, with `vanilla_rope` the "Transformer++"
    llp    pre-LN, final norm, no positions but the attention's own, untied head with a bias

Generation reads a prompt and continues it through the states of the layers (models/generation/generate.py).

    B batch, N length, D width, V vocabulary
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from models.attention.base import Attention, Pattern, State
from models.backbones.config import TransformerConfig
from models.backbones.embedding import TokenEmbedder
from models.backbones.layer import layer_stack


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(TransformerConfig):
    """Sizes and options of a language model. Raises ValueError for a pattern other than causal_self."""

    pattern: Pattern | str = Pattern.CAUSAL_SELF
    """The slot that attention fills."""
    tied: bool = True
    """Whether the embeddings are the weights of the logits, too."""
    head_bias: bool = False
    """Whether the logits have a bias."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pattern != Pattern.CAUSAL_SELF:
            raise ValueError(f"a language model reads causal_self, not {self.pattern}")


class LanguageModel(TokenEmbedder):
    """What language models have below and above their layers: embedding, positions, final norm, logits.

    `max_length` is the longest sequence to be trained on; `tied` logits are products with the embeddings.
    """

    Config: ClassVar[type[DecoderConfig]] = DecoderConfig
    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.CAUSAL_SELF})

    def __init__(self, config: DecoderConfig):
        super().__init__(config, config.max_length)
        self.max_length = config.max_length
        self.final_norm = config.make_norm() if config.final_norm else nn.Identity()
        self.head = nn.Linear(config.dim, config.vocab_size, bias=config.head_bias)
        if config.tied:
            self.head.weight = self.embedding.weight

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states (..., D) after the last layer -> logits (..., V) of the next token."""
        return self.head(self.final_norm(hidden))

    def logit_positions(self, length: int) -> range:
        """The positions of a sequence of `length` tokens that `forward` gives logits for."""
        return range(length)

    def prefill(self, prompt: Tensor) -> tuple[Tensor, State]:
        """prompt (B, N) -> (logits (B, V) of the next token, state after the prompt)."""
        raise NotImplementedError

    def chunk(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """The next n tokens (B, n) -> (logits (B, n, V), state), equal to n steps. `state` may be changed."""
        raise NotImplementedError(f"{type(self).__name__} has no state that one more token extends")

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        """One more token (B,) -> (logits (B, V), state), equal to the same row of `forward`. `state` may be changed."""
        raise NotImplementedError


class DecoderLM(LanguageModel):
    """Embedding, `layers` x (attention, feed-forward network), logits: tokens (B, N) -> logits (B, N, V).

    `attention` is called once per layer as `attention(dim, heads, pattern=, max_length=, dropout=)`. `length_limit` is
    `max_length` where positions or attention end there, else None.
    """

    def __init__(self, attention: Callable[..., Attention], config: DecoderConfig):
        super().__init__(config)
        self.layers = layer_stack(attention, config, config.pattern, config.max_length)
        if any(layer.attention.fixed_length for layer in self.layers):
            self.length_limit = config.max_length

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (B, N), long -> logits (B, N, V)."""
        x, carry = self.embed(tokens), None  # (B, N, D)
        for layer in self.layers:
            x, carry = layer(x, None, carry)
        return self.logits(x)

    def init_state(self, batch: int) -> State:
        """State before the first token."""
        return {"layers": [layer.attention.init_state(batch) for layer in self.layers], "seen": 0}

    def prefill(self, prompt: Tensor) -> tuple[Tensor, State]:
        x, state = self.hidden_chunk(prompt, self.init_state(len(prompt)))
        return self.logits(x[:, -1]), state

    def chunk(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        x, state = self.hidden_chunk(tokens, state)
        return self.logits(x), state

    def hidden_chunk(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """The next n tokens (B, n) -> (their hidden states after the last layer (B, n, D), state)."""
        x, layers = self.embed(tokens, state["seen"]), []
        for layer, layer_state in zip(self.layers, state["layers"], strict=True):
            x, layer_state = layer.chunk(x, layer_state)
            layers.append(layer_state)
        return x, {"layers": layers, "seen": state["seen"] + tokens.shape[1]}

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        x, layers = self.embed(token[:, None], state["seen"])[:, 0], []
        for layer, layer_state in zip(self.layers, state["layers"], strict=True):
            x, layer_state = layer.step(x, layer_state)
            layers.append(layer_state)
        return self.logits(x), {"layers": layers, "seen": state["seen"] + 1}
