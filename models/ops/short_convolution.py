"""A short depthwise convolution along the sequence, on a CPU several times as fast as torch's.

    y_t = sum_{i < taps} w_i x_{t + s - i},   t = 0 .. n - 1, x zero outside of its rows

A tile of tokens stays in the cache while each tap is multiplied and added. torch's convolution copies x and y between
channels-first and tokens-first layouts, and its time per token grows once these copies exceed the caches. Time and
memory O(N D taps) and O(N D).

    B batch, N length, D width
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops.precision import autocast_disabled, upcast
from models.ops.tiles import TileBudget, spans, tiles

TILE = TileBudget(2**18, 2**24)  # numbers of y


def short_convolution(x: Tensor, weight: Tensor, *, shift: int = 0, count: int | None = None) -> Tensor:
    """x (B, N, D), weight (D, taps) -> the first `count` rows of y, (B, count, D); None means N.

    `shift` is s, from 0 to taps - 1; at most N - s rows can be asked for. Sums are float32 or float64.
    """
    with autocast_disabled(x):
        return _ShortConvolution.apply(x, upcast(weight), shift, x.shape[1] if count is None else count)


class _ShortConvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, shift: int, count: int) -> Tensor:
        ctx.shift = shift
        ctx.save_for_backward(x, weight)
        y = torch.empty_like(x[:, :count])
        for tile in _tiles(x, count, weight.shape[1], shift):
            total = upcast(x[tile.index]) * weight[:, shift]
            for tap, target, source in tile.taps:
                total[:, target].addcmul_(upcast(x[tile.rows, source]), weight[:, tap])
            y[tile.index] = total
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        shift, taps = ctx.shift, weight.shape[1]
        with autocast_disabled(x):
            dx, dweight = upcast(torch.zeros_like(x)), torch.zeros_like(weight)
            for tile in _tiles(x, grad.shape[1], taps, shift):
                dy = upcast(grad[tile.index])
                for tap, target, source in [(shift, slice(None), tile.index[1]), *tile.taps]:
                    part = dy[:, target]
                    dx[tile.rows, source].addcmul_(part, weight[:, tap])
                    dweight[:, tap] += (part * x[tile.rows, source]).sum((0, 1))
        return dx.to(x.dtype), dweight, None, None


class _Tile(NamedTuple):
    """Tokens of y, which are also those of x that tap `shift` multiplies. `taps`: for each other tap that reads within
    x its number, the tokens of the tile that it adds to, and the tokens of x."""

    index: tuple[slice, slice]
    taps: list[tuple[int, slice, slice]]

    @property
    def rows(self) -> slice:
        """Of the batch."""
        return self.index[0]


def _tiles(x: Tensor, count: int, taps: int, shift: int) -> Iterator[_Tile]:
    batch, length, dim = x.shape
    tokens = TILE.fit(x, dim, count)
    for _, (rows, span) in tiles(spans(0, batch, TILE.fit(x, tokens * dim, batch)), spans(0, count, tokens)):
        parts = []
        for tap in range(taps):
            back = tap - shift  # y_t reads x_{t - back}
            first, last = max(span.start, back), min(span.stop, length + back)
            if back and first < last:
                target = slice(first - span.start, last - span.start)
                parts.append((tap, target, slice(first - back, last - back)))
        yield _Tile((rows, span), parts)
