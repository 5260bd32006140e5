"""Softmax attention inside a band, in time and memory linear in the length.

    o_i = sum_{j = i-left}^{i+right} softmax_j( scale <q_i, k_j> + bias_{j-i+left} ) v_j

Queries are cut into blocks of b; a block reads the L = b + left + right keys around it: O(N L E) time. Scores are
computed tile by tile within the cache, and recomputed in the backward pass: O(N E) memory plus one tile. On a CPU,
without padding and dropout, torch's fused attention computes them: it takes the band as an additive mask and returns
the logarithm of each row's sum, so backward needs no second softmax. `models.ops.native` optionally compiles both
passes. The backward pass is explicit, because autograd would copy overlapping key blocks once more per product:

    P = softmax(S),  dV = P' dO,  dS = P * (dO V' - rowsum(dO * O)),  dQ = dS K,  dK = dS' Q
    dbias_c = sum of dS_ij over j - i + left = c

    B batch, H heads, N length, E head width, G blocks, b queries per block, L keys per block
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops import flex, native
from models.ops.dropout import CompiledMasks, draw_seed
from models.ops.precision import autocast_disabled, upcast, upcast_product
from models.ops.softmax_lse import softmax_gradient
from models.ops.tiles import EVERY, Tile, TileBudget, in_few_kernels, spans, tiles

TILE = TileBudget(2**19, 2**27)  # scores
ALIGNED = 16  # rows of scores are whole vectors, which speeds up matrix products
LONGEST = 4096  # largest reach for which a block's scores fit the cache of a compiled kernel
FUSED = (torch.float32, torch.float64)  # types that torch's fused CPU attention supports with a mask


def banded_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    left: int,
    right: int,
    bias: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Attention of q, k, v (B, H, N, E) in which query i sees the keys i - left <= j <= i + right.

    `bias` (H, left + right + 1) adds column j - i + left to the score of key j. `key_padding_mask` (B, N) is True at
    hidden keys; a query that sees no key gets zeros. `dropout` is the dropped share of weights, whatever the mode of
    the calling module. `scale` is by default E^-1/2. The softmax is computed in float32 or float64. Returns
    (B, H, N, E). Raises ValueError for a negative reach or a bias of the wrong width.
    """
    if left < 0 or right < 0:
        raise ValueError(f"a band reaches 0 or more keys to either side, not left={left}, right={right}")
    if bias is not None and bias.shape != (q.shape[1], left + right + 1):
        raise ValueError(f"band bias is {tuple(bias.shape)}, not {(q.shape[1], left + right + 1)}")
    if flex.chosen(q, dropout):
        return flex.span_attention(q, k, v, flex.Span(left, right), bias=bias, hidden=key_padding_mask, scale=scale)[0]
    n = q.shape[2]
    if left >= n - 1 and not right and bias is None and key_padding_mask is None and not dropout:
        # the band contains all earlier keys
        with autocast_disabled(q):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    # no query in this sequence reaches further; comparisons, so that torch.compile keeps the reach a constant
    near_left, near_right = left if left < n else n - 1, right if right < n else n - 1
    if bias is not None:
        bias = bias[:, left - near_left : left + near_right + 1]
    if scale is None:
        scale = q.shape[-1] ** -0.5
    if torch.compiler.is_compiling():
        return _traceable(q * scale, k, v, bias, key_padding_mask, near_left, near_right, dropout)
    seed = draw_seed(dropout)
    return _Banded.apply(q, k, v, bias, key_padding_mask, _Band(near_left, near_right, scale, dropout, seed))


