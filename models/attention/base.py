"""The contract of an attention variant, or of any other sequence mixer in its place.

A model is one file here and one yaml in `conf/model/`; there is no registry. The generic tests in
`tests/models/test_contract.py` check this contract for every yaml.

    B batch, N query length, M context length, D width, H heads, E = D / H head width
"""

import inspect
from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.ops.heads import merge_heads, split_heads
from models.ops.ring import empty_ring

ROOM = 64  # initial length of a growing cache, in tokens

# What `step` and `chunk` keep of the past or of a context: tensors, counters and None, in nested dicts, lists and
# tuples. The first dimension of every tensor is the batch, so that rows can be repeated, reordered and dropped
# (models/generation/state.py). A tensor that is the same for all rows is expanded and never written to. Counters are
# ints, shared by all rows.
State = dict[str, Any]


class Pattern(StrEnum):
    """The four roles of attention in the CAB benchmark. In the cross patterns every query sees the whole context."""

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


def check_choice(name: str, value: str, choices: Collection[str]) -> None:
    """Raises ValueError, which lists the choices, for a value that is not among them."""
    if value not in choices:
        raise ValueError(f"{name} is one of {', '.join(choices)}, not {value}")


class Attention(nn.Module):
    """A sequence mixer: (B, N, D) -> (B, N, D).

    `max_length` is the longest sequence the layer must accept. Raises a one-line ValueError for sizes that the method
    does not define; the harness refuses such a model before it reads any data.
    """

    patterns: ClassVar[frozenset[Pattern]]
    # the next three are set on the class, or on the instance if they depend on the pattern:
    # True if max_length shapes the parameters, so that no longer sequence can be read
    fixed_length: bool = False
    # True if time and memory grow linearly with the length, not with its square
    linear: bool = True
    # False if the method forms no attention weights that dropout could drop
    has_weights: bool = True
    # True if the method gates the residual stream: it then takes it as `residual`, which is x by default
    gates_residual: ClassVar[bool] = False

    def __init_subclass__(cls, **keywords: Any):
        """Name the options that a model's `**options` hands to its base in the model's signature.

        The harness checks settings against signatures: a misspelt one is refused with its closest match.
        """
        super().__init_subclass__(**keywords)
        if "__init__" not in vars(cls):
            return
        *parameters, last = inspect.signature(vars(cls)["__init__"]).parameters.values()
        if last.kind is last.VAR_KEYWORD:
            declared = {parameter.name for parameter in parameters}
            inherited = inspect.signature(cls.__base__).parameters.values()
            parameters += [x for x in inherited if x.kind is x.KEYWORD_ONLY and x.name not in declared]
            cls.__signature__ = inspect.Signature(parameters[1:])

    def __init__(self, dim: int, heads: int, *, pattern: Pattern | str, max_length: int, dropout: float = 0.0):
        super().__init__()
        pattern = Pattern(pattern)
        if pattern not in self.patterns:
            supported = ", ".join(sorted(self.patterns))
            raise ValueError(f"{type(self).__name__} has no {pattern} form (it has: {supported})")
        if dim % heads:
            raise ValueError(f"width {dim} is not a multiple of {heads} heads")
        self.dim, self.heads, self.pattern, self.max_length, self.dropout = dim, heads, pattern, max_length, dropout

    def check_sizes(self, **sizes: int | None) -> None:
        """Raises ValueError for a size below 1. None is no size."""
        for name, size in sizes.items():
            if size is not None and size < 1:
                raise ValueError(f"{type(self).__name__} requires {name} >= 1, not {size}")

    def check_length(self, length: int) -> None:
        """Raises ValueError for a sequence that is longer than a model of fixed length can read."""
        if self.fixed_length and length > self.max_length:
            raise ValueError(f"{type(self).__name__} was built for {self.max_length} tokens and got {length}")

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads

    @property
    def looks_ahead(self) -> bool:
        """Whether the first position, which a backbone may read alone, sees later ones; some noncausal forms do not."""
        return not self.pattern.causal

    @property
    def active_dropout(self) -> float:
        """Share of attention weights to drop in the current mode."""
        return self.dropout if self.training else 0.0

    @property
    def has_packed_carry(self) -> bool:
        """Whether the carry is a packed sequence (B, l, D) that a backbone may pool; its unused rows are zero."""
        return False

    @property
    def chunked(self) -> bool:
        """Whether `chunk` reads many tokens at once from a state of constant size.

        A growing state, such as the keys and values of softmax attention, takes more memory over all layers than one
        layer needs to read the whole text.
        """
        return self.linear and type(self).chunk is not Attention.chunk

    def source(self, x: Tensor, context: Tensor | None) -> Tensor:
        """What queries attend to: the context in the cross patterns, else x. Raises ValueError if it is missing."""
        if self.pattern.cross != (context is not None):
            verdict = "requires a context" if self.pattern.cross else "takes no context"
            raise ValueError(f"{type(self).__name__} with pattern {self.pattern} {verdict}")
        return x if context is None else context

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        *,
        key_padding_mask: Tensor | None = None,
        carry: Any = None,
        residual: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Mix x (B, N, D) over itself, or over context (B, M, D) in the cross patterns.

        `key_padding_mask` (B, N) or (B, M) is True at padding, as in torch.nn.MultiheadAttention; rows of padded
        queries have no meaning but are finite (D-32). A context that is all padding is not read: output and gradients
        are finite and do not depend on it (D-47). `carry` comes from the previous layer; it is returned, changed or
        not, for the next one. A method that passes it on defines `mix_tokens` alone.
        """
        gated = {"residual": x if residual is None else residual} if self.gates_residual else {}
        return self.mix_tokens(x, self.source(x, context), key_padding_mask, **gated), carry

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """`forward` without the carry: x (B, N, D), the context (B, M, D) or x again, mask (B, M) -> (B, N, D)."""
        raise NotImplementedError

    def optimizer_options(self) -> dict[str, dict[str, float]]:
        """{parameter: options, such as `lr` and `weight_decay`, that replace the recipe's}, as in the method's code."""
        return {}

    def latent_probabilities(self, x: Tensor) -> Tensor | None:
        """p(l|t) of each token's latent states, (B, H, N, l), for the layer's input x; None without latents."""
        return None

    def set_previous(self, previous: "Attention") -> None:
        """Called once by a backbone when the carry comes from `previous`: drop what only a first layer uses.

        Layers are visited in order, so a layer whose kind depends on its index adds one to the index of `previous`.
        """

    def set_last(self) -> None:
        """Called once by a backbone when nothing reads this layer's carry: freeze what only a next layer would use."""

    def missing_kinds(self, stack: Sequence["Attention"]) -> Collection[str]:
        """The kinds of blocks that the model's settings name and no layer of its `stack` has."""
        return ()

    def drop_biases(self) -> None:
        """Called once by a backbone whose recipe omits projection biases; only multi-head methods have such biases."""

    def extend(self, head_dim: int, share: float) -> int | None:
        """Called once by a backbone of trained attention, whose window replaces this layer's own.

        Drop the value and output projections and the window, and return the window's number of keys; None leaves the
        trained attention unchanged. `head_dim` is the width of a trained head, `share` the initial weight of the
        window. `mix` and `mix_chunk` then read the layer. Raises ValueError if the model has no such window.
        """
        raise ValueError(f"{type(self).__name__} has no window that trained attention could replace")

    def mix(self, x: Tensor, v: Tensor, near: Tensor) -> Tensor:
        """For an extended layer: input x (B, N, D), trained values v and the window's output `near` -> (B, H, N, E)."""
        raise NotImplementedError

    def mix_chunk(self, x: Tensor, v: Tensor, near: Tensor, state: State) -> tuple[Tensor, State]:
        """The same for the next n tokens, from the state that `empty_state` returned."""
        raise NotImplementedError

    def init_state(
        self, batch: int, *, context: Tensor | None = None, key_padding_mask: Tensor | None = None, carry: Any = None
    ) -> State:
        """The state that `chunk` and `step` start from: no token yet, or in the cross patterns the context.

        A context (B, M, D) is projected here, once; `key_padding_mask` (B, M) is its padding, and `state["carry"]` is
        the carry for the next layer. Raises ValueError for noncausal_self and for a context that is missing or not
        supported, NotImplementedError for a method that cannot decode.
        """
        if self.pattern is Pattern.NONCAUSAL_SELF:
            raise ValueError(f"{type(self).__name__} decodes with pattern causal_self, not {self.pattern}")
        if self.pattern.cross and context is None:
            raise ValueError(f"{type(self).__name__} decodes with pattern {self.pattern} only from a context")
        if not self.pattern.cross and not (context is None and key_padding_mask is None):
            raise ValueError(f"{type(self).__name__} with pattern {self.pattern} takes no context and no context mask")
        return self.context_state(context, key_padding_mask, carry) if self.pattern.cross else self.empty_state(batch)

    def empty_state(self, batch: int) -> State:
        """The state before the first token (causal_self)."""
        raise NotImplementedError(f"{type(self).__name__} cannot decode step by step")

    def context_state(self, context: Tensor, key_padding_mask: Tensor | None, carry: Any) -> State:
        """What queries read from the context (B, M, D) in the cross patterns, and the `carry` for the next layer."""
        inputs = {"context": context, "key_padding_mask": key_padding_mask, "carry": carry}
        # one query of zeros, because the carry does not depend on queries
        return {"inputs": inputs, "carry": self(context.new_zeros(len(context), 1, self.dim), **inputs)[1]}

    def step(self, x_t: Tensor, state: State, residual: Tensor | None = None) -> tuple[Tensor, State]:
        """One token x_t (B, D) -> (B, D), equal to the same row of `forward`; `state` may be written to."""
        if not self.pattern.cross and type(self).chunk is Attention.chunk:
            raise NotImplementedError(f"{type(self).__name__} cannot decode step by step")
        gated = {} if residual is None else {"residual": residual[:, None]}
        y, state = self.chunk(x_t[:, None], state, **gated)
        return y[:, 0], state

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The next n >= 1 tokens x (B, n, D) -> (B, n, D), equal to n steps; `state` may be written to.

        In the cross patterns x holds n queries, the result equals that of `forward`, and the state does not change. In
        a stack, a method whose carry has a row per token finds the carry of these tokens in `state["carry"]`, and
        leaves its own there.
        """
        if self.pattern.cross:
            return self(x, **state["inputs"])[0], state
        rows = []
        for x_t in x.unbind(1):
            y_t, state = self.step(x_t, state)
            rows.append(y_t)
        return torch.stack(rows, 1), state


class Recurrent(Attention):
    """A causal mixer without attention weights that defines `empty_state`, and what tokens `read` from a state.

    `unread`: the parts of an empty state that are None, for zero, where nothing reads the state after the tokens.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.CAUSAL_SELF})
    has_weights: ClassVar[bool] = False
    unread: ClassVar[tuple[str, ...]] = ()

    def read(self, x: Tensor, state: State, padding: Tensor | None = None) -> tuple[Tensor, State]:
        """n tokens x (B, n, D), mask (B, n) True at padding -> (B, n, D) and the state after them."""
        raise NotImplementedError

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        return self.read(x, self.empty_state(len(x)) | dict.fromkeys(self.unread), key_padding_mask)[0]

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return self.read(x, state)


