"""Softmax attention whose scores lose the forget gates between key and query (Lin et al., 2025, arXiv 2503.02130).

    o_i = sum_{j<=i} softmax_j( <q_i, k_j> E^-1/2 + c_i - c_j ) v_j,   c_i = sum_{t<=i} log f_t,   0 < f_t < 1

c_i is the same for all keys of a query, so any reference may stand in its place. Here it is c at the start of a segment
of 512 queries, from which the nearest keys differ little, so that float32 holds the difference. The difference is an
additional channel of the keys, next to a channel of ones of the queries, and torch's fused attention computes the rest.
The queries of a segment attend to the segment and to the tokens before it; the two results are mixed by their sums. The
gradient of c_j is minus the sum of a key's score gradients, which is the gradient of the additional channel. Time
O(N^2 E), memory O(N E).

In bfloat16 three channels hold 24 bits of the difference. float16, whose range is too small, is computed in float32,
and so is bfloat16 where torch's kernels do not apply, as with dropout.

    B batch, H heads, N length, E head width, F = E + additional channels
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops import fla_kernels
from models.ops.dilated import empty_mixture, mix
from models.ops.dropout import draw_seed
from models.ops.precision import autocast_disabled
from models.ops.softmax_lse import Visible, is_fused, softmax_lse, softmax_lse_backward
from models.ops.tiles import spans

SEGMENT = 512  # tokens
ALIGNED = 8  # in bfloat16, fused attention on a GPU requires a multiple of this many channels


def forgetting_attention(q: Tensor, k: Tensor, v: Tensor, sums: Tensor, *, dropout: float = 0.0) -> Tensor:
    """Causal attention of q, k, v (B, H, N, E) with c = `sums` (B, H, N), float64 -> (B, H, N, E).

    `dropout` is the dropped share of weights, whatever the mode of the calling module.
    """
    kernels = fla_kernels.chosen(q)
    if kernels is not None and not dropout:
        return kernels.forgetting(q, k, v, sums).to(q.dtype)
    dtype = q.dtype
    if dtype is torch.float16 or (dtype is torch.bfloat16 and not has_exact_scores(q, dropout)):
        dtype = torch.float32
    parts = (x.to(dtype) for x in (q, k, v))
    return _Forgetting.apply(*parts, sums, dropout, draw_seed(dropout)).to(q.dtype)


def channels(width: int, dtype: torch.dtype) -> tuple[int, int]:
    """The number of additional channels that hold the difference, and F."""
    if dtype is not torch.bfloat16:
        return 1, width + 1
    return 3, -(-(width + 3) // ALIGNED) * ALIGNED


def has_exact_scores(q: Tensor, dropout: float) -> bool:
    """Whether scores of bfloat16 queries (B, H, N, E) are computed without rounding them to 16 bits."""
    return is_fused(q.new_empty(1, 1, 1, channels(q.shape[-1], q.dtype)[1]), Visible(True, dropout=dropout))


class _Forgetting(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, sums: Tensor, dropout: float, seed: int) -> Tensor:
        with autocast_disabled(q):
            segments = _Segments(q, k, v, sums, dropout, seed)
            out, lse = empty_mixture(segments.q)
            for rows, keys, visible in segments:
                y, total = softmax_lse(*segments.read(rows, keys), visible)
                mix(out[:, :, rows], lse[:, :, rows], y, total)
            out = out[..., : v.shape[-1]].to(v.dtype)
        ctx.save_for_backward(q, k, v, sums, out, lse)
        ctx.options = dropout, seed
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, sums, out, lse = ctx.saved_tensors
        width = q.shape[-1]
        with autocast_disabled(q):
            segments = _Segments(q, k, v, sums, *ctx.options)
            grad, out = (segments.widened(x.to(q.dtype)) for x in (grad, out))
            gradients = [torch.zeros_like(x, dtype=lse.dtype) for x in (segments.q, segments.k, segments.v)]
            for rows, keys, visible in segments:
                saved = out[:, :, rows], lse[:, :, rows]
                parts = softmax_lse_backward(grad[:, :, rows], *segments.read(rows, keys), *saved, visible)
                for total, seen, part in zip(gradients, (rows, keys, keys), parts, strict=True):
                    total[:, :, seen] += part
            # the gradients of the references are zero: the same number added to all scores of a query has no effect
            dsums = gradients[1][..., width].to(sums.dtype) * -(width**0.5)
            return *(x[..., :width].to(q.dtype) for x in gradients), dsums, None, None


class _Segments:
    """The q, k and v of one call with the additional channels, and what each segment of queries reads."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, sums: Tensor, dropout: float, seed: int):
        self.width, self.sums, self.dropout, self.seed = q.shape[-1], sums, dropout, seed
        self.terms, self.wide = channels(self.width, q.dtype)
        self.q, self.k, self.v = (self.widened(x) for x in (q, k, v))
        self.q[..., self.width : self.width + self.terms] = 1.0

    def widened(self, x: Tensor) -> Tensor:
        """(B, H, N, E) -> (B, H, N, F), zero in the additional channels."""
        return F.pad(x, (0, self.wide - self.width))

    def __iter__(self) -> Iterator[tuple[slice, slice, Visible]]:
        """Queries, the keys that they read together, and how: each segment's own, then those before it."""
        scale = self.width**-0.5
        for number, rows in enumerate(spans(0, self.q.shape[2], SEGMENT)):
            self.set_reference(rows)
            seed = self.seed + (number << 21)  # each call draws from the seeds of its own tiles
            yield rows, rows, Visible(True, None, self.dropout, seed, scale)
            if rows.start:
                past = slice(0, rows.start)
                yield rows, past, Visible(False, None, self.dropout, seed + (1 << 20), scale)

    def set_reference(self, rows: slice) -> None:
        """Write the differences between c at the first of these queries and at the keys into the keys' channels."""
        seen = slice(0, rows.stop)
        rest = (self.sums[:, :, rows.start, None] - self.sums[:, :, seen]) * self.width**0.5  # undoes the scale
        for channel in range(self.width, self.width + self.terms):
            self.k[:, :, seen, channel] = rest.to(self.k.dtype)
            rest = rest - self.k[:, :, seen, channel]

    def read(self, rows: slice, keys: slice) -> tuple[Tensor, Tensor, Tensor]:
        return self.q[:, :, rows], self.k[:, :, keys], self.v[:, :, keys]