def _traceable(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, padding: Tensor | None, left: int, right: int, dropout: float
) -> Tensor:
    """The same of scaled queries for torch.compile: one graph for all lengths above the reach, and no tiles.

    The weights, (B, H, G, b, L), are stored for the backward pass. Dropout has torch's masks.
    """
    length, reach = q.shape[2], left + right
    size = 32  # b
    while 4 * size < reach and size < length:  # a quarter of the reach, as in `_Layout`
        size *= 2
    count, span = -(-length // size), size + reach  # G, L
    rows, end = count * size - length, (count - 1) * size + span - left - length
    with autocast_disabled(q):
        q = F.pad(q, (0, 0, 0, rows)).unflatten(2, (count, size))
        keys, values = (F.pad(x, (0, 0, left, end)).unfold(2, span, size) for x in (k, v))  # (B, H, G, E, L)
        column = torch.arange(span, device=q.device) - torch.arange(size, device=q.device)[:, None]  # (b, L)
        hidden = q.new_zeros(1, length, dtype=torch.bool) if padding is None else padding
        hidden = F.pad(hidden, (left, end), value=True).unfold(1, span, size)[:, None, :, None]  # (B or 1, 1, G, 1, L)
        hidden = hidden | (column < 0) | (column > reach)
        # `upcast_product` has no gradient; float16 would overflow
        scores = upcast(q) @ upcast(keys) if q.dtype is torch.float16 else upcast(q @ keys)
        if bias is not None:
            scores = scores + upcast(bias)[:, column.clamp(0, reach)][:, None]
        # finite, so that a row without visible keys does not divide 0 by 0; the second fill sets it to zero
        weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(hidden, 0.0)
        out = F.dropout(weights, dropout).to(v.dtype) @ values.mT
        return out.flatten(2, 3)[:, :, :length]


@dataclass(frozen=True)
class _Band:
    left: int
    right: int
    scale: float
    dropout: float
    seed: int


class _Banded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, padding: Tensor | None, band: _Band):
        kernels = native.kernels(q, k, v) if band.left + band.right <= LONGEST and band.dropout < 1 else None
        ctx.band, ctx.kernels = band, kernels
        if kernels is not None:
            bias = None if bias is None else bias.float()
            masks = _Layout(q, band, padded=padding is not None).masks(kernels)
            out, sums = kernels.banded_forward(q, k, v, bias, padding, *masks, band.left, band.right, band.scale)
            ctx.save_for_backward(q, k, v, bias, padding, out, sums)
            return out
        with autocast_disabled(q):
            blocks = _Blocks(q, k, v, bias, padding, band)
            out = torch.empty_like(blocks.q)  # (B, H, G, b, E)
            sums = out.new_empty(out.shape[:-1]) if blocks.fused else None  # (B, H, G, b), logarithms
            for tile in blocks.tiles(forward=True):
                if sums is not None:
                    blocks.attend(tile, out, sums)
                    continue
                keys, values = blocks.gather(tile)
                weights = blocks.weights(tile, keys)
                keep = tile.dropout_mask(weights, band.dropout, band.seed)
                out[tile.index] = (weights if keep is None else weights * keep).to(v.dtype) @ values
            out = blocks.join(out)
        ctx.save_for_backward(q, k, v, bias, padding, out, sums)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, padding, out, sums = ctx.saved_tensors
        if ctx.kernels is not None:
            saved, band = (q, k, v, bias, padding, out, sums), ctx.band
            masks = _Layout(q, band, padded=padding is not None).masks(ctx.kernels)
            *grads, dbias = ctx.kernels.banded_backward(grad, *saved, *masks, band.left, band.right, band.scale)
            return *grads, dbias if bias is not None else None, None, None
        with autocast_disabled(q):
            blocks = _Blocks(q, k, v, bias, padding, ctx.band)
            # rowsum(dO * O) equals rowsum(P * dP) even with dropped weights
            row = blocks.cut((upcast(grad) * upcast(out)).sum(-1, keepdim=True))  # (B, H, G, b, 1)
            grad = blocks.cut(grad)
            dq = torch.empty_like(blocks.q)
            dk, dv = blocks.zeros(), blocks.zeros()
            dscores = None if bias is None else torch.zeros_like(blocks.band)[:, 0]  # (H, b, L), summed over all blocks
            for tile in blocks.tiles():
                g = grad[tile.index]
                keys, values = blocks.gather(tile)
                weights = blocks.weights(tile, keys, sums)
                keep = tile.dropout_mask(weights, ctx.band.dropout, ctx.band.seed)
                ds, dropped = softmax_gradient(upcast_product(g, values.mT), weights, row[tile.index], keep)
                blocks.add(dv, tile, dropped.to(v.dtype).mT @ g)
                if bias is not None:
                    dscores += ds.sum((0, 2))
                ds = ds.to(q.dtype)
                dq[tile.index] = ds @ keys
                blocks.add(dk, tile, ds.mT @ blocks.q[tile.index])
            dbias = None if bias is None else blocks.fold_bias(dscores).to(bias.dtype)
            dq = blocks.join(dq) * ctx.band.scale
        inner = slice(ctx.band.left, ctx.band.left + q.shape[2])
        return dq, dk[:, :, inner].to(k.dtype), dv[:, :, inner].to(v.dtype), dbias, None, None


