"""Transformer decoder that predicts the next token (Radford et al., 2018; the papers' language models).

The options are the union of what three papers' language models are:

    lavo   fairseq's transformer_lm_gpt: pre-LN, GELU, final norm, tied embeddings times sqrt(D), sinusoidal positions,
           which LAVO goes without (Tables 2 and 10)
    latte  tied embeddings; "++" is RMSNorm and a gated feed-forward network, with `vanilla_rope` the "Transformer++"
    llp    pre-LN, final norm, no position but the attention's own, untied head with a bias

A prompt is read and continued token by token through the layers' states (models/generation/generate.py).

    B batch, N length, D width, V vocabulary
"""

from collections.abc import Callable
from itertools import pairwise
from typing import ClassVar

from torch import Tensor, nn

from models.attention.base import Attention, Pattern, State
from models.backbones.layer import FFNS, LAYERS, NORMS, Embedding, choose


class LanguageModel(nn.Module):
    """What language models have below and above their layers: embedding, positions, final norm, logits.

    `max_length` is the longest sequence to be trained on; `tied` logits are products with the embeddings. Raises
    ValueError for an unknown option.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.CAUSAL_SELF})

    def __init__(
        self,
        *,
        pattern: Pattern | str,
        vocab_size: int,
        max_length: int,
        dim: int,
        dropout: float,
        norm_kind: str,
        positions: str,
        final_norm: bool,
        tied: bool,
        head_bias: bool,
        embedding_norm: bool,
        embedding_scale: bool,
        embedding_std: float,
    ):
        super().__init__()
        if Pattern(pattern) not in self.patterns:
            raise ValueError(f"a language model reads causal_self, not {pattern}")
        self.max_length = max_length
        norm = choose(NORMS, "norm_kind", norm_kind)
        self.embedding = Embedding(
            vocab_size,
            dim,
            max_length,
            positions=positions,
            norm=norm if embedding_norm else None,
            dropout=dropout,
            scale=embedding_scale,
            std=embedding_std,
        )
        self.final_norm = norm(dim) if final_norm else nn.Identity()
        self.head = nn.Linear(dim, vocab_size, bias=head_bias)
        if tied:
            self.head.weight = self.embedding.table.weight

    @property
    def length_limit(self) -> int | None:
        """The longest sequence that can be read, None where nothing ends."""
        return self.embedding.length_limit

    def logits(self, x: Tensor) -> Tensor:
        """States (..., D) after the last layer -> logits (..., V) of the next token."""
        return self.head(self.final_norm(x))

    def scored(self, length: int) -> range:
        """The positions of a sequence of `length` tokens that `forward` gives logits for."""
        return range(length)

    def read(self, prompt: Tensor) -> tuple[Tensor, State]:
        """prompt (B, N) -> (logits (B, V) of what follows, state after it)."""
        raise NotImplementedError

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        """One more token (B,) -> (logits (B, V), state), equal to the same row of `forward`. `state` may be changed."""
        raise NotImplementedError


class DecoderLM(LanguageModel):
    """Embedding, positions, `layers` x (attention, feed-forward), logits: tokens (B, N) -> logits (B, N, V).

    `attention` is called once per layer as `attention(dim, heads, pattern=, max_length=, dropout=)`. The options are
    those of `EncoderClassifier` and, of the layers, `norm_kind` and `ffn`. Raises ValueError for an unknown option, and
    for a sequence longer than `longest`: `max_length` where positions or attention end there, None where nothing does.
    """

    def __init__(
        self,
        attention: Callable[..., Attention],
        *,
        pattern: Pattern | str = Pattern.CAUSAL_SELF,
        vocab_size: int,
        max_length: int,
        dim: int,
        heads: int,
        layers: int,
        ffn_dim: int,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        norm: str = "pre",
        norm_kind: str = "layernorm",
        ffn: str = "gelu",
        positions: str = "learned",
        final_norm: bool = True,
        tied: bool = True,
        head_bias: bool = False,
        embedding_norm: bool = False,
        embedding_scale: bool = False,
        embedding_std: float = 0.02,
    ):
        super().__init__(
            pattern=pattern,
            vocab_size=vocab_size,
            max_length=max_length,
            dim=dim,
            dropout=dropout,
            norm_kind=norm_kind,
            positions=positions,
            final_norm=final_norm,
            tied=tied,
            head_bias=head_bias,
            embedding_norm=embedding_norm,
            embedding_scale=embedding_scale,
            embedding_std=embedding_std,
        )
        layer = choose(LAYERS, "norm", norm)
        options = {"norm": choose(NORMS, "norm_kind", norm_kind), "ffn": choose(FFNS, "ffn", ffn)}
        self.layers = nn.ModuleList(
            layer(
                attention(dim, heads, pattern=pattern, max_length=max_length, dropout=attention_dropout),
                dim,
                ffn_dim,
                dropout,
                **options,
            )
            for _ in range(layers)
        )
        for previous, layer in pairwise(self.layers):
            layer.attention.set_previous(previous.attention)
        if any(layer.attention.fixed_length for layer in self.layers):
            self.embedding.length_limit = max_length

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (B, N), long -> logits (B, N, V)."""
        x, carry = self.embedding(tokens), None  # (B, N, D)
        for layer in self.layers:
            x, carry = layer(x, None, carry)
        return self.logits(x)

    def init_state(self, batch: int) -> State:
        """State before the first token."""
        return {"layers": [layer.attention.init_state(batch) for layer in self.layers], "seen": 0}

    def read(self, prompt: Tensor) -> tuple[Tensor, State]:
        state = self.init_state(len(prompt))
        for token in prompt.unbind(1):
            x, state = self.advance(token, state)
        return self.logits(x), state

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        x, state = self.advance(token, state)
        return self.logits(x), state

    def advance(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        """One more token (B,) -> (its state after the last layer (B, D), state)."""
        x, states = self.embedding(token[:, None], state["seen"])[:, 0], []
        for layer, past in zip(self.layers, state["layers"], strict=True):
            x, past = layer.step(x, past)
            states.append(past)
        return x, {"layers": states, "seen": state["seen"] + 1}
