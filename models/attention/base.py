"""The contract of an attention variant (or of whatever takes attention's place).

A model is one file here and one yaml in `conf/model/`: nothing is registered. The generic tests in
`tests/models/test_contract.py` run every contract of this page on every yaml.

    B batch, N query length, M context length, D width, H heads, E = D / H head width
"""

from enum import StrEnum
from typing import Any, ClassVar

from torch import Tensor, nn

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
    # True where max_length shapes the parameters, so that no longer sequence can ever be read
    fixed_length: ClassVar[bool] = False
    # True where time and memory grow as the length does, not as its square
    linear: ClassVar[bool] = True

    def __init__(self, dim: int, heads: int, *, pattern: Pattern | str, max_length: int, dropout: float = 0.0):
        super().__init__()
        pattern = Pattern(pattern)
        if pattern not in self.patterns:
            raise ValueError(f"{type(self).__name__} has no {pattern} form (it has: {', '.join(sorted(self.patterns))})")
        if dim % heads:
            raise ValueError(f"width {dim} is not a multiple of {heads} heads")
        self.dim, self.heads, self.pattern, self.max_length, self.dropout = dim, heads, pattern, max_length, dropout

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads

    def forward(
        self, x: Tensor, context: Tensor | None = None, *, key_padding_mask: Tensor | None = None, carry: Any = None
    ) -> tuple[Tensor, Any]:
        """Mix x (B, N, D) over itself, or over context (B, M, D) in the cross patterns.

        `key_padding_mask` (B, N) or (B, M) is True at padding, as in torch.nn.MultiheadAttention; rows of padded
        queries hold no meaning but are finite. `carry` is what the previous layer handed over; it is returned,
        changed or not, for the next one.
        """
        raise NotImplementedError

    def init_state(self, batch: int, *, context: Tensor | None = None) -> State:
        """State before the first token (causal self-attention only)."""
        raise NotImplementedError(f"{type(self).__name__} cannot decode step by step")

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        """One token x_t (B, D) -> (B, D), equal to the same row of `forward`."""
        raise NotImplementedError(f"{type(self).__name__} cannot decode step by step")