@functools.lru_cache(maxsize=4)
def _band(size: int, span: int, reach: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The column of a bias for each score, in range (b, L), and a mask to add to scores (1, 1, b, L), computed once."""
    column = torch.arange(span, device=device) - torch.arange(size, device=device)[:, None]
    inside = column.clamp(0, reach)
    return inside, torch.zeros_like(column, dtype=dtype).masked_fill_(column != inside, float("-inf"))[None, None]


class _Layout:
    """The blocks and tiles of one call."""

    def __init__(self, q: Tensor, band: _Band, *, padded: bool):
        self.like, self.options, self.padded = q, band, padded
        self.batch, self.heads, self.length, self.width = q.shape
        self.left, self.right = band.left, band.right
        reach = band.left + band.right
        # wide blocks compute scores outside the band, narrow blocks copy keys more often: a quarter of it (measured)
        self.size = min(max(32, 1 << max(0, reach // 4 - 1).bit_length()), self.length)  # b
        self.span = self.size + reach  # L; padding columns lie outside the band
        if self.span > ALIGNED:
            self.span = -(-self.span // ALIGNED) * ALIGNED
        self.count = -(-self.length // self.size)  # G
        self.fused = q.device.type == "cpu" and q.dtype in FUSED and not band.dropout and not padded

    def tiles(self, *, forward: bool = False) -> Iterator[Tile]:
        """Tiles of some examples and blocks; unless in few kernels, blocks at the ends, where keys are missing, have
        separate tiles."""
        block = self.heads * self.size * self.span
        rows = TILE.fit(self.like, block, self.batch)
        blocks = TILE.fit(self.like, rows * block)
        low = min(-(-self.left // self.size), self.count)
        high = max(low, (self.length - self.right) // self.size)
        if in_few_kernels(self.like):
            low, high = 0, self.count
        parts: list[slice] = []
        for first, last in ((0, low), (low, high), (high, self.count)):
            # the fused forward stores no scores, so blocks that share one mask form one tile
            step = last - first if forward and self.fused and first == low else blocks
            parts += spans(first, last, max(1, step))
        return tiles(spans(0, self.batch, rows), EVERY, parts)

    def masks(self, kernels: Any) -> tuple[Tensor | None, Tensor | None, Tensor | None, int, int, float]:
        """Dropout for compiled kernels: bits, the entry of each block's first head (B, G), entries per head (G), b, L,
        and the factor of kept weights."""
        band, block = self.options, self.size * self.span
        if not band.dropout:
            return None, None, None, self.size, self.span, 1.0
        parts = list(self.tiles())
        shapes = [(rows.stop - rows.start, blocks.stop - blocks.start) for rows, _, blocks in (t.index for t in parts)]
        entries = [rows * self.heads * blocks * block for rows, blocks in shapes]
        drawn = CompiledMasks.draw(kernels, band.dropout, [band.seed + tile.number for tile in parts], entries)
        first, per_head = torch.empty(self.batch, self.count, dtype=torch.long), torch.empty(self.count).long()
        for tile, (rows, blocks), start in zip(parts, shapes, drawn.starts.tolist(), strict=True):
            row = torch.arange(rows)[:, None] * (self.heads * blocks * block)
            first[tile.index[0], tile.index[2]] = start + row + torch.arange(blocks) * block
            per_head[tile.index[2]] = blocks * block
        return drawn.bits, first, per_head, self.size, self.span, drawn.factor


class _Blocks(_Layout):
    """The q, k, v of one call, cut into blocks; keys and values are overlapping views."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, padding: Tensor | None, band: _Band):
        super().__init__(q, band, padded=padding is not None)
        reach = band.left + band.right
        # block g has the keys [g b, g b + L): room for the last one, in whole blocks so that `add` can write them
        self.total = (self.count - 1 + -(-self.span // self.size)) * self.size
        self.q = self.cut(q * band.scale)  # (B, H, G, b, E)
        self.k, self.v = self.windows(k), self.windows(v)  # (B, H, G, L, E)
        hidden = padding if self.padded else torch.zeros(1, self.length, dtype=torch.bool, device=q.device)
        hidden = F.pad(hidden, (self.left, self.total - self.left - self.length), value=True)
        self.hidden = hidden.unfold(1, self.span, self.size)[:, None, : self.count, None]  # (B or 1, 1, G, 1, L)
        column, self.band = _band(self.size, self.span, reach, q.device, torch.promote_types(q.dtype, torch.float32))
        if bias is not None:
            self.band = self.band + upcast(bias)[:, None, column]  # (H or 1, 1, b, L)

    def cut(self, x: Tensor) -> Tensor:
        """(B, H, N, E) -> (B, H, G, b, E), a view if no block is short."""
        rest = self.count * self.size - self.length
        return (F.pad(x, (0, 0, 0, rest)) if rest else x).unflatten(2, (self.count, self.size))

    def join(self, x: Tensor) -> Tensor:
        """(B, H, G, b, E) -> (B, H, N, E)."""
        return x.flatten(2, 3)[:, :, : self.length]

    def windows(self, x: Tensor) -> Tensor:
        """(B, H, N, E) -> (B, H, G, L, E), a view into one padded copy."""
        padded = F.pad(x, (0, 0, self.left, self.total - self.left - self.length))
        return padded.unfold(2, self.span, self.size)[:, :, : self.count].mT

    def hidden_in(self, tile: Tile) -> Tensor | None:
        """True at padding and beyond the ends, (rows or 1, 1, blocks, 1, L); None if the tile has no such key."""
        rows, _, blocks = tile.index
        first, last = blocks.start * self.size, blocks.stop * self.size
        if not self.padded and first >= self.left and last + self.right <= self.length:
            return None
        return self.hidden[rows if self.padded else slice(None), :, blocks]

    def attend(self, tile: Tile, out: Tensor, sums: Tensor) -> None:
        """Fill a tile of the output (B, H, G, b, E) and of the log row sums (B, H, G, b)."""
        mask = self.band.to(self.q.dtype).transpose(0, 1)  # (1, H or 1, b, L)
        hidden = self.hidden_in(tile)
        if hidden is not None:
            mask = mask.masked_fill(hidden[0].transpose(0, 1), float("-inf"))  # (blocks, H or 1, b, L)
        rows, _, blocks = tile.index
        # one call per block or per example, whichever are fewer: a call costs some 40 us (measured)
        if blocks.stop - blocks.start < rows.stop - rows.start:
            order, outer, inner, masks = (2, 0, 1), blocks, rows, mask[:, None]
        else:
            order, outer, inner, masks = (0, 2, 1), rows, blocks, mask[None]
        masks = masks.expand(outer.stop - outer.start, -1, -1, -1, -1)
        parts = [x.permute(*order, *range(3, x.dim()))[outer, inner] for x in (self.q, self.k, self.v, out, sums)]
        for q, k, v, y, total, mask in zip(*parts, masks, strict=True):
            outputs = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=mask, scale=1.0)
            y.copy_(outputs[0])
            total.copy_(outputs[1])

    def gather(self, tile: Tile) -> tuple[Tensor, Tensor]:
        """Keys and values of a tile, (rows, H, blocks, L, E), copied once for all products."""
        return self.k[tile.index].contiguous(), self.v[tile.index].contiguous()

    def weights(self, tile: Tile, keys: Tensor, sums: Tensor | None = None) -> Tensor:
        """Softmax of a tile's scores, (rows, H, blocks, b, L), zero at hidden keys. `sums` comes from `attend`."""
        scores = upcast_product(self.q[tile.index], keys.mT)
        scores += self.band
        hidden = self.hidden_in(tile)
        if sums is not None:
            weights = scores.sub_(sums[tile.index][..., None]).exp_()
            return weights if hidden is None else weights.masked_fill_(hidden, 0.0)
        if hidden is None:
            return scores.softmax(-1)
        # finite, so that a row without visible keys does not divide 0 by 0; the second fill sets it to zero. Without
        # padding such rows lie behind the last query, and are cut off
        weights = scores.masked_fill_(hidden, torch.finfo(scores.dtype).min).softmax(-1)
        return weights.masked_fill_(hidden, 0.0) if self.padded else weights

    def zeros(self) -> Tensor:
        """Accumulator for gradients of keys and values: (B, H, total, E), in full precision."""
        return self.band.new_zeros(self.batch, self.heads, self.total, self.width)

    def add(self, total: Tensor, tile: Tile, part: Tensor) -> None:
        """total[g b : g b + L] += part[g] for every block g in a tile; part is (rows, H, blocks, L, E)."""
        rows, _, blocks = tile.index
        if in_few_kernels(part):
            lane = total[rows, :, blocks.start * self.size : (blocks.stop - 1) * self.size + self.span]
            lane.add_(torch.ops.aten.unfold_backward(part.mT, lane.shape, 2, self.span, self.size))
            return
        for piece, start in enumerate(range(0, self.span, self.size)):
            width = min(self.size, self.span - start)
            lane = total[rows, :, (blocks.start + piece) * self.size : (blocks.stop + piece) * self.size]
            lane.unflatten(2, (-1, self.size))[..., :width, :] += part[..., start : start + width, :]

    def fold_bias(self, dscores: Tensor) -> Tensor:
        """(H, b, L) -> (H, left + right + 1), the sums along the diagonals."""
        reach = self.left + self.right
        diagonals = dscores.contiguous().as_strided(
            (self.heads, self.size, reach + 1), (self.size * self.span, self.span + 1, 1)
        )
        return diagonals.sum(1)