def projection(inputs: int, outputs: int, gain: float) -> nn.Linear:
    """Linear with a zero bias and Xavier-uniform weights (Glorot & Bengio, 2010)."""
    linear = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(linear.weight, gain=gain)
    nn.init.zeros_(linear.bias)
    return linear


def without_biases(*projections: nn.Linear | None) -> None:
    """Remove the bias of each projection; None is skipped."""
    for linear in projections:
        if linear is not None:
            linear.bias = None


# gain of the query, key and value projections; the output projection has gain 1 (CAB's multi-head attention)
INPUT_GAIN = 2**-0.5


class MultiHead(Attention):
    """Multi-head attention with CAB's projections: four Linear(D, D) with bias, 4 D^2 + 4 D parameters.

    A method defines how queries attend (`attend`). To decode, it also defines `empty_state` and how one query attends
    (`attend_step`), or n of them at once (`attend_chunk`). In the cross patterns keys and values come from the context
    and are kept between chunks, unless the method keeps less (`keep_context`, `attend_context`). `kv_dim` is the width
    of keys and values, by default D.
    """

    def __init__(self, dim: int, heads: int, *, kv_dim: int | None = None, **options: Any):
        super().__init__(dim, heads, **options)
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
        """One token, q, k, v (B, H, E) -> (B, H, E); `state` may be written to."""
        raise NotImplementedError(f"{type(self).__name__} cannot decode step by step")

    def attend_chunk(self, q: Tensor, k: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        """The next n tokens, q, k, v (B, H, n, E) -> (B, H, n, E); `state` may be written to."""
        rows = []
        for token in zip(*(x.unbind(2) for x in (q, k, v)), strict=True):
            y, state = self.attend_step(*token, state)
            rows.append(y)
        return torch.stack(rows, 2), state

    def keep_context(self, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> State:
        """What queries read from a context, given its k and v (B, H, M, E) and mask (B, M)."""
        # each query reads all keys and values: contiguous rows per head are read three times as fast
        return {"k": k.contiguous(), "v": v.contiguous(), "key_padding_mask": key_padding_mask}

    def attend_context(self, q: Tensor, state: State) -> Tensor:
        """q (B, H, n, E) and the state that `keep_context` returned -> (B, H, n, E)."""
        return self.attend(q, state["k"], state["v"], state["key_padding_mask"])

    def project(self, linear: nn.Linear, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, H, N, E)."""
        return split_heads(linear(x), self.head_dim)

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        q, k, v = self.project(self.q_proj, x), self.project(self.k_proj, source), self.project(self.v_proj, source)
        return self.out_proj(merge_heads(self.attend(q, k, v, key_padding_mask)))

    def context_state(self, context: Tensor, key_padding_mask: Tensor | None, carry: Any) -> State:
        k, v = self.project(self.k_proj, context), self.project(self.v_proj, context)
        return {**self.keep_context(k, v, key_padding_mask), "carry": carry}

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
        """The state with k, v (B, H, n, E) of the next n tokens in its cache. Raises ValueError past `max_length`.

        A search copies the caches of all its hypotheses at every token, so the cache doubles as it fills and is not
        allocated in full. It always has room for the next token, which is what a single-step benchmark measures.
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
        """An empty cache for the keys and values of `length` tokens, and the number of tokens seen."""
        return empty_ring(self.q_proj.weight, batch, self.heads, length, self.head_dim)
