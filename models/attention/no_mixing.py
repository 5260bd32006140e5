"""No mixing: every token attends only to itself, the control in tables of self-attention.

    y_i = W_o W_v x_i

The backbone keeps its positions, feed-forward layers and pooling, and no other path connects tokens. The score of this
model shows what a task requires no attention for. A recipe that reads only the first position (LRA's [CLS]) would give
it a constant output, so its control pools over all tokens: `backbone.pooling=masked_mean`.

This is softmax attention with a window of one token: its only weight is 1, so there are no queries and keys, and
dropout has no effect.

Time and memory O(N D^2), 2 D^2 + 2 D parameters, no decoding state.

    B batch, N length, D width
"""

from typing import Any, ClassVar

from torch import Tensor

from models.attention.base import INPUT_GAIN, Attention, Pattern, State, projection, without_biases


class NoMixing(Attention):
    """x (B, N, D) -> (B, N, D), row by row."""

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF, Pattern.CAUSAL_SELF})
    has_weights: ClassVar[bool] = False

    def __init__(self, dim: int, heads: int, **options: Any):
        super().__init__(dim, heads, **options)
        self.v_proj = projection(dim, dim, INPUT_GAIN)
        self.out_proj = projection(dim, dim, 1.0)

    @property
    def looks_ahead(self) -> bool:
        return False

    def drop_biases(self) -> None:
        without_biases(self.v_proj, self.out_proj)

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        return self.out_proj(self.v_proj(x))

    def empty_state(self, batch: int) -> State:
        return {}

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return self(x)[0], state
