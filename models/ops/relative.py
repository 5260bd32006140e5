"""Softmax attention to the query's segment and to a past, with distance-dependent scores (Dai et al., 2019).

    s_ij = E^-1/2 ( <q_i + u, k_j> + <q_i + w, r_(i-j)> ),   o_i = sum_j softmax_j(s_ij) v_j
    r_d is row d of a table with one vector per distance in keys

A query sees the keys of its segment up to its own, and all keys in a window of each past; the windows move with the
segments. A past has separate keys and values, so it may be detached from the graph or shorter than the sequence.
Distances are counted in keys: a segment's keys follow those of the last past, which follow those of the previous past.

Products <q_i + w, r_d> are computed for all distances of a row. Reading them with rows that are one column shorter
aligns them with the keys: column j of row i is entry j + n - 1 - i of the distances in descending order (the relative
shift). Scores are computed tile by tile. Their softmax is kept for the backward pass where it is small, and recomputed
elsewhere: O(N L E) time, O(N E) memory plus one tile. With S the gradient of the scores,

    dQ = S K + S^ R,  dK = S' (Q + u),  dR = S^' (Q + w),  du, dw the sums of the two parts of dQ,  S^ S shifted back

    B batch, H heads, N length, E head width, G segments of s tokens, L keys per segment, n queries per tile
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops.decayed_chunks import Chunks
from models.ops.dropout import draw_seed
from models.ops.positions import rope_frequencies
from models.ops.precision import autocast_disabled, upcast, upcast_product
from models.ops.softmax_lse import softmax_gradient
from models.ops.tiles import EVERY, Tile, TileBudget, spans, tiles

TILE = TileBudget(2**19, 2**26)  # scores
KEPT = 2**25  # weights of a call that wait for the backward pass, 128 MiB in float32; more are computed again


def distance_sinusoids(distances: int, dim: int, like: Tensor) -> Tensor:
    """(distances, dim), all sines before all cosines, dtype and device of `like`. An odd dim raises ValueError."""
    distance = torch.arange(distances, dtype=torch.float64, device=like.device)
    angles = distance[:, None] * rope_frequencies(dim, device=like.device)
    return torch.cat([angles.sin(), angles.cos()], -1).to(like.dtype)


def by_key(x: Tensor) -> Tensor:
    """(.., n, L) by distance, descending to 0 -> a view by key; entries at later keys have no meaning."""
    queries, keys = x.shape[-2:]
    return x if queries == 1 else x.flatten(-2)[..., queries - 1 :].unfold(-1, keys, keys - 1)


def by_distance(x: Tensor) -> Tensor:
    """The transpose of `by_key` for x (.., n, L), which is 0 at keys after a query's own; the last query's is L - 1."""
    queries, keys = x.shape[-2:]
    out = F.pad(x[..., :-1].flatten(-2), (queries - 1, 1))
    out[..., -1] = x[..., -1, -1]
    return out.unflatten(-1, (queries, keys))


class Past(NamedTuple):
    """Keys before the segments, k and v (B, H, K, E).

    Segment g sees the `width` > 0 rows from `start` + g `step` on. Rows before the first and after the last do not
    exist, but at least one row does. `hidden` (B, K) is True at hidden rows.
    """

    k: Tensor
    v: Tensor
    width: int
    start: int
    step: int
    hidden: Tensor | None = None


def relative_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pasts: tuple[Past, ...],
    table: Tensor,
    content: Tensor,
    position: Tensor,
    *,
    segment: int,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q, k, v (B, H, N, E), starting at a segment boundary -> (B, H, N, E).

    `table` (H, R, E) holds one vector per distance, for at least as many distances as visible keys: the widths of the
    `pasts`, oldest first, plus a segment. `content` and `position` (H, E) are u and w. `key_padding_mask` (B, N) is
    True at hidden keys; a query that sees no key gets zeros. The softmax is computed in float32 or float64.
    """
    flat = [x for past in pasts for x in (past.k, past.v, past.hidden)]
    windows = tuple((past.width, past.start, past.step) for past in pasts)
    options = _Options(segment, windows, dropout, draw_seed(dropout), torch.is_grad_enabled())
    return _RelativeAttention.apply(q, k, v, table, content, position, key_padding_mask, options, *flat)


@dataclass(frozen=True)
class _Options:
    segment: int
    windows: tuple[tuple[int, int, int], ...]  # width, start and step of each past
    dropout: float
    seed: int
    has_backward: bool  # parameters need gradients without a backward pass as well, so `needs_input_grad` does not tell


