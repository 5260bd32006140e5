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
    lowest = torch.tensor(float("-inf")).view(torch.int32).item() ^ LATEST
    return (LATEST - (best & 0xFFFFFFFF)).masked_fill_(best >> 32 == lowest, -1)


class _Reach(NamedTuple):
    """Queries are tokens `first`, `first` + 1, ..; `selected` blocks are chosen."""

    block: int
    first: int
    selected: int

    def tiles(self, q: Tensor, blocks: int) -> Iterator[tuple[int, slice, Tensor, int]]:
        """(number, queries, their positions, blocks that are complete at the last one) for q (B, K, H / K, N, E)."""
        length = q.shape[3]
        size = TILE.fit(q, max(1, blocks) * q.shape[0] * q.shape[1] * q.shape[2], length)
        for number, start in enumerate(range(0, length, size)):
            end = min(start + size, length)
            positions = torch.arange(self.first + start, self.first + end, device=q.device)
            yield number, slice(start, end), positions, min((self.first + end) // self.block, blocks)


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
        for _, rows, positions, seen in reach.tiles(q, summaries.shape[2]):
            scores = upcast(q[:, :, :, rows]) @ summaries[:, :, None, :seen].mT  # (B, K, H / K, n, seen)
            block_numbers = torch.arange(seen, device=q.device)
            scores.masked_fill_(block_numbers >= positions[:, None] // block, float("-inf"))
            if hidden is not None:
                scores.masked_fill_(hidden[:, None, None, None, :seen], float("-inf"))
            best = highest_blocks(scores, selected)
            by_group[:, :, :, rows, : best.shape[-1]] = best
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
        for number, rows, positions, seen in reach.tiles(grouped, k.shape[2]):
            if not seen:
                continue
            weights = _scores(grouped[:, :, :, rows], k[:, :, None, :seen], hidden, positions, reach)
            largest = weights.amax(-1, keepdim=True).clamp_(min=torch.finfo(weights.dtype).min)
            total = weights.sub_(largest).exp_().sum(-1, keepdim=True)
            lse[:, :, :, rows] = largest + total.log()
            weights.div_(total.clamp_(min=torch.finfo(total.dtype).tiny))
            best = highest_blocks(_ranked(weights.mean(2), hidden, positions, reach), reach.selected)
            chosen[:, :, rows, : best.shape[-1]] = best
            keep = dropout_mask(weights, dropout, seed + number)
            weights = weights if keep is None else weights.mul_(keep)
            out[:, :, :, rows] = (weights @ upcast(v[:, :, None, :seen])).to(out.dtype)
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
            for number, rows, positions, seen in reach.tiles(grouped, k.shape[2]):
                if not seen:
                    continue
                queries, keys, g = (upcast(x) for x in (grouped[:, :, :, rows], k[:, :, None, :seen], grad[:, :, :, rows]))
                weights = _scores(queries, keys, hidden, positions, reach).sub_(lse[:, :, :, rows]).exp_()
                weights.masked_fill_(lse[:, :, :, rows] == float("-inf"), 0.0)
                keep = dropout_mask(weights, dropout, seed + number)
                row = (g * upcast(out[:, :, :, rows])).sum(-1, keepdim=True)
                ds, dropped = softmax_gradient(g @ upcast(v[:, :, None, :seen]).mT, weights, row, keep)
                dv[:, :, :seen] += (dropped.mT @ g).sum(2)
                ds.mul_(q.shape[-1] ** -0.5)
                dq[:, :, :, rows] = ds @ keys
                dk[:, :, :seen] += (ds.mT @ queries).sum(2)
        return dq.flatten(1, 2).to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), *[None] * 4


def _scores(q: Tensor, k: Tensor, hidden: Tensor | None, positions: Tensor, reach: _Reach) -> Tensor:
    """q (B, K, H / K, n, E), k (B, K, 1, C, E) -> (B, K, H / K, n, C), -inf at blocks not complete or hidden."""
    scores = upcast(q) @ (upcast(k) * q.shape[-1] ** -0.5).mT
    complete = (positions[:, None] + 1) // reach.block
    scores.masked_fill_(torch.arange(k.shape[3], device=q.device) >= complete, float("-inf"))
    if hidden is not None:
        scores.masked_fill_(hidden[:, None, None, None, : k.shape[3]], float("-inf"))
    return scores


def _ranked(shares: Tensor, hidden: Tensor | None, positions: Tensor, reach: _Reach) -> Tensor:
    """Mean probabilities (B, K, n, C) -> what the choice ranks: inf at blocks always seen, -inf at those never."""
    number, current = torch.arange(shares.shape[-1], device=shares.device), positions[:, None] // reach.block
    shares.masked_fill_((number == 0) | (number == current - 1), float("inf"))
    shares.masked_fill_(number >= current, float("-inf"))
    if hidden is not None:
        shares.masked_fill_(hidden[:, None, None, : shares.shape[-1]], float("-inf"))
    return shares
