"""Softmax attention in which a table lists the blocks of keys that each block of queries sees.

    o_i = sum_{j in S(g)} softmax_j( <q_i, k_j> E^-1/2 ) v_j,   i in block g, S(g) the tokens of g's blocks of keys

Keys and values are gathered tile by tile, and again in the backward pass, which uses the saved outputs and log softmax
sums: O(R b S b E) time, O(R b E) memory plus one tile.

    R blocks (over examples and heads), b tokens per block, E head width, T table rows, Q query blocks per row, S key
    blocks per row
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops.dropout import draw_seed
from models.ops.precision import autocast_disabled, upcast
from models.ops.softmax_lse import Visible, softmax_lse, softmax_lse_backward
from models.ops.tiles import TileBudget

TILE = TileBudget(2**16, 2**26)  # gathered keys


class Rows(NamedTuple):
    """Table rows: the blocks of queries (T) or (T, Q) see the blocks of keys (T, S), -1 for none."""

    queries: Tensor
    keys: Tensor


def listed(rows: Sequence[Rows], queries: int, keys: int) -> Tensor:
    """Which of the `keys` blocks of its example and head each of the `queries` blocks sees, (queries, keys)."""
    table = torch.zeros(queries, keys, dtype=torch.bool, device=rows[0].keys.device)
    for read, seen in rows:
        if len(seen):
            seen = torch.where(seen < 0, seen.amax(1, keepdim=True), seen)
            table[read.view(len(seen), -1, 1), seen[:, None] % keys] = True
    return table


def block_sparse_attention(
    q: Tensor, k: Tensor, v: Tensor, rows: Sequence[Rows], *, hidden: Tensor | None, dropout: float = 0.0
) -> Tensor:
    """q, k, v (R, b, E), each block of queries in at most one of `rows` -> (R, b, E), zeros for blocks in none.

    `hidden` (R, b) is True at hidden keys; each listed query block must see a key. None, which is faster, means that no
    key is hidden and no row contains -1. A key block counts as often as it is listed. `dropout` is the dropped share of
    weights, whatever the mode of the calling module.
    """
    seed = draw_seed(dropout)
    return _BlockSparse.apply(q, k, v, hidden, _RowTiles(rows, dropout, seed))


class _RowTiles(NamedTuple):
    rows: Sequence[Rows]
    dropout: float
    seed: int

    def tiles(self, k: Tensor, hidden: Tensor | None) -> Iterator[tuple[Tensor, Tensor, Visible]]:
        """Tiles of rows: (queries (T', Q), keys (T' S), visibility)."""
        number = 0
        for queries, keys in self.rows:
            if not len(keys):
                continue
            queries = queries.view(len(keys), -1)
            size = TILE.fit(k, keys.shape[1] * k[0].numel())
            for queried, tile in zip(queries.split(size), keys.split(size), strict=True):
                blind = None
                if hidden is not None:
                    blind = (hidden[tile.clamp(min=0)] | (tile < 0)[..., None]).flatten(1)  # (T', S b)
                    tile = tile.clamp(min=0)
                yield queried, tile.flatten(), Visible(False, blind, self.dropout, self.seed + (number << 20))
                number += 1


def _gather(x: Tensor, blocks: Tensor, tile: int) -> Tensor:
    """Blocks (tile S), or (tile, S), of x (R, b, E) -> (tile, 1, S b, E)."""
    return x.index_select(0, blocks.flatten()).view(tile, 1, -1, x.shape[-1])


class _BlockSparse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, hidden, plan):
        out, lse = torch.zeros_like(q), upcast(q.new_zeros(q.shape[:-1]))
        with autocast_disabled(q):
            for queries, keys, visible in plan.tiles(k, hidden):
                tile = len(queries)
                y, total = softmax_lse(_gather(q, queries, tile), *(_gather(x, keys, tile) for x in (k, v)), visible)
                for whole, part in ((out, y), (lse, total)):
                    whole.index_copy_(0, queries.flatten(), part.reshape(-1, *whole.shape[1:]))
        ctx.plan = plan
        ctx.save_for_backward(q, k, v, hidden, out, lse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        q, k, v, hidden, out, lse = ctx.saved_tensors
        dq = torch.zeros_like(q)
        dk, dv = (torch.zeros_like(x, dtype=lse.dtype) for x in (k, v))
        with autocast_disabled(q):
            for queries, keys, visible in ctx.plan.tiles(k, hidden):
                tile, blocks = len(queries), queries.flatten()
                inputs = (_gather(x, queries, tile) for x in (grad, q))
                saved = _gather(out, queries, tile), lse.index_select(0, blocks).view(tile, 1, -1)
                dq_tile, *grads = softmax_lse_backward(
                    *inputs, *(_gather(x, keys, tile) for x in (k, v)), *saved, visible
                )
                dq.index_copy_(0, blocks, dq_tile.reshape(-1, *q.shape[1:]))
                for total, part in zip((dk, dv), grads, strict=True):
                    total.index_add_(0, keys, upcast(part).view(len(keys), *k.shape[1:]))
        return dq, dk.to(k.dtype), dv.to(v.dtype), None, None
