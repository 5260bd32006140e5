"""The contract of an attention variant (or of whatever takes attention's place).

A model is one file here and one yaml in `conf/model/`: nothing is registered. The generic tests in
`tests/models/test_contract.py` run every contract of this page on every yaml.

    B batch, N query length, M context length, D width, H heads, E = D / H head width
"""

from enum import StrEnum
from typing import Any, ClassVar

from torch import Tensor, nn

from models.ops.heads import merge_heads, split_heads

State = dict[str, Any]  # what `step` needs of the past: tensors and counters


class Pattern(StrEnum):
    """Where attention stands (CAB's four). In the cross patterns the context is wholly visible to every query."""

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
    # False where the method never forms attention weights, so that dropout has nothing to drop
    has_weights: ClassVar[bool] = True
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
    def active_dropout(self) -> float:
        """Share of attention weights to drop now."""
        return self.dropout if self.training else 0.0

    @property
    def packs(self) -> bool:
        """Whether the carry is a packed sequence (B, l, D), which a backbone may pool; its unused rows are zero."""
        return False

    def source(self, x: Tensor, context: Tensor | None) -> Tensor:
        """What is attended to: the context in the cross patterns, else x. Raises ValueError if that is not given."""
        if self.pattern.cross != (context is not None):
            wants = "needs a context" if self.pattern.cross else "takes no context"
            raise ValueError(f"{type(self).__name__} with pattern {self.pattern} {wants}")
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

    def check_decodes(self) -> None:
        """Raises ValueError unless the pattern is causal_self: only there is a past to decode from."""
        if self.pattern is not Pattern.CAUSAL_SELF:
            raise ValueError(f"{type(self).__name__} decodes with pattern causal_self, not {self.pattern}")

    def learning_rates(self) -> dict[str, float]:
        """{parameter: its learning rate in place of the recipe's}; those named here have no weight decay either."""
        return {}

    def set_previous(self, previous: "Attention") -> None:
        """A backbone says once that this layer gets the carry of `previous`: drop what only a first layer needs."""

    def init_state(self, batch: int, *, context: Tensor | None = None) -> State:
        """State before the first token (causal self-attention only)."""
        raise NotImplementedError(f"{type(self).__name__} cannot decode step by step")

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        """One token x_t (B, D) -> (B, D), equal to the same row of `forward`."""
        raise NotImplementedError(f"{type(self).__name__} cannot decode step by step")


def projection(inputs: int, outputs: int, gain: float) -> nn.Linear:
    """Linear with a zero bias and Xavier-uniform weights (Glorot & Bengio, 2010)."""
    linear = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(linear.weight, gain=gain)
    nn.init.zeros_(linear.bias)
    return linear


# for queries, keys and values; the output projection has gain 1 (CAB's multi-head attention)
INPUT_GAIN = 2**-0.5


class MultiHead(Attention):
    """Multi-head attention with the projections of CAB: four Linear(D, D) with bias, 4 D^2 + 4 D parameters.

    A method says how queries attend (`attend`), and if it decodes how one query does (`attend_step`). In the cross
    patterns keys and values come from the context. `kv_dim` is the width of keys and values, D unless given.
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

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """q (B, H, N, E), k and v (B, H, M, E), mask (B, M) -> (B, H, N, E)."""
        raise NotImplementedError

    def attend_step(self, q: Tensor, k: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        """q, k, v (B, H, E) of one token -> (B, H, E); `state` may be written to."""
        raise NotImplementedError(f"{type(self).__name__} cannot decode step by step")

    def forward(
        self, x: Tensor, context: Tensor | None = None, *, key_padding_mask: Tensor | None = None, carry: Any = None
    ) -> tuple[Tensor, Any]:
        source = self.source(x, context)
        q = split_heads(self.q_proj(x), self.head_dim)  # (B, H, N, E)
        k = split_heads(self.k_proj(source), self.head_dim)  # (B, H, M, E)
        v = split_heads(self.v_proj(source), self.head_dim)  # (B, H, M, E)
        return self.out_proj(merge_heads(self.attend(q, k, v, key_padding_mask))), carry

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        q, k, v = (linear(x_t).unflatten(-1, (-1, self.head_dim)) for linear in (self.q_proj, self.k_proj, self.v_proj))
        y, state = self.attend_step(q, k, v, state)
        return self.out_proj(y.flatten(1)), state

    def empty_cache(self, batch: int, length: int) -> State:
        """Room for the keys and values of `length` tokens, and the number of tokens seen.

        Raises ValueError unless the pattern is causal_self.
        """
        self.check_decodes()
        cache = self.q_proj.weight.new_zeros(2, batch, self.heads, length, self.head_dim)
        return {"k": cache[0], "v": cache[1], "seen": 0}
