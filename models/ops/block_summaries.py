"""Blocks of keys by their summaries, one key and one value per block: attention to them, and the choice of blocks.

    o_t = sum_{c complete at t} p_tc v_c,   p_t = softmax_c( <q_t, k_c> E^-1/2 ),   c complete: (c + 1) b <= t + 1

A choice lists the blocks with the highest scores; of equal scores the earlier block counts as higher, so a choice
depends neither on the tiles nor on the device. Scores are compared in float32 and take O(N^2 / b) time; they are
computed tile by tile, and again in the backward pass: O(N E) memory plus one tile.

    B batch, H heads, K heads of keys and values, N queries, M keys, E head width, b tokens per block, C blocks,
    S chosen blocks
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops.dropout import draw_seed, dropout_mask
from models.ops.precision import autocast_disabled, upcast
from models.ops.softmax_lse import softmax_gradient
from models.ops.tiles import TileBudget

TILE = TileBudget(2**18, 2**25)  # scores
LATEST = 2**31 - 1  # above the number of any block
LOWEST = -0x7F800001  # -inf among integers in the order of the float32 numbers


def block_means(x: Tensor, block: int, key_padding_mask: Tensor | None = None) -> Tensor:
    """x (B, K, M, E) -> (B, K, M // block, E): each complete block's mean, without tokens at which the mask (B, M) is
    True; zeros for a block without other tokens."""
    x = upcast(x[:, :, : x.shape[2] // block * block]).unflatten(2, (-1, block))
    if key_padding_mask is None:
        return x.mean(3)
    real = ~key_padding_mask[:, : x.shape[2] * block].unflatten(1, (-1, block))[:, None]  # (B, 1, C, b)
    return x.masked_fill(~real[..., None], 0.0).sum(3) / real.sum(3)[..., None].clamp(min=1)


def hidden_blocks(key_padding_mask: Tensor | None, block: int) -> Tensor | None:
    """(B, M), True at padding -> (B, M // block), True at blocks without other tokens; None without a mask."""
    if key_padding_mask is None:
        return None
    complete = key_padding_mask.shape[1] // block
    return key_padding_mask[:, : complete * block].unflatten(1, (complete, block)).all(2)


def highest_blocks(scores: Tensor, count: int) -> Tensor:
    """scores (.., C) -> (.., min(count, C)): the blocks with the highest scores, highest first; -1 for scores of -inf.

    Of equal scores the first is higher.
    """
    bits = (scores.float() + 0.0).view(torch.int32)  # + 0.0: no negative zero
    ordered = (bits ^ ((bits >> 31) & LATEST)).long()  # as integers in the order of the numbers
    number = LATEST - torch.arange(scores.shape[-1], device=scores.device)
    best = (ordered << 32 | number).topk(min(count, scores.shape[-1])).values
    return (LATEST - (best & 0xFFFFFFFF)).masked_fill_(best >> 32 == LOWEST, -1)


class _Tile(NamedTuple):
    """Some queries: all blocks before `always` are complete at each of them, none from `seen` on at any."""

    number: int
    rows: slice
    positions: Tensor  # (n, 1)
    always: int
    seen: int


class _Reach(NamedTuple):
    """Queries are tokens `first`, `first` + 1, ..; `selected` blocks are chosen."""

    block: int
    first: int
    selected: int

    def tiles(self, q: Tensor, blocks: int) -> Iterator[_Tile]:
        """Tiles in which a block is complete, for q (B, K, H / K, N, E) and `blocks` summaries."""
        length = q.shape[3]
        size = TILE.fit(q, max(1, blocks) * q.shape[0] * q.shape[1] * q.shape[2], length)
        for number, start in enumerate(range(0, length, size)):
            end = min(start + size, length)
            positions = torch.arange(self.first + start, self.first + end, device=q.device)[:, None]
            always, seen = ((self.first + last) // self.block for last in (start + 1, end))
            if seen:
                yield _Tile(number, slice(start, end), positions, always, min(seen, blocks))

    def scores(self, q: Tensor, k: Tensor, hidden: Tensor | None, tile: _Tile) -> Tensor:
        """<q_t, k_c> of q (B, K, H / K, N, E), k (B, K, C, E): (B, K, H / K, n, seen), -inf where not to be read."""
        scores = upcast(q[:, :, :, tile.rows]) @ upcast(k[:, :, None, : tile.seen]).mT
        recent = torch.arange(tile.always, tile.seen, device=q.device)
        scores[..., tile.always :].masked_fill_(recent >= (tile.positions + 1) // self.block, float("-inf"))
        if hidden is not None:
            scores.masked_fill_(hidden[:, None, None, None, : tile.seen], float("-inf"))
        return scores

    def ranked(self, shares: Tensor, hidden: Tensor | None, tile: _Tile) -> Tensor:
        """Mean probabilities (B, K, n, seen) -> what is ranked: inf at blocks always chosen, -inf at those never."""
        shares[..., 0] = float("inf")
        near = max(0, tile.always - 2)
        number, current = torch.arange(near, tile.seen, device=shares.device), tile.positions // self.block
        shares[..., near:].masked_fill_(number == current - 1, float("inf"))
        return self.without_own(shares, hidden, tile)

    def without_own(self, scores: Tensor, hidden: Tensor | None, tile: _Tile) -> Tensor:
        """(B, .., n, seen), changed to -inf at the query's own block, at later and hidden ones."""
        near = max(0, tile.always - 1)
        number = torch.arange(near, tile.seen, device=scores.device)
        scores[..., near:].masked_fill_(number >= tile.positions // self.block, float("-inf"))
        if hidden is not None:
            scores.masked_fill_(hidden.view(len(hidden), *[1] * (scores.ndim - 2), -1)[..., : tile.seen], float("-inf"))
        return scores


def choose_blocks(
    q: Tensor, summaries: Tensor, hidden: Tensor | None, *, block: int, selected: int, first: int = 0
) -> Tensor:
    """q (B, H, N, E) of tokens `first`, .., summaries (B, K, C, E) -> (B, H, N, S): blocks before the query's own.

    Those with the `selected` highest <q_t, k_c>, -1 for none; `hidden` (B, C) is True at blocks not to be chosen.
    """
    reach = _Reach(block, first, selected)
    chosen = q.new_full((*q.shape[:3], selected), -1, dtype=torch.int64)
    by_group = chosen.unflatten(1, (summaries.shape[1], -1))
    with torch.no_grad(), autocast_disabled(q):
        q = q.unflatten(1, (summaries.shape[1], -1))
        for tile in reach.tiles(q, summaries.shape[2]):
            scores = reach.without_own(reach.scores(q, summaries, hidden, tile), None, tile)
            best = highest_blocks(scores, selected)
            by_group[:, :, :, tile.rows, : best.shape[-1]] = best
    return chosen


def summary_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    hidden: Tensor | None,
    *,
    block: int,
    selected: int,
    first: int = 0,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Attention of q (B, H, N, E) to summaries k, v (B, K, C, E): o (B, H, N, E), and the choice (B, K, N, S).

    Queries are the tokens `first`, ..; a query without a complete block gets zeros. `hidden` (B, C) is True at blocks
    that are not read. The choice lists `selected` blocks before the query's own, -1 for none: the first block, the one
    directly before, and those with the highest probabilities on average over the heads that share keys.
    """
    reach = _Reach(block, first, selected)
    with autocast_disabled(q):
        return _SummaryAttention.apply(q, k, v, hidden, reach, dropout, draw_seed(dropout))


class _SummaryAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None, *settings: Any):
        reach, dropout, seed = settings
        grouped = q.unflatten(1, (k.shape[1], -1))
        out, lse = torch.zeros_like(grouped), upcast(q.new_zeros(*grouped.shape[:4], 1))
        chosen = q.new_full((q.shape[0], k.shape[1], q.shape[2], reach.selected), -1, dtype=torch.int64)
        keys = upcast(k) * q.shape[-1] ** -0.5
        for tile in reach.tiles(grouped, k.shape[2]):
            weights = reach.scores(grouped, keys, hidden, tile)
            largest = weights.amax(-1, keepdim=True).clamp_(min=torch.finfo(weights.dtype).min)
            total = weights.sub_(largest).exp_().sum(-1, keepdim=True)
            lse[:, :, :, tile.rows] = largest + total.log()
            weights.div_(total.clamp_(min=torch.finfo(total.dtype).tiny))
            best = highest_blocks(reach.ranked(weights.mean(2), hidden, tile), reach.selected)
            chosen[:, :, tile.rows, : best.shape[-1]] = best
            keep = dropout_mask(weights, dropout, seed + tile.number)
            weights = weights if keep is None else weights.mul_(keep)
            out[:, :, :, tile.rows] = (weights @ upcast(v[:, :, None, : tile.seen])).to(out.dtype)
        ctx.mark_non_differentiable(chosen)
        ctx.settings = settings
        ctx.save_for_backward(q, k, v, hidden, out, lse)
        return out.flatten(1, 2), chosen

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        q, k, v, hidden, out, lse = ctx.saved_tensors
        reach, dropout, seed = ctx.settings
        grouped, grad = (x.unflatten(1, (k.shape[1], -1)) for x in (q, grad))
        dq, dk, dv = (torch.zeros_like(x, dtype=lse.dtype) for x in (grouped, k, v))
        with autocast_disabled(q):
            keys = upcast(k) * q.shape[-1] ** -0.5
            for tile in reach.tiles(grouped, k.shape[2]):
                rows, seen = (slice(None),) * 3 + (tile.rows,), (slice(None), slice(None), slice(0, tile.seen))
                queries, g, result, sums = (upcast(x[rows]) for x in (grouped, grad, out, lse))
                weights = reach.scores(grouped, keys, hidden, tile).sub_(sums).exp_()
                weights.masked_fill_(sums == float("-inf"), 0.0)
                keep = dropout_mask(weights, dropout, seed + tile.number)
                row = (g * result).sum(-1, keepdim=True)
                ds, dropped = softmax_gradient(g @ upcast(v[seen])[:, :, None].mT, weights, row, keep)
                dv[seen] += (dropped.mT @ g).sum(2)
                dq[rows] = ds @ keys[seen][:, :, None]
                dk[seen] += (ds.mT @ queries).sum(2)
            dk.mul_(q.shape[-1] ** -0.5)
        return dq.flatten(1, 2).to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), *[None] * 4
