"""Transformer layers around a given attention, pre-LN or post-LN.

    pre-LN   x + f(norm(x))        f = attention, then f = feed-forward network
    post-LN  norm(x + f(x))

`DecoderLayer` has a second attention between the two, to a source's states.

    B batch, N length, M source length, D width
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from models.attention.base import Attention, Pattern, State
from models.backbones.config import LayerConfig, TransformerConfig
from models.layers.dropout import Dropout
from models.layers.feedforward import in_slices

Advance = Callable[..., tuple[Tensor, State]]  # (x, state) -> (y, state), an attention's `chunk` or `step`


class TransformerLayer(nn.Module):
    """Self-attention and, unless `config.ffn` is `none`, a feed-forward network.

    `config.short_conv` taps convolve the input of self-attention.
    """

    is_layer = True  # `resources.checkpoint_layers` computes it again

    def __init__(self, attention: Attention, config: LayerConfig):
        super().__init__()
        self.attention, self.ffn = attention, config.make_ffn()
        self.attention_norm, self.short_conv = config.make_norm(), config.make_short_conv(attention.pattern)
        self.ffn_norm = None if self.ffn is None else config.make_norm()
        self.dropout = Dropout(config.dropout)
        self.norm_first = config.norm == "pre"

    def forward(self, x: Tensor, key_padding_mask: Tensor | None, carry: Any) -> tuple[Tensor, Any]:
        """x (B, N, D), mask (B, N) or None, the previous layer's carry -> (x (B, N, D), carry for the next layer)."""
        x, carry = self.self_attend(x, key_padding_mask, carry)
        return self.feed_forward(x), carry

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The next n tokens x (B, n, D) -> (B, n, D), equal to n steps. `state` comes from `self_state`."""
        x, state = self.self_attend_from(self.attention.chunk, x, state)
        return self.feed_forward(x), state

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        """One token x_t (B, D) -> (B, D), equal to the same row of `forward`."""
        x_t, state = self.self_attend_from(self.attention.step, x_t, state)
        return self.feed_forward(x_t), state

    def self_attend(self, x: Tensor, key_padding_mask: Tensor | None, carry: Any) -> tuple[Tensor, Any]:
        """Attention with its norm and residual, the first half of `forward`."""
        normed = self.before(self.attention_norm, x)
        if self.short_conv is not None:
            normed = self.short_conv(normed, key_padding_mask=key_padding_mask)
        y, carry = self.attention(normed, key_padding_mask=key_padding_mask, carry=carry, **self.gated_residual(x))
        return self.after(self.attention_norm, x, self.dropout(y)), carry

    def self_attend_from(self, advance: Advance, x: Tensor, state: State) -> tuple[Tensor, State]:
        """`self_attend` from a state, with the attention's `chunk` for x (B, n, D) or its `step` for x (B, D)."""
        normed, last = self.before(self.attention_norm, x), {}
        if self.short_conv is not None:
            tokens, inputs = self.short_conv.chunk(normed.view(len(x), -1, x.shape[-1]), state["short_conv"])
            normed, last = tokens.view_as(normed), {"short_conv": inputs}
            state = {name: part for name, part in state.items() if name != "short_conv"}
        y, state = advance(normed, state, **self.gated_residual(x))
        return self.after(self.attention_norm, x, self.dropout(y)), {**state, **last}

    def self_state(self, batch: int, carry: Any = None) -> State:
        """The state of self-attention before the first token, with the inputs that `short_conv` still reads."""
        state = self.attention.init_state(batch, carry=carry)
        return state if self.short_conv is None else {**state, "short_conv": self.short_conv.empty_state(batch)}

    def feed_forward(self, x: Tensor) -> Tensor:
        """The feed-forward network with its norm and residual: (..., D) -> (..., D)."""
        if self.ffn is None:
            return x
        return self.after(self.ffn_norm, x, in_slices(self.ffn, self.before(self.ffn_norm, x)))

    def gated_residual(self, x: Tensor) -> dict[str, Tensor]:
        """The residual as a keyword argument, for attention that gates it."""
        return {"residual": x} if self.attention.gates_residual else {}

    def before(self, norm: nn.Module, x: Tensor) -> Tensor:
        """The input of attention or feed-forward network."""
        return norm(x) if self.norm_first else x

    def after(self, norm: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The sum of residual x and output y."""
        return x + y if self.norm_first else norm(x + y)


def layer_stack(
    attention: Callable[..., Attention],
    config: TransformerConfig,
    pattern: Pattern | str,
    max_length: int,
    *,
    reads_carry: bool = False,
) -> nn.ModuleList:
    """`config.layers` layers with separate attentions, each of which passes its carry to the next.

    `reads_carry`: the backbone reads the carry of the last one.
    """
    options = {"pattern": pattern, "max_length": max_length, "dropout": config.attention_dropout}
    layers = nn.ModuleList(
        TransformerLayer(attention(config.dim, config.heads, **options), config) for _ in range(config.layers)
    )
    chain([layer.attention for layer in layers], reads_carry=reads_carry)
    return layers


def chain(attentions: Sequence[Attention], *, reads_carry: bool = False) -> None:
    """Prepare attentions, each of which passes its carry to the next, for their places in the stack."""
    for previous, following in pairwise(attentions):
        following.set_previous(previous)
    if attentions and not reads_carry:
        attentions[-1].set_last()


def advance_layers(
    layers: Iterable[TransformerLayer], states: Iterable[State], x: Tensor, method: str, *arguments: Any
) -> tuple[Tensor, list[State]]:
    """x through all layers by their `method`, `chunk` or `step`, from their states -> (x, the states after it).

    A layer finds the carry of the layer before it in its state, if that layer left one in its own; it is not kept.
    """
    after, carry = [], {}
    for layer, state in zip(layers, states, strict=True):
        x, state = getattr(layer, method)(x, {**state, **carry}, *arguments)
        carry = {"carry": state["carry"]} if "carry" in state else {}
        after.append({name: part for name, part in state.items() if name != "carry"})
    return x, after


class DecoderLayer(TransformerLayer):
    """Self-attention, `cross` attention to a source, feed-forward network."""

    def __init__(self, attention: Attention, cross: Attention, config: LayerConfig):
        super().__init__(attention, config)
        self.cross, self.cross_norm = cross, config.make_norm()

    def forward(self, x: Tensor, source: Tensor, source_padding_mask: Tensor | None, carry: Any) -> tuple[Tensor, Any]:
        """x (B, N, D), source (B, M, D), its mask (B, M) or None -> (x (B, N, D), carry for the next layer)."""
        x, carry = self.self_attend(x, None, carry)
        x, carry = self.cross_attend(x, source, source_padding_mask, carry)
        return self.feed_forward(x), carry

    def cross_attend(
        self, x: Tensor, source: Tensor, source_padding_mask: Tensor | None, carry: Any
    ) -> tuple[Tensor, Any]:
        """Cross attention with its norm and residual. The returned carry depends only on the source."""
        normed = self.before(self.cross_norm, x)
        y, carry = self.cross(normed, source, key_padding_mask=source_padding_mask, carry=carry)
        return self.after(self.cross_norm, x, self.dropout(y)), carry

    def init_state(self, source: Tensor, source_padding_mask: Tensor | None, carry: Any) -> tuple[State, Any]:
        """(state before the first token, carry for the next layer). The source is projected here, once.

        Self-attention does not change the carry, so both attentions receive the same one.
        """
        context = {"context": source, "key_padding_mask": source_padding_mask}
        cross = self.cross.init_state(len(source), **context, carry=carry)
        return {"attention": self.self_state(len(source), carry), "cross": cross}, cross["carry"]

    def step(self, x_t: Tensor, state: State, hypotheses: int = 1) -> tuple[Tensor, State]:
        """One token x_t (B, D) -> (B, D), equal to the same row of `forward`. `state` comes from `init_state`.

        With K `hypotheses` per source, x_t is (B K, D) with the hypotheses of a source adjacent, like the rows of
        `state["attention"]`; `state["cross"]` keeps its B rows, each of which K queries read at once.
        """
        carried = {"carry": state["carry"]} if "carry" in state else {}
        x_t, attention = self.self_attend_from(self.attention.step, x_t, {**state["attention"], **carried})
        carried = {"carry": attention.pop("carry")} if "carry" in attention else {}
        queries = self.before(self.cross_norm, x_t).unflatten(0, (-1, hypotheses))  # (B, K, D)
        y, cross = self.cross.chunk(queries, state["cross"])
        x_t = self.after(self.cross_norm, x_t, self.dropout(y.flatten(0, 1)))
        return self.feed_forward(x_t), {"attention": attention, "cross": cross, **carried}
