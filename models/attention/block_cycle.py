"""The base of methods whose layers have different kinds of blocks, in turn.

B batch, N length, D width
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from models.attention.base import Attention, State


class BlockCycle(Attention):
    """Layer l of a stack has the kind `block_types[l mod their number]` and its parameters.

    A single layer is the first one. A method names its `kinds`, defines `make_block`, and ends its constructor with
    `build_block`. A block has `has_weights`, forward(x, key_padding_mask=, dropout=), empty_state(batch) and
    chunk(x, state), as an attention layer has. Raises ValueError for an empty list and for an unknown kind.
    """

    kinds: ClassVar[tuple[str, ...]]

    def __init__(self, dim: int, heads: int, *, block_types: Sequence[str], **options: Any):
        super().__init__(dim, heads, **options)
        if not block_types or not set(block_types) <= set(self.kinds):
            name, kinds = type(self).__name__, ", ".join(self.kinds)
            raise ValueError(f"{name}'s block_types are some of {kinds}, not {list(block_types)}")
        self.block_types, self.index = tuple(block_types), 0

    @property
    def kind(self) -> str:
        return self.block_types[self.index % len(self.block_types)]

    def make_block(self, kind: str) -> nn.Module:
        raise NotImplementedError

    def build_block(self) -> None:
        """Build one block of each kind, so that the sizes of all kinds are checked, and keep the first layer's."""
        self.block = {kind: self.make_block(kind) for kind in dict.fromkeys(self.block_types)}[self.kind]
        self.has_weights = self.block.has_weights

    def set_previous(self, previous: "BlockCycle") -> None:
        """Become the layer after `previous`."""
        before, self.index = self.kind, previous.index + 1
        if self.kind != before:
            self.block = self.make_block(self.kind)
            self.has_weights = self.block.has_weights

    def missing_kinds(self, stack: Sequence["BlockCycle"]) -> list[str]:
        return [kind for kind in dict.fromkeys(self.block_types) if all(layer.kind != kind for layer in stack)]

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        return self.block(x, key_padding_mask=key_padding_mask, dropout=self.active_dropout)

    def empty_state(self, batch: int) -> State:
        """The state of the layer's block."""
        return self.block.empty_state(batch)

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return self.block.chunk(x, state)
