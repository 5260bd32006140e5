"""Causal softmax attention in which each query chooses the past blocks of keys that it sees besides its own block.

    o_i = sum_{j in S(i)} softmax_j( <q_i, k_j> E^-1/2 ) v_j,
    S(i) = the tokens j <= i of i's own block, and all tokens of its chosen blocks

Pairs of a query and a chosen block are sorted by block and cut into chunks of c queries that read the same keys, so
every product is one of matrices. A query's results from several blocks are merged by their log softmax sums. The
backward pass computes the scores again from the saved outputs and sums. Time O(N S b E + N b E), memory O(N (E + S))
plus one tile.

    B batch, H heads, K heads of keys and values, N queries, M keys, E head width, b tokens per block, S chosen
    blocks per query, C blocks of keys, c queries per chunk, T chunks per tile
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops.dropout import draw_seed
from models.ops.precision import autocast_disabled, upcast
from models.ops.softmax_lse import Visible, softmax_lse, softmax_lse_backward
from models.ops.tiles import TileBudget, in_few_kernels, spans

TILE = TileBudget(2**18, 2**26)  # gathered queries or keys
NARROWEST, WIDEST = 16, 128  # bounds of c
LARGE = 1e30  # a log sum that makes every weight zero
MOST = 2**15  # blocks or chunks per call of a kernel: a CUDA grid has at most 65,535 along this axis


def chosen_block_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    chosen: Tensor,
    *,
    block: int,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q (B, H, N, E), k, v (B, K, M, E), chosen (B, H, N, S) -> (B, H, N, E).

    The queries are those of the last N of M tokens, and H is a multiple of K. `chosen` lists earlier blocks of `block`
    tokens, each at most once, -1 for none; a chosen block has a visible key. `key_padding_mask` (B, M) is True at
    hidden keys; a query that sees no key gets zeros. `dropout` is the dropped share of weights, whatever the mode of
    the calling module.
    """
    first, length = (k.shape[2] - q.shape[2]) % block, q.shape[2]
    rest = -k.shape[2] % block
    k, v = (F.pad(x, (0, 0, 0, rest)) for x in (k, v))
    q, chosen = F.pad(q, (0, 0, first, rest)), F.pad(chosen, (0, 0, first, rest), value=-1)
    hidden = None
    if key_padding_mask is not None:
        hidden = F.pad(key_padding_mask, (0, rest), value=True).unflatten(1, (-1, block))  # (B, C, b)
    with autocast_disabled(q):
        y = _ChosenBlocks.apply(q, k.to(q.dtype), v.to(q.dtype), chosen, hidden, block, dropout, draw_seed(dropout))
    return y[:, :, first : first + length]