class _RelativeAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, table, content, position, padding, options: _Options, *flat) -> Tensor:
        with autocast_disabled(q):
            blocks = _Segments(q, k, v, table, content, position, padding, options, flat)
            out, kept = torch.empty_like(blocks.q), []  # (B, H, G, s, E)
            keeps = options.has_backward and any(ctx.needs_input_grad) and blocks.scores <= KEPT
            for tile in blocks.tiles():
                weights = blocks.weights(tile)
                if keeps:
                    kept.append(weights)
                keep = tile.dropout_mask(weights, options.dropout, options.seed)
                out[tile.index] = blocks.times(tile, weights if keep is None else weights * keep, values=True)
            out = blocks.join(out)
        ctx.options = options
        ctx.save_for_backward(q, k, v, table, content, position, padding, out, *flat, *kept)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, table, content, position, padding, out, *flat = ctx.saved_tensors
        flat, kept = flat[: 3 * len(ctx.options.windows)], flat[3 * len(ctx.options.windows) :]
        with autocast_disabled(q):
            blocks = _Segments(q, k, v, table, content, position, padding, ctx.options, flat)
            # rowsum(dO * O) equals rowsum(P * dP) even with dropped weights
            rows = blocks.cut((upcast(grad) * upcast(out)).sum(-1, keepdim=True))  # (B, H, G, s, 1)
            grad, dq = blocks.cut(grad), torch.empty_like(blocks.q)
            dtable, dcontent, dposition = (torch.zeros_like(upcast(x)) for x in (table, content, position))
            blocks.zeros()
            for tile in blocks.tiles():
                g, keys = grad[tile.index], blocks.keys_seen(tile)
                weights = kept[tile.number] if kept else blocks.weights(tile)
                keep = tile.dropout_mask(weights, ctx.options.dropout, ctx.options.seed)
                if kept and keep is not None:
                    weights = weights.clone()  # overwritten below
                ds, dropped = softmax_gradient(blocks.products(tile, g, values=True), weights, rows[tile.index], keep)
                blocks.add(tile, dropped, g, values=True)
                blocks.add(tile, ds, blocks.q[tile.index] + blocks.content, values=False)
                near = blocks.times(tile, ds, values=False)
                shifted = by_distance(ds.to(q.dtype).transpose(0, 1)).flatten(1, 3)  # (H, rows G n, L)
                far = (shifted @ blocks.table[:, -keys:]).view_as(near.transpose(0, 1)).transpose(0, 1)
                dtable[:, :keys] += upcast_product(shifted.mT, blocks.queries_by_head(tile)).flip(1)
                dcontent += upcast(near).sum((0, 2, 3))
                dposition += upcast(far).sum((0, 2, 3))
                dq[tile.index] = near + far
            # queries and biases were scaled
            scale = blocks.scale
            pairs = (dtable, table), (dcontent.mul_(scale), content), (dposition.mul_(scale), position)
            small = [x.to(like.dtype) for x, like in pairs]
            dk, dv, *pasts = blocks.gradients()
            dq = blocks.join(dq) * scale
        return dq, dk, dv, *small, None, None, *pasts


