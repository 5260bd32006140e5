"""torch's FlexAttention, for attention whose keys follow from positions, on CUDA: `resources.kernels=flex`.

Its kernels keep no scores, in either direction, and skip blocks of 128 keys that no query of a block sees. Without it
an operation computes tiles of scores, as it does on other devices, with dropout, in float64 and under torch.compile.
The gradient of a bias is added up in no fixed order. The library is imported where it is used: that takes a second.

    B batch, H heads, N query length, M key length, E head width
"""

import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from models.ops.precision import autocast_disabled

SWITCH = "LONGHAUL_FLEX"
DEVICE = "cuda"
SIZE = 128  # queries and keys of a block of the kernels


class Span(NamedTuple):
    """Query i sees the keys i - left to i + right; with `block`, those around the first token of its block of tokens.

    `limit` is the most that a key may lie behind the query, `shared` the number of first keys that every query sees.
    """

    left: int
    right: int
    block: int = 1
    limit: int | None = None
    shared: int = 0

    def reaches(self, i: Tensor, j: Tensor, size: int = 1) -> Tensor:
        """Whether one of `size` queries from i on may see one of `size` keys from j on."""
        begin, end = i // self.block * self.block, (i + size - 1) // self.block * self.block
        seen = (j + size > begin - self.left) & (j <= end + self.right)
        if self.limit is not None:
            seen = seen & (j < i + size + self.limit)
        return seen | (j < self.shared) if self.shared else seen


def chosen(q: Tensor, dropout: float) -> bool:
    """Whether FlexAttention was requested and computes this."""
    if torch.compiler.is_compiling() or os.environ.get(SWITCH) != "1":
        return False
    return q.device.type == DEVICE and not dropout and q.dtype is not torch.float64


def span_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    span: Span,
    *,
    bias: Tensor | None = None,
    hidden: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """q (B, H, N, E), k and v (B, H, M, E) -> (B, H, N, E) and the logarithms of the rows' sums (B, H, N).

    `bias` (H, left + right + 1) belongs to keys by their distance, `hidden` (B, M) is True at hidden keys. A query that
    sees no key gets zeros, and -inf.
    """

    def score(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if bias is not None:
            score = score + bias[h, (j - i + span.left).clamp(0, span.left + span.right)]
        return score if hidden is None else torch.where(hidden[b, j], float("-inf"), score)

    blocks = _blocks_of_span(span, q.shape[2], k.shape[2], q.device)
    return _attend(q, k, v, blocks, score if bias is not None or hidden is not None else None, scale)


def table_attention(q: Tensor, k: Tensor, v: Tensor, table: Tensor, block: int, hidden: Tensor | None) -> Tensor:
    """Blocks of `block` tokens, a divisor of 128, see the blocks for which `table` (B, H, G, G) is True."""
    if hidden is None:
        hidden = table.new_zeros(len(table), k.shape[2])
    fill = -table.shape[-1] % (SIZE // block)
    some = F.pad(table, (0, fill, 0, fill))
    some = some.unflatten(3, (-1, SIZE // block)).any(4).unflatten(2, (-1, SIZE // block)).any(3)

    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return table[b, h, i // block, j // block] & ~hidden[b, j]

    return _attend(q, k, v, _blocks(some, visible, q.shape[2], k.shape[2]))[0]


def _attend(q: Tensor, k: Tensor, v: Tensor, blocks: Any, score: Any = None, scale: float | None = None) -> Any:
    from torch.nn.attention.flex_attention import AuxRequest

    options = {"score_mod": score, "block_mask": blocks, "scale": scale, "return_aux": AuxRequest(lse=True)}
    with autocast_disabled(q):
        out, aux = _compiled()(q, k.to(q.dtype), v.to(q.dtype), **options)
    return out, aux.lse


@functools.cache
def _compiled() -> Callable[..., tuple[Tensor, NamedTuple]]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


@functools.lru_cache(maxsize=16)
def _blocks_of_span(span: Span, queries: int, keys: int, device: torch.device) -> Any:
    i, j = (torch.arange(0, n, SIZE, device=device) for n in (queries, keys))
    some = span.reaches(i[:, None], j, SIZE)
    return _blocks(some[None, None], lambda b, h, i, j: span.reaches(i, j), queries, keys)


def _blocks(some: Tensor, visible: Callable[..., Tensor], queries: int, keys: int) -> Any:
    """The blocks of 128 keys with a visible one, (B or 1, H or 1, G, G), as lists in ascending order."""
    from torch.nn.attention.flex_attention import BlockMask

    count, listed = some.sum(-1, dtype=torch.int32), some.int().argsort(dim=-1, descending=True, stable=True).int()
    return BlockMask.from_kv_blocks(count, listed, BLOCK_SIZE=SIZE, mask_mod=visible, seq_lengths=(queries, keys))