class _Pairs(NamedTuple):
    """Chunks of pairs: `queries` (chunks, c) are rows of q or the row after its last, `blocks` (chunks) rows of k."""

    queries: Tensor
    blocks: Tensor

    def tiles(self, k: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        """(number, queries (T c), blocks (T)) for k (B K C, b, E)."""
        size = TILE.fit(k, max(k.shape[1], self.queries.shape[1]) * k.shape[2], MOST)
        parts = zip(self.queries.split(size), self.blocks.split(size), strict=True)
        return ((number, queries.flatten(), blocks) for number, (queries, blocks) in enumerate(parts) if len(blocks))


def _pairs(chosen: Tensor, heads: int, blocks: int, block: int) -> _Pairs:
    """chosen (B, H, N, S), K heads and C blocks of keys -> the pairs by block."""
    batch, query_heads, length, slots = chosen.shape
    device, group = chosen.device, query_heads // heads
    lanes = torch.arange(batch * query_heads, device=device) // group * blocks
    flat, lane = chosen.flatten(0, 1), batch * heads * blocks  # the lane after the last is that of no block
    rows, pair = (flat + lanes[:, None, None]).masked_fill_(flat < 0, lane).flatten().sort(stable=True)
    counts = rows.new_zeros(lane + 1).scatter_add_(0, rows, torch.ones_like(rows))[:-1]
    # chunks of an eighth of the pairs that a block has on average: few are empty, and products are large
    width = min(max(NARROWEST, 1 << (slots * block * group // 8).bit_length()), WIDEST)
    chunks = (counts + width - 1) // width
    ends = chunks.cumsum(0)
    total = _most_chunks(ends, len(rows), width)
    # a pair's rank in its block, after the chunks of the blocks before
    first = (ends - chunks) * width - (counts.cumsum(0) - counts)
    position = torch.arange(len(rows), device=device) + F.pad(first, (0, 1)).index_select(0, rows)
    position = position.masked_fill_(rows == lane, total * width)
    queries = rows.new_full((total * width + 1,), batch * query_heads * length)
    queries.index_copy_(0, position, pair // max(1, slots))
    number = torch.searchsorted(ends, torch.arange(total, device=device), right=True).clamp_(max=lane - 1)
    return _Pairs(queries[:-1].view(-1, width), number)


def _most_chunks(ends: Tensor, pairs: int, width: int) -> int:
    """The number of chunks, or a bound of it where the CPU would wait for it: the last chunks are then empty."""
    return min(len(ends), pairs) + pairs // width if in_few_kernels(ends) else int(ends[-1])


class _Layout:
    """The operands of one call as rows: tokens of queries, blocks of keys and values."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None, block: int, dropout: float, seed: int):
        self.shape, self.block, self.dropout, self.seed = q.shape, block, dropout, seed
        self.heads, self.group = k.shape[1], q.shape[1] // k.shape[1]
        self.last = q.shape[0] * q.shape[1] * q.shape[2]  # the row after the last
        self.blocks = k.shape[2] // block
        self.q, self.k, self.v = q.reshape(-1, q.shape[-1]), self.cut(k), self.cut(v)
        self.hidden = None if hidden is None else hidden.repeat_interleave(self.heads, 0).flatten(0, 1)  # (B K C, b)

    def cut(self, x: Tensor) -> Tensor:
        """(B, K, C b, E) -> (B K C, b, E)."""
        return x.reshape(-1, self.block, x.shape[-1])

    def own(self, x: Tensor) -> Tensor:
        """Blocks (B K C, ..) -> those of the queries in each head, (B H G, ..)."""
        x = x.unflatten(0, (self.shape[0], self.heads, 1, self.blocks))[:, :, :, -self.shape[2] // self.block :]
        return x.expand(-1, -1, self.group, *x.shape[3:]).reshape(-1, *x.shape[4:])

    def add_own(self, total: Tensor, part: Tensor) -> None:
        """total (B K C, b, E) += part (B H G, 1, b, E), summed over the heads of a group."""
        count = self.shape[2] // self.block
        part = upcast(part).reshape(self.shape[0], self.heads, self.group, count, self.block, -1).sum(2)
        total.unflatten(0, (self.shape[0], self.heads, self.blocks))[:, :, -count:] += part

    def own_tiles(self, *rows: Tensor) -> Iterator[tuple[list[Tensor], Visible]]:
        """Rows (B H N, E) as blocks of queries, and then their keys and values: (tile, 1, b, E), and the visibility."""
        blocks = [x.reshape(-1, self.block, x.shape[-1]) for x in rows] + [self.own(x) for x in (self.k, self.v)]
        hidden = None if self.hidden is None else self.own(self.hidden)
        for number, part in enumerate(spans(0, len(blocks[0]), MOST)):
            mask = None if hidden is None else hidden[part]
            yield [x[part, None] for x in blocks], Visible(True, mask, self.dropout, self.seed + (number << 20))

    def visible(self, number: int, blocks: Tensor) -> Visible:
        hidden = None if self.hidden is None else self.hidden.index_select(0, blocks)
        before = self.last // self.block  # own blocks
        return Visible(False, hidden, self.dropout, self.seed + (-(-before // MOST) + number << 20))

    def gather(self, queries: Tensor, chunks: int, *rows: Tensor) -> list[Tensor]:
        """Rows (B H N, E) at `queries` (T c): (T, 1, c, E); some row for the one after the last."""
        index = queries.clamp(max=self.last - 1)
        return [x.index_select(0, index).view(chunks, 1, -1, x.shape[-1]) for x in rows]

    def gather_blocks(self, blocks: Tensor) -> list[Tensor]:
        return [x.index_select(0, blocks)[:, None] for x in (self.k, self.v)]


class _ChosenBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, chosen: Tensor, hidden: Tensor | None, *settings: Any):
        layout = _Layout(q, k, v, hidden, *settings)
        pairs = _pairs(chosen, layout.heads, layout.blocks, layout.block)
        out = upcast(q.new_zeros(layout.last + 1, q.shape[-1]))
        peak = torch.full_like(out[:, 0], LARGE)  # largest log sum
        parts = [softmax_lse(*operands, visible) for operands, visible in layout.own_tiles(layout.q)]
        y, total = map(torch.cat, zip(*parts, strict=True))
        if layout.hidden is not None:
            blind = layout.own(layout.hidden).cumprod(1)[:, None].bool()  # no visible key so far
            y, total = y.masked_fill(blind[..., None], 0.0), total.masked_fill(blind, -LARGE)
        out[:-1], peak[:-1] = y.flatten(0, 2), total.flatten()
        share = torch.ones_like(peak)  # sum of the weights relative to the largest log sum
        for number, rows, blocks in pairs.tiles(layout.k):
            queries = layout.gather(rows, len(blocks), layout.q)
            y, total = softmax_lse(*queries, *layout.gather_blocks(blocks), layout.visible(number, blocks))
            total = total.flatten()
            before = peak.index_select(0, rows)
            peak.scatter_reduce_(0, rows, total, "amax")
            after = peak.index_select(0, rows)
            kept, added = before.sub_(after).exp_(), total.sub_(after).exp_()
            # a query of several pairs: the same number is written each time, and then every pair is added
            y = upcast(y).view(len(rows), -1).mul(added[:, None])
            for sums, factor, part in ((out, kept[:, None], y), (share, kept, added)):
                sums.index_copy_(0, rows, sums.index_select(0, rows).mul_(factor)).index_add_(0, rows, part)
        ctx.settings, ctx.pairs = settings, pairs
        out = out[:-1].div_(share[:-1, None]).to(q.dtype).view(q.shape)
        ctx.save_for_backward(q, k, v, hidden, out, peak.add_(share.log_()))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, hidden, out, lse = ctx.saved_tensors
        layout = _Layout(q, k, v, hidden, *ctx.settings)
        rows = [x.reshape(-1, x.shape[-1]) for x in (grad, q)]
        out = out.view(-1, out.shape[-1])
        dq = upcast(q.new_zeros(layout.last + 1, q.shape[-1]))
        dk, dv = (torch.zeros_like(x, dtype=lse.dtype) for x in (layout.k, layout.v))
        with autocast_disabled(q):
            parts = [
                softmax_lse_backward(g, queries, *keys, result, sums[..., 0], visible)
                for (g, queries, result, sums, *keys), visible in layout.own_tiles(*rows, out, lse[:-1, None])
            ]
            part, *grads = map(torch.cat, zip(*parts, strict=True))
            dq[:-1] = part.flatten(0, 2)
            for total, gradient in zip((dk, dv), grads, strict=True):
                layout.add_own(total, gradient)
            for number, index, blocks in ctx.pairs.tiles(layout.k):
                g, queried, result = layout.gather(index, len(blocks), *rows, out)
                sums = lse.index_select(0, index).view(len(blocks), 1, -1)
                part, *grads = softmax_lse_backward(
                    g, queried, *layout.gather_blocks(blocks), result, sums, layout.visible(number, blocks)
                )
                dq.index_add_(0, index, upcast(part).view(len(index), -1))
                for total, gradient in zip((dk, dv), grads, strict=True):
                    total.index_add_(0, blocks, upcast(gradient)[:, 0])
        gradients = ((dq[:-1], q), (dk, k), (dv, v))
        return *(total.view(x.shape).to(x.dtype) for total, x in gradients), *[None] * 5
