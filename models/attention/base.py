"""The contract of an attention variant (or of whatever takes attention's place).

A model is one file here and one yaml in `conf/model/`: nothing is registered. The generic tests in
`tests/models/test_contract.py` run every contract of this page on every yaml.

    B batch, N query length, M context length, D width, H heads, E = D / H head width
"""

from enum import StrEnum
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.ops.heads import merge_heads, split_heads

ROOM = 64  # tokens of a cache that grows, at first

# What `step` and `chunk` read of the past, or of a context: tensors, counters and None, in dicts, lists and tuples of
# any depth. Every tensor has the batch in front, so that rows can be repeated, moved and left out
# (models/generation/state.py); what does not depend on the row is expanded, and is not written to. Counters are ints,
# common to all rows.
State = dict[str, Any]


class Pattern(StrEnum):
    """Where attention stands (CAB's four). In the cross patterns every query sees the whole context."""

    NONCAUSAL_SELF = "noncausal_self"
    CAUSAL_SELF = "causal_self"
    NONCAUSAL_CROSS = "noncausal_cross"
    CAUSAL_CROSS = "causal_cross"

    @property
    def causal(self) -> bool:
        return self in (Pattern.CAUSAL_SELF, Pattern.CAUSAL_CROSS)

    @property
    def cross(self) -> bool:
        return self in (Pattern.NONCAUSAL_CROSS, Pattern.CAUSAL_CROSS)


