"""The recurrence of the RG-LRU, forward and backward (Griffin, De et al., 2024, arXiv 2402.19427, §2.4).

    log a_t = -rate sigmoid(r_t),  h_t = a_t h_{t-1} + sqrt(1 - a_t^2) (sigmoid(i_t) x_t)              (3, 4, 6)

As in the published code, the first token is not scaled down, and the slope of the square root is limited to 1000 where
a is close to 1. There 1 - a^2 = -expm1(2 log a) keeps its precision. Everything is in float32 or float64. Time and
memory O(N D); the backward pass is explicit and keeps x, r, i and h.

    B batch, N length, D width
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops.precision import upcast
from models.ops.scan import scan, scan_backward
from models.ops.tiles import TileBudget, spans

TILE = TileBudget(2**20, 2**26)  # numbers


def coefficients(r: Tensor, i: Tensor, rate: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """r_t, i_t, a_t and sqrt(1 - a_t^2), which is 1 at `first`, if any, from the gates before their sigmoids."""
    r, i = upcast(r).sigmoid(), upcast(i).sigmoid()
    log_a = -rate * r
    scale = torch.expm1(2 * log_a).neg().sqrt()
    return r, i, log_a.exp(), scale if first is None else scale.masked_fill(first, 1.0)


def recurrence(
    x: Tensor, r: Tensor, i: Tensor, rate: Tensor, first: Tensor, hidden: Tensor | None = None, *, reverse: bool = False
) -> Tensor:
    """h (B, N, D) from x, and from r and i before their sigmoids (B, N, D), with `rate` (D,) = 8 softplus(Lambda).

    `first` (B or 1, N, 1) is True at the first token of each example, `hidden` (B, N, 1) at tokens that leave the state
    unchanged. `reverse` runs the recurrence from the last token to the first.
    """
    return _RGLRURecurrence.apply(x, r, i, rate, first, hidden, reverse)


class _RGLRURecurrence(torch.autograd.Function):
    """h from x, and from r and i before their sigmoids, (B, N, D), tile by tile in both passes."""

    @staticmethod
    def forward(
        ctx, x: Tensor, r: Tensor, i: Tensor, rate: Tensor, first: Tensor, hidden: Tensor | None, reverse: bool
    ) -> Tensor:
        h = torch.empty(x.shape, dtype=rate.dtype, device=x.device)
        state = torch.zeros_like(h[:, 0])
        for tile in _tiles(x, reverse):
            _, admit, a, scale = coefficients(r[:, tile], i[:, tile], rate, first[:, tile])
            b = scale * admit * upcast(x[:, tile])
            if hidden is not None:
                a.masked_fill_(hidden[:, tile], 1.0)
                b.masked_fill_(hidden[:, tile], 0.0)
            scan(a, b, state, h[:, tile], reverse=reverse)
            state = h[:, tile.start if reverse else tile.stop - 1]
        ctx.reverse = reverse
        ctx.save_for_backward(x, r, i, rate, first, hidden, h)
        return h.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, r, i, rate, first, hidden, h = ctx.saved_tensors
        dx, dr, di, drate = torch.empty_like(x), torch.empty_like(r), torch.empty_like(i), torch.zeros_like(rate)
        carried = torch.zeros_like(h[:, 0])  # from the tiles that come later in the recurrence
        for tile in _tiles(x, not ctx.reverse):
            remember, admit, a, scale = coefficients(r[:, tile], i[:, tile], rate, first[:, tile])
            if hidden is not None:
                a.masked_fill_(hidden[:, tile], 1.0)
            before, last = (tile.stop, tile.start) if ctx.reverse else (tile.start - 1, tile.stop - 1)
            state = h[:, before] if 0 <= before < h.shape[1] else torch.zeros_like(carried)
            dh = grad[:, tile].to(h.dtype, copy=True)
            dh[:, last - tile.start].add_(carried)
            da, db, carried = scan_backward(a, h[:, tile], state, dh, reverse=ctx.reverse)
            if hidden is not None:
                da.masked_fill_(hidden[:, tile], 0.0)
                db.masked_fill_(hidden[:, tile], 0.0)
            wide = upcast(x[:, tile])
            dscaled = db * scale
            dx[:, tile] = dscaled * admit
            di[:, tile] = torch.ops.aten.sigmoid_backward(dscaled * wide, admit)
            # a slope of at most 1000; torch.compile makes a constant of the module a number that it cannot lift here
            slope = (a / scale.clamp(min=1 / 2000)).masked_fill_(first[:, tile], 0.0)
            dlog_a = torch.addcmul(da, db * admit * wide, slope, value=-1) * a
            dr[:, tile] = torch.ops.aten.sigmoid_backward(-rate * dlog_a, remember)
            drate -= (dlog_a * remember).sum((0, 1))
        return dx, dr, di, drate, None, None, None


def _tiles(x: Tensor, reverse: bool) -> list[slice]:
    """The tokens of x (B, N, D) cut into tiles, in the order of the recurrence."""
    batch, length, dim = x.shape
    size = TILE.fit(x, batch * dim)
    tiles = spans(0, length, size)
    return tiles[::-1] if reverse else tiles
