"""Transformer decoder that predicts the next token (Radford et al., 2018; the papers' language models).

The options cover the language models of three papers:

    lavo   fairseq's transformer_lm_gpt: pre-LN, GELU, final norm, tied embeddings times sqrt(D), sinusoidal positions;
           LAVO has no positions (Tables 2 and 10)
    latte  tied embeddings; "++" is RMSNorm and a gated feed-forward network, with `vanilla_rope` the "Transformer++"
    llp    pre-LN, final norm, no positions except those of the attention, untied head with a bias

Generation reads a prompt and continues it through the states of the layers (models/generation/generate.py). Given
targets, a model returns losses and computes logits in slices. A text longer than `LONG` is scored in chunks if the
states of the attention do not grow; memory then covers one chunk and the states.

    B batch, N length, D width, V vocabulary, k targets
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from models.attention.base import Attention, Pattern, State
from models.backbones.config import TransformerConfig
from models.backbones.embedding import TokenEmbedder
from models.backbones.layer import advance_layers, layer_stack
from models.ops.cross_entropy import linear_cross_entropy

LONG = 8192  # tokens; longer texts are scored in chunks
CHUNK = 4096


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(TransformerConfig):
    """Sizes and options of a language model. Raises ValueError for a pattern other than causal_self."""

    pattern: Pattern | str = Pattern.CAUSAL_SELF
    """The slot that attention fills."""
    tied: bool = True
    """Whether the embeddings are also the weights of the logits."""
    head_bias: bool = False
    """Whether the logits have a bias."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pattern != Pattern.CAUSAL_SELF:
            raise ValueError(f"a language model reads causal_self, not {self.pattern}")


class LanguageModel(TokenEmbedder):
    """The parts of a language model around its layers: embedding, positions, final norm, logits or losses.

    `forward(tokens, targets=None)` returns the logits of `logit_positions` or, with targets (B, k), the losses of the
    last min(k, n) of these n positions. `max_length` is the longest training sequence; `tied` logits are products with
    the embeddings.
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

    def losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Hidden states (B, n, D) after the last layer, targets (B, k) -> nats (B, min(k, n)) at the last positions.

        The loss is 0 where the target is -100. It is in float32, or in float64 if the hidden states are.
        """
        hidden = self.final_norm(hidden)  # over all positions, which batch norm averages
        count = min(hidden.shape[1], targets.shape[1])
        hidden, targets = (x[:, x.shape[1] - count :] for x in (hidden, targets))
        return linear_cross_entropy(hidden, self.head.weight, self.head.bias, targets)

    def logit_positions(self, length: int) -> range:
        """The positions for which `forward` returns logits, in a sequence of `length` tokens."""
        return range(length)

    def prefill(self, prompt: Tensor) -> tuple[Tensor, State]:
        """prompt (B, N) -> (logits (B, V) of the next token, state after the prompt)."""
        raise NotImplementedError

    def chunk(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """The next n tokens (B, n) -> (logits (B, n, V), state), equal to n steps. `state` may be changed."""
        hidden, state = self.hidden_chunk(tokens, state)
        return self.logits(hidden), state

    def hidden_chunk(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """The next n tokens (B, n) -> (their hidden states after the last layer (B, n, D), state)."""
        raise NotImplementedError(f"{type(self).__name__} has no state that one more token extends")

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        """One more token (B,) -> (logits (B, V), state), equal to the same row of `forward`. `state` may be changed."""
        raise NotImplementedError


class DecoderLM(LanguageModel):
    """Embedding, `layers` x (attention, feed-forward network), logits: tokens (B, N) -> logits (B, N, V), or losses.

    `attention` is called once per layer as `attention(dim, heads, pattern=, max_length=, dropout=)`. `length_limit` is
    `max_length` if positions or attention end there, else None.
    """

    def __init__(self, attention: Callable[..., Attention], config: DecoderConfig):
        super().__init__(config)
        self.layers = self.make_layers(attention, config)
        if any(layer.attention.fixed_length for layer in self.layers):
            self.length_limit = config.max_length

    def make_layers(self, attention: Callable[..., Attention], config: DecoderConfig) -> nn.ModuleList:
        return layer_stack(attention, config, config.pattern, config.max_length)

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        """tokens (B, N), long -> logits (B, N, V); with targets (B, k) losses (B, min(k, N)) of the last positions."""
        if targets is None:
            return self.logits(self.hidden_states(tokens))
        if self.reads_in_chunks(tokens.shape[1]):
            return self.losses_by_chunk(tokens, targets)
        return self.losses(self.hidden_states(tokens), targets)

    def hidden_states(self, tokens: Tensor) -> Tensor:
        """tokens (B, N) -> the last layer's output, (B, N, D)."""
        x, carry = self.embed(tokens), None
        for layer in self.layers:
            x, carry = layer(x, None, carry)
        return x

    def reads_in_chunks(self, length: int) -> bool:
        """Whether a text of `length` tokens is scored in chunks: in evaluation, if it is long and within all limits."""
        if length <= LONG or self.training or torch.is_grad_enabled():
            return False
        reached = self.length_limit is None or length <= self.length_limit
        return reached and all(layer.attention.chunked for layer in self.layers)

    def losses_by_chunk(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """The losses of `forward` from states, `CHUNK` tokens at a time."""
        before = tokens.shape[1] - targets.shape[1]  # position of the first target; negative if there are more targets
        state, rows, end = self.init_state(len(tokens)), [], 0
        for part in tokens.split(CHUNK, 1):
            hidden, state = self.hidden_chunk(part, state)
            start, end = end, end + part.shape[1]
            if end > before:
                rows.append(self.losses(hidden, targets[:, max(0, start - before) : end - before]))
        return torch.cat(rows, 1)

    def init_state(self, batch: int) -> State:
        """State before the first token."""
        return {"layers": [layer.self_state(batch) for layer in self.layers], "seen": 0}

    def prefill(self, prompt: Tensor) -> tuple[Tensor, State]:
        x, state = self.hidden_chunk(prompt, self.init_state(len(prompt)))
        return self.logits(x[:, -1]), state

    def hidden_chunk(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        x, layers = advance_layers(self.layers, state["layers"], self.embed(tokens, state["seen"]), "chunk")
        return x, {"layers": layers, "seen": state["seen"] + tokens.shape[1]}

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        x = self.embed(token[:, None], state["seen"])[:, 0]
        x, layers = advance_layers(self.layers, state["layers"], x, "step")
        return self.logits(x), {"layers": layers, "seen": state["seen"] + 1}