class _Window:
    """Keys and values (B, H, K, E), of which each of `count` segments sees `width`: k, v (B, H, G, width, E)."""

    def __init__(self, k: Tensor, v: Tensor, hidden: Tensor | None, width: int, start: int, step: int, count: int):
        self.step, self.steps, self.like = step, count - 1 + -(-width // step), (k, v)
        end, length = start + (count - 1) * step + width, k.shape[2]
        # existing rows, the number missing before and after them, and the rows that no window reaches
        self.rows = slice(max(0, start), min(end, length))
        self.missing = max(0, -start), max(0, end - length)
        self.unseen = self.rows.start, length - self.rows.stop
        self.whole = hidden is None and self.missing == (0, 0)

        def cut(x: Tensor, fill: float) -> Tensor:
            return F.pad(x[:, :, self.rows], (0, 0, *self.missing), value=fill).unfold(2, width, step).mT

        self.k, self.v = cut(k, 0.0), cut(v, 0.0)
        hidden = torch.zeros(1, length, dtype=torch.bool, device=k.device) if hidden is None else hidden
        self.hidden = cut(hidden[:, None, :, None], True)[:, 0, ..., 0]  # (B or 1, G, width)
        self.total: tuple[Tensor, ...] = ()

    def zeros(self) -> None:
        """Accumulators for gradients of keys and values, in whole steps so that `add` can write them."""
        batch, heads, _, width = self.like[0].shape
        self.total = tuple(upcast(x.new_zeros(batch, heads, self.steps * self.step, width)) for x in self.like)

    def add(self, tile: Tile, part: Tensor, values: bool) -> None:
        """Add a tile's gradients of its first keys or values, (rows, H, segments, keys, E)."""
        keys, total = part.shape[3], self.total[values]
        rows, _, segments, _ = tile.index
        for piece, first in enumerate(range(0, keys, self.step)):
            size = min(self.step, keys - first)
            lane = slice((segments.start + piece) * self.step, (segments.stop + piece) * self.step)
            lane = total[rows, :, lane].unflatten(2, (-1, self.step))
            lane[..., :size, :] += part[..., first : first + size, :]

    def gradients(self) -> list[Tensor]:
        """Of k and v."""
        first, count = self.missing[0], self.rows.stop - self.rows.start
        pairs = zip(self.total, self.like, strict=True)
        return [F.pad(x[:, :, first : first + count], (0, 0, *self.unseen)).to(like.dtype) for x, like in pairs]


class _Segments(Chunks):
    """One call cut into segments, and the windows of keys that they see: in the pasts and in the segments."""

    def __init__(self, q, k, v, table, content, position, padding, options: _Options, flat):
        self.options, self.scale, self.padded = options, q.shape[-1] ** -0.5, any(x is not None for x in flat[2::3])
        self.padded |= padding is not None
        super().__init__(q.shape[2], options.segment, any_size=True)  # s tokens in each of G
        self.batch, self.heads = q.shape[:2]
        self.q = self.cut(q * self.scale)
        self.content, self.position = (x[:, None, None] * self.scale for x in (content, position))  # (H, 1, 1, E)
        pasts = zip(flat[::3], flat[1::3], flat[2::3], options.windows, strict=True)
        self.windows = [_Window(*past, *window, self.count) for *past, window in pasts]
        self.past = sum(width for width, *_ in options.windows)
        self.windows.append(_Window(k, v, padding, self.size, 0, self.size, self.count))
        self.table = table[:, : self.past + self.size].flip(1)  # (H, L, E), from the largest distance to 0
        rows = self.batch if self.padded else 1
        hidden = [window.hidden.expand(rows, -1, -1) for window in self.windows]
        self.hidden = torch.cat(hidden, -1)[:, None, :, None]  # (B or 1, 1, G, 1, L)
        self.whole = all(window.whole for window in self.windows)
        self.scores = self.batch * self.heads * self.count * self.size * self.table.shape[1]

    def tiles(self) -> Iterator[Tile]:
        """Some examples, some of their segments, and some queries of each, computed together."""
        keys = self.heads * (self.past + self.size)
        queries = TILE.fit(self.q, keys, self.size)
        segments = TILE.fit(self.q, keys * queries, self.count)
        rows = TILE.fit(self.q, keys * queries * segments, self.batch)
        axes = spans(0, self.count, segments), spans(0, self.size, queries)
        return tiles(spans(0, self.batch, rows), EVERY, *axes)

    def keys_seen(self, tile: Tile) -> int:
        """The number of keys that the last query of a tile sees."""
        return self.past + tile.index[3].stop

    def seen(self, tile: Tile, values: bool) -> list[Tensor]:
        """The keys or values of a tile per window, each (rows, H, segments, its width, E)."""
        rows, _, segments, queries = tile.index
        seen = [(window.v if values else window.k)[rows, :, segments] for window in self.windows]
        return [*seen[:-1], seen[-1][..., : queries.stop, :]]

    def products(self, tile: Tile, x: Tensor, *, values: bool) -> Tensor:
        """x (rows, H, segments, n, E) with each key or value: (rows, H, segments, n, L), in full precision."""
        return torch.cat([upcast_product(x, window.mT) for window in self.seen(tile, values)], -1)

    def times(self, tile: Tile, x: Tensor, *, values: bool) -> Tensor:
        """Sums of keys or values weighted by x (rows, H, segments, n, L): (rows, H, segments, n, E)."""
        windows = self.seen(tile, values)
        parts = x.to(windows[0].dtype).split([window.shape[-2] for window in windows], -1)
        return sum(part @ window for part, window in zip(parts, windows, strict=True))

    def add(self, tile: Tile, x: Tensor, rows: Tensor, *, values: bool) -> None:
        """Add x' rows to the gradients of keys or values; x (.., n, L), rows (.., n, E)."""
        first = 0
        for window, seen in zip(self.windows, self.seen(tile, values), strict=True):
            part = x[..., first : first + seen.shape[-2]].to(rows.dtype)
            window.add(tile, part.mT @ rows, values)
            first += seen.shape[-2]

    def queries_by_head(self, tile: Tile) -> Tensor:
        """Q + w, (H, rows segments n, E)."""
        return (self.q[tile.index] + self.position).transpose(0, 1).flatten(1, 3)

    def weights(self, tile: Tile) -> Tensor:
        """Softmax of a tile's scores, (rows, H, segments, n, L), zero at hidden and at later keys."""
        (rows, _, segments, queries), keys = tile.index, self.keys_seen(tile)
        q = self.q[tile.index]
        scores = self.products(tile, q + self.content, values=False)
        far = upcast_product(self.queries_by_head(tile), self.table[:, -keys:].mT)  # (H, rows segments n, L)
        scores += by_key(far.view_as(scores.transpose(0, 1))).transpose(0, 1)
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(self.past + queries.start + 1)
        scores.masked_fill_(later, float("-inf"))
        if self.whole:
            return scores.softmax(-1)
        hidden = self.hidden[rows if self.padded else slice(None), :, segments, :, :keys]
        if not self.padded:  # a query sees itself
            return scores.masked_fill_(hidden, float("-inf")).softmax(-1)
        # finite, so that a row without visible keys does not divide 0 by 0; the second fill sets it to zero
        scores.masked_fill_(hidden & ~later, torch.finfo(scores.dtype).min)
        return scores.softmax(-1).masked_fill_(hidden, 0.0)

    def zeros(self) -> None:
        for window in self.windows:
            window.zeros()

    def gradients(self) -> list[Tensor | None]:
        """Gradients of k and v, then of each past's k, v and (None) its mask."""
        *pasts, current = [window.gradients() for window in self.windows]
        return current + [x for past in pasts for x in (*past, None)]