class Attention(nn.Module):
    """A sequence mixer: (B, N, D) -> (B, N, D).

    `max_length` is the longest sequence the layer must take. Raises ValueError, in one line, for sizes that the method
    does not define; the harness turns that into a refusal before any data is read.
    """

    patterns: ClassVar[frozenset[Pattern]]
    # these two of the class, or of an instance where they depend on its pattern:
    # True where max_length shapes the parameters, so that no longer sequence can ever be read
    fixed_length: bool = False
    # True where time and memory grow as the length does, not as its square
    linear: bool = True
    # False where the method forms no attention weights that dropout would drop
    has_weights: bool = True
    # True where the method gates what it is added to: `forward` and `step` then take that as `residual`, x if not given
    gates_residual: ClassVar[bool] = False

    def __init__(self, dim: int, heads: int, *, pattern: Pattern | str, max_length: int, dropout: float = 0.0):
        super().__init__()
        pattern = Pattern(pattern)
        if pattern not in self.patterns:
            supported = ", ".join(sorted(self.patterns))
            raise ValueError(f"{type(self).__name__} has no {pattern} form (it has: {supported})")
        if dim % heads:
            raise ValueError(f"width {dim} is not a multiple of {heads} heads")
        self.dim, self.heads, self.pattern, self.max_length, self.dropout = dim, heads, pattern, max_length, dropout

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads

    @property
    def looks_ahead(self) -> bool:
        """Whether the first position sees a later one; a noncausal form need not, and a backbone may read that one."""
        return not self.pattern.causal

    @property
    def active_dropout(self) -> float:
        """Share of attention weights to drop now."""
        return self.dropout if self.training else 0.0

    @property
    def has_packed_carry(self) -> bool:
        """Whether the carry is a packed sequence (B, l, D), which a backbone may pool; its unused rows are zero."""
        return False

    @property
    def chunked(self) -> bool:
        """Whether `chunk` reads many tokens at once, from a state whose size does not depend on how many came before.

        Where the state grows, as the keys and values of softmax attention do, those of all layers are more than what
        one layer needs at a time to read a whole text.
        """
        return self.linear and type(self).chunk is not Attention.chunk

    def source(self, x: Tensor, context: Tensor | None) -> Tensor:
        """What is attended to: the context in the cross patterns, else x. Raises ValueError if that is not given."""
        if self.pattern.cross != (context is not None):
            verdict = "requires a context" if self.pattern.cross else "takes no context"
            raise ValueError(f"{type(self).__name__} with pattern {self.pattern} {verdict}")
        return x if context is None else context

    def forward(
        self, x: Tensor, context: Tensor | None = None, *, key_padding_mask: Tensor | None = None, carry: Any = None
    ) -> tuple[Tensor, Any]:
        """Mix x (B, N, D) over itself, or over context (B, M, D) in the cross patterns.

        `key_padding_mask` (B, N) or (B, M) is True at padding, as in torch.nn.MultiheadAttention; rows of padded
        queries hold no meaning but are finite (D-32). `carry` is what the previous layer handed over; it is returned,
        changed or not, for the next one.
        """
        raise NotImplementedError

    def learning_rates(self) -> dict[str, float]:
        """{parameter: its learning rate in place of the recipe's}; those named here have no weight decay either."""
        return {}

    def latent_probabilities(self, x: Tensor) -> Tensor | None:
        """p(l|t) of each token's latent states, (B, H, N, l), of the layer's input x; None for methods without them."""
        return None

    def set_previous(self, previous: "Attention") -> None:
        """Called once by a backbone whose layer gets its carry from `previous`: drop what only a first layer uses.

        Layers are told in their order, so that one whose kind depends on its index has that of `previous` and one more.
        """

    def drop_biases(self) -> None:
        """Called once by a backbone whose recipe has projections without biases; only multi-head methods have those."""

    def extend(self, head_dim: int, share: float) -> int | None:
        """Called once by a backbone of trained attention, whose window takes the place of this layer's own.

        Drop projections to values and outputs and the window, and return its number of keys; None: trained attention
        stays as it is. `head_dim` is the width of a trained head, `share` the weight of the window at the start. The
        layer is then read by `mix` and `mix_chunk`. Raises ValueError for a model whose window cannot be another one.
        """
        raise ValueError(f"{type(self).__name__} has no window that trained attention could take the place of")

    def mix(self, x: Tensor, v: Tensor, near: Tensor) -> Tensor:
        """Of an extended layer: input x (B, N, D), trained values v and what their window gives -> (B, H, N, E)."""
        raise NotImplementedError

    def mix_chunk(self, x: Tensor, v: Tensor, near: Tensor, state: State) -> tuple[Tensor, State]:
        """The same of the next n tokens, from what `empty_state` gave."""
        raise NotImplementedError

    def init_state(
        self,
        batch: int,
        *,
        context: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        carry: Any = None,
    ) -> State:
        """What `chunk` and `step` start from: no token yet, or in the cross patterns the context that queries read.

        A context (B, M, D) is projected here, once; `key_padding_mask` (B, M) is its padding, and `state["carry"]` is
        the carry for the next layer. Raises ValueError for noncausal_self and for a context that is missing or not
        taken, NotImplementedError for a method that cannot decode.
        """
        if self.pattern is Pattern.NONCAUSAL_SELF:
            raise ValueError(f"{type(self).__name__} decodes with pattern causal_self, not {self.pattern}")
        if self.pattern.cross and context is None:
            raise ValueError(f"{type(self).__name__} decodes with pattern {self.pattern} after it was given a context")
        if not self.pattern.cross and not (context is None and key_padding_mask is None):
            raise ValueError(f"{type(self).__name__} with pattern {self.pattern} takes no context, and no mask of one")
        return self.context_state(context, key_padding_mask, carry) if self.pattern.cross else self.empty_state(batch)

    def empty_state(self, batch: int) -> State:
        """State before the first token (causal_self)."""
        raise NotImplementedError(f"{type(self).__name__} cannot decode step by step")

    def context_state(self, context: Tensor, key_padding_mask: Tensor | None, carry: Any) -> State:
        """What queries read of context (B, M, D) (cross patterns), and the `carry` for the next layer."""
        inputs = {"context": context, "key_padding_mask": key_padding_mask, "carry": carry}
        # a query of zeros: the carry does not depend on queries
        return {"inputs": inputs, "carry": self(context.new_zeros(len(context), 1, self.dim), **inputs)[1]}

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        """One token x_t (B, D) -> (B, D), equal to the same row of `forward`; `state` may be written to."""
        if not self.pattern.cross and type(self).chunk is Attention.chunk:
            raise NotImplementedError(f"{type(self).__name__} cannot decode step by step")
        y, state = self.chunk(x_t[:, None], state)
        return y[:, 0], state

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The next n >= 1 tokens x (B, n, D) -> (B, n, D), equal to n steps; `state` may be written to.

        In the cross patterns these are n queries, the result is that of `forward`, and the state stays the same.
        """
        if self.pattern.cross:
            return self(x, **state["inputs"])[0], state
        rows = []
        for x_t in x.unbind(1):
            y_t, state = self.step(x_t, state)
            rows.append(y_t)
        return torch.stack(rows, 1), state


def projection(inputs: int, outputs: int, gain: float) -> nn.Linear:
    """Linear with a zero bias and Xavier-uniform weights (Glorot & Bengio, 2010)."""
    linear = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(linear.weight, gain=gain)
    nn.init.zeros_(linear.bias)
    return linear


def without_biases(*projections: nn.Linear | None) -> None:
    """Take the bias of each projection that is there."""
    for linear in projections:
        if linear is not None:
            linear.bias = None


# for queries, keys and values; the output projection has gain 1 (CAB's multi-head attention)
INPUT_GAIN = 2**-0.5


class MultiHead(Attention):
    """Multi-head attention with the projections of CAB: four Linear(D, D) with bias, 4 D^2 + 4 D parameters.

    A method says how queries attend (`attend`). To decode it gives an `empty_state` and how one query attends
    (`attend_step`), or n of them at once (`attend_chunk`). In the cross patterns keys and values come from the context,
    and are kept between chunks unless the method keeps less (`keep_context`, `attend_context`). `kv_dim` is the width
    of keys and values, D unless given.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        pattern: Pattern | str,
        max_length: int,
        dropout: float = 0.0,
        kv_dim: int | None = None,
    ):
        super().__init__(dim, heads, pattern=pattern, max_length=max_length, dropout=dropout)
        self.q_proj = projection(dim, dim, INPUT_GAIN)
        self.k_proj = projection(dim, kv_dim or dim, INPUT_GAIN)
        self.v_proj = projection(dim, kv_dim or dim, INPUT_GAIN)
        self.out_proj = projection(dim, dim, 1.0)

    @property
    def chunked(self) -> bool:
        loops = type(self).chunk is MultiHead.chunk and type(self).attend_chunk is MultiHead.attend_chunk
        return super().chunked and not loops

    def drop_biases(self) -> None:
        without_biases(self.q_proj, self.k_proj, self.v_proj, self.out_proj)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """q (B, H, N, E), k and v (B, H, M, E), mask (B, M) -> (B, H, N, E)."""
        raise NotImplementedError

    def attend_step(self, q: Tensor, k: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        """q, k, v (B, H, E) of one token -> (B, H, E); `state` may be written to."""
        raise NotImplementedError(f"{type(self).__name__} cannot decode step by step")

    def attend_chunk(self, q: Tensor, k: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        """q, k, v (B, H, n, E) of the next n tokens -> (B, H, n, E); `state` may be written to."""
        rows = []
        for token in zip(*(x.unbind(2) for x in (q, k, v)), strict=True):
            y, state = self.attend_step(*token, state)
            rows.append(y)
        return torch.stack(rows, 2), state

    def keep_context(self, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> State:
        """What queries read of k and v (B, H, M, E) of a context, mask (B, M)."""
        # one query at a time reads all of it: a head's rows side by side are read three times as fast
        return {"k": k.contiguous(), "v": v.contiguous(), "key_padding_mask": key_padding_mask}

    def attend_context(self, q: Tensor, state: State) -> Tensor:
        """q (B, H, n, E) and what `keep_context` gave -> (B, H, n, E)."""
        return self.attend(q, state["k"], state["v"], state["key_padding_mask"])

    def project(self, linear: nn.Linear, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, H, N, E)."""
        return split_heads(linear(x), self.head_dim)

    def forward(
        self, x: Tensor, context: Tensor | None = None, *, key_padding_mask: Tensor | None = None, carry: Any = None
    ) -> tuple[Tensor, Any]:
        source = self.source(x, context)
        q, k, v = self.project(self.q_proj, x), self.project(self.k_proj, source), self.project(self.v_proj, source)
        return self.out_proj(merge_heads(self.attend(q, k, v, key_padding_mask))), carry

    def context_state(self, context: Tensor, key_padding_mask: Tensor | None, carry: Any) -> State:
        k, v = self.project(self.k_proj, context), self.project(self.v_proj, context)
        return {**self.keep_context(k, v, key_padding_mask), "carry": carry}

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        y, state = self.chunk(x_t[:, None], state)
        return y[:, 0], state

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        q = self.project(self.q_proj, x)  # (B, H, n, E)
        if self.pattern.cross:
            y = self.attend_context(q, state)
        else:
            y, state = self.attend_chunk(q, self.project(self.k_proj, x), self.project(self.v_proj, x), state)
        return self.out_proj(merge_heads(y)), state

    def growing_cache(self, batch: int) -> State:
        """An empty cache for `remember`."""
        return self.empty_cache(batch, min(ROOM, self.max_length))

    def remember(self, k: Tensor, v: Tensor, state: State) -> State:
        """The cache of a state with k, v (B, H, n, E) of the next n tokens. Raises ValueError past `max_length`.

        A search copies the caches of all its hypotheses at every token, so the room doubles as it fills. There is some
        for the next token at any time, which is what a benchmark of one step reads.
        """
        room, seen, end = state["k"].shape[2], state["seen"], state["seen"] + k.shape[2]
        if end > self.max_length:
            raise ValueError(f"decoding past max_length {self.max_length}")
        if end >= room and room < self.max_length:
            more = min(max(2 * room, end + ROOM), self.max_length) - room
            state = {**state, "k": F.pad(state["k"], (0, 0, 0, more)), "v": F.pad(state["v"], (0, 0, 0, more))}
        state["k"][:, :, seen:end], state["v"][:, :, seen:end] = k, v
        return {**state, "seen": end}

    def empty_cache(self, batch: int, length: int) -> State:
        """Room for the keys and values of `length` tokens, and the number of tokens seen."""
        cache = self.q_proj.weight.new_zeros(2, batch, self.heads, length, self.head_dim)
        return {"k": cache[0], "v": cache[1], "seen": 0}
