"""Softmax attention among neighbours in sorted orders: to keys of the query's chunk and of adjacent chunks.

    o_i = sum_r sum_{j in N_r(i)} p_rij v_j,   p_rij = exp( <q_i, k_j> - l_i ),   l_i = log sum_r sum_j exp <q_i, k_j>

Each round r has its own token order, cut into chunks of c; N_r(i) contains the tokens of the chunks g(i) - before, ..,
g(i) + after, without i itself. There is one softmax over all rounds: a key seen in two rounds counts twice. A query
that sees no other key in any round has o_i = v_i; queries of padding get zeros. Time O(R N c (before + 1 + after) E),
memory O(R N E).

    B batch, H heads, R rounds, N length, S slots (the length in full chunks), G chunks, c slots per chunk,
    K keys per chunk, E head width
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops.precision import autocast_disabled, upcast, upcast_product
from models.ops.softmax_lse import softmax_gradient
from models.ops.tiles import Tile, TileBudget, spans, tiles

TILE = TileBudget(2**19, 2**26)  # scores
ALONE = -1e5  # added to a query's score with itself, which then counts only if no other key is visible


class Neighbours(NamedTuple):
    """Visibility: chunks of `chunk` slots, with `before` and `after` chunks besides the query's own.

    `dropout` is the dropped share of weights, `seed` determines which.
    """

    chunk: int
    before: int = 1
    after: int = 0
    dropout: float = 0.0
    seed: int = 0


def sorted_chunk_attention(
    q: Tensor, k: Tensor, v: Tensor, order: Tensor, lengths: Tensor, neighbours: Neighbours
) -> Tensor:
    """q, k, v (B, H, N, E), order (B, H, R, N), a permutation of the tokens in each round -> (B, H, N, E).

    In every order the first `lengths` (B or 1) tokens are real, and only these are visible; the others get zeros.
    Scores are not scaled.
    """
    with autocast_disabled(q):
        return _SortedChunks.apply(q, k, v, order, lengths, neighbours)


class _SortedChunks(torch.autograd.Function):
    """Rounds are computed separately, tile by tile, combined by their sums, and recomputed in backward. With a_r the
    share of round r in the sum of query i, and p_r = p / a_r the softmax within that round:

        delta = <do, o>,  dV += p_r' (a_r do),  ds_r = p_r * (a_r do V' - a_r delta),  dQ += ds_r K,  dK += ds_r' Q
    """

    @staticmethod
    def forward(ctx, q, k, v, order: Tensor, lengths: Tensor, neighbours: Neighbours) -> Tensor:
        slots = _Slots(order, lengths, neighbours, q.dtype)
        queries, keys, values = slots.cut(q), slots.cut(k, padded=True), slots.cut(v, padded=True)
        out = torch.empty_like(queries)  # (B H R, G, c, E)
        sums = upcast(queries.new_empty(*queries.shape[:-1], 1))  # logarithms
        for tile in slots.tiles():
            scores = slots.scores(tile, queries, keys)
            highest = scores.amax(-1, keepdim=True)
            weights = scores.sub_(highest).exp_()
            total = weights.sum(-1, keepdim=True)
            keep = tile.dropout_mask(weights, neighbours.dropout, neighbours.seed)
            weights = weights if keep is None else weights.mul_(keep)
            out[tile.index] = (weights.to(v.dtype) @ slots.windows(values, tile)) / total.to(v.dtype)
            sums[tile.index] = highest.add_(total.log_())
        shares = slots.join(sums).softmax(2) * slots.join(slots.real.to(sums.dtype))  # (B, H, R, N, 1)
        y = (shares * slots.join(out)).sum(2).to(v.dtype)
        ctx.neighbours = neighbours
        ctx.save_for_backward(q, k, v, order, lengths, y, sums, shares)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, order, lengths, y, sums, shares = ctx.saved_tensors
        with autocast_disabled(q):
            slots = _Slots(order, lengths, ctx.neighbours, q.dtype)
            queries, keys, values = slots.cut(q), slots.cut(k, padded=True), slots.cut(v, padded=True)
            shares = slots.cut_rounds(shares)
            delta = slots.cut((upcast(grad) * upcast(y)).sum(-1, keepdim=True)).mul_(shares)
            grads = slots.cut(grad).mul_(shares)
            dq, dk, dv = torch.empty_like(queries), torch.zeros_like(upcast(keys)), torch.zeros_like(upcast(values))
            for tile in slots.tiles():
                weights = slots.scores(tile, queries, keys).sub_(sums[tile.index]).exp_()
                g = grads[tile.index]
                keep = tile.dropout_mask(weights, ctx.neighbours.dropout, ctx.neighbours.seed)
                dp = upcast_product(g, slots.windows(values, tile).mT)
                ds, dropped = softmax_gradient(dp, weights, delta[tile.index], keep)
                slots.add(dv, tile, dropped.to(v.dtype).mT @ g)
                ds = ds.to(q.dtype)
                dq[tile.index] = ds @ slots.windows(keys, tile)
                slots.add(dk, tile, ds.mT @ queries[tile.index])
            inside = slice(slots.before, slots.before + slots.chunks)
            gradients = (
                slots.join(x).sum(2).to(leaf.dtype) for x, leaf in ((dq, q), (dk[:, inside], k), (dv[:, inside], v))
            )
        return *gradients, None, None, None


class _Slots:
    """The sorted layout of one call."""

    def __init__(self, order: Tensor, lengths: Tensor, neighbours: Neighbours, dtype: torch.dtype):
        self.order = order
        batch, heads, rounds, length = order.shape
        self.chunk = min(neighbours.chunk, length)
        self.chunks = -(-length // self.chunk)  # G
        self.before, self.after = (min(reach, self.chunks - 1) for reach in (neighbours.before, neighbours.after))
        self.span = self.before + 1 + self.after  # chunks of keys for one of queries
        device = order.device
        rows = torch.arange(batch * heads, device=device).view(batch, heads, 1, 1) * length
        self.token = F.pad(order + rows, (0, self.chunks * self.chunk - length)).flatten()  # beyond the end: arbitrary
        lanes = torch.arange(batch * heads * rounds, device=device).view(batch, heads, rounds, 1)
        slot = torch.empty_like(order).scatter_(3, order, torch.arange(length, device=device).expand_as(order))
        self.slot = (slot + lanes * self.chunks * self.chunk).flatten()
        real = torch.arange(self.chunks * self.chunk, device=device) < lengths[:, None]  # (B or 1, S)
        per_lane = real.expand(batch, -1).repeat_interleave(heads * rounds, 0).unflatten(1, (self.chunks, self.chunk))
        self.real = per_lane[..., None]  # (B H R, G, c, 1)
        hidden = F.pad(~per_lane, (0, 0, self.before, self.after), value=True)
        hidden = hidden.unfold(1, self.span, 1).mT.flatten(2)[:, :, None]  # (B H R, G, 1, K)
        dtype = torch.promote_types(dtype, torch.float32)
        self.lowered = hidden * torch.tensor(torch.finfo(dtype).min, dtype=dtype, device=device)

    def cut(self, x: Tensor, *, padded: bool = False) -> Tensor:
        """(B, H, N, F) -> (B H R, G, c, F), or zero-`padded` to (B H R, before + G + after, c, F)."""
        x = x.reshape(-1, x.shape[-1]).index_select(0, self.token).view(-1, self.chunks, self.chunk, x.shape[-1])
        return F.pad(x, (0, 0, 0, 0, self.before, self.after)) if padded else x

    def cut_rounds(self, x: Tensor) -> Tensor:
        """(B, H, R, N, 1) -> (B H R, G, c, 1), zero beyond the end."""
        x = x.gather(3, self.order[..., None])
        x = F.pad(x, (0, 0, 0, self.chunks * self.chunk - x.shape[3]))
        return x.view(self.real.shape)

    def join(self, x: Tensor) -> Tensor:
        """(B H R, G, c, F) -> (B, H, R, N, F)."""
        return x.reshape(-1, x.shape[-1]).index_select(0, self.slot).view(*self.order.shape, x.shape[-1])

    def tiles(self) -> Iterator[Tile]:
        """Some rounds of some heads (lanes) and some of their chunks, computed together."""
        count, scores = len(self.real), self.span * self.chunk**2
        chunks = TILE.fit(self.token, scores, self.chunks)
        lanes = TILE.fit(self.token, chunks * scores)
        return tiles(spans(0, count, lanes), spans(0, self.chunks, chunks))

    def windows(self, x: Tensor, tile: Tile) -> Tensor:
        """Keys or values of a tile's chunks: (lanes, chunks, K, E)."""
        lanes, chunks = tile.index
        x = x[lanes, chunks.start : chunks.stop + self.span - 1]
        return x.unfold(1, self.span, 1).permute(0, 1, 4, 2, 3).flatten(2, 3)

    def add(self, total: Tensor, tile: Tile, part: Tensor) -> None:
        """Add a tile's key gradients, `part` (lanes, chunks, K, E), to total (B H R, before + G + after, c, E)."""
        lanes, chunks = tile.index
        for piece, values in enumerate(part.split(self.chunk, 2)):
            total[lanes, chunks.start + piece : chunks.stop + piece] += values

    def scores(self, tile: Tile, queries: Tensor, keys: Tensor) -> Tensor:
        """(lanes, chunks, c, K), lowest at hidden keys."""
        scores = upcast_product(queries[tile.index], self.windows(keys, tile).mT)
        scores.diagonal(self.before * self.chunk, -2, -1).add_(ALONE)
        return scores.add_(self.lowered[tile.index])
