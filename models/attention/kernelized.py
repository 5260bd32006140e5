"""Kernelized attention: a Gaussian kernel instead of softmax (Chen et al., 2021, arXiv 2111.00035).

    y_i = sum_j exp( -|q_i - k_j|^2 / (2 sqrt(E)) ) v_j                                         (§3.2)

The weights are not normalised by their sum. Time O(N^2 D), memory O(N D): weights are computed tile by tile and
recomputed in the explicit backward pass. The exponent is one product of vectors with two more entries,

    S = [ q', |q'|^2, -1/2 ] [ k', -1/2, |k'|^2 ]',   q' = q E^-1/4,  k' = k E^-1/4,   W = exp( min(S, 0) )
    dV = W' dY,  dS = W * (dY V'),  dQ = dS K,  dK = dS' Q

with min(S, 0) to absorb rounding when a distance is near zero. Padding is excluded from the sum, as in the public code,
which also sets padded queries to zero; their rows have no meaning. Dropout acts on W. Float32 or float64. There is a
compiled form (`models.ops.native`).

    B batch, N query length, M key length, H heads, E head width, G = B H, F = E + 2
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.attention.base import MultiHead, Pattern
from models.ops import native
from models.ops.dropout import draw_seed, drop_in_place, kept_levels
from models.ops.precision import autocast_disabled, upcast
from models.ops.tiles import Tile, TileBudget, spans, tiles

TILE = TileBudget(2**19, 2**26)  # weights
FEWEST_ROWS = 64  # per tile, whatever the number of keys: narrower products are inefficient


def kernelized(
    q: Tensor, k: Tensor, v: Tensor, *, key_padding_mask: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """q (B, H, N, E), k and v (B, H, M, E), mask (B, M) True at padding -> (B, H, N, E)."""
    if key_padding_mask is not None:
        v = v.masked_fill(key_padding_mask[:, None, :, None], 0.0)
    seed = draw_seed(dropout)
    with autocast_disabled(q):
        kernels = native.kernels(q, k, v) if dropout < 1 else None
        scaled = [upcast(x) * x.shape[-1] ** -0.25 for x in (q, k)]
        if kernels is not None and q.numel() and k.numel():
            return _Compiled.apply(*scaled, v, kernels, dropout, seed)
        y = _Kernelized.apply(*(x.flatten(0, 1) for x in (*scaled, upcast(v))), dropout, seed)
    return y.unflatten(0, q.shape[:2]).to(v.dtype)


def exponents(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors whose products are -|q' - k'|^2 / 2: (.., N, E), (.., M, E) -> (.., N, F), (.., M, F)."""
    q_norm, k_norm = (x.square().sum(-1, keepdim=True) for x in (q, k))
    q = torch.cat([q, q_norm, torch.full_like(q_norm, -0.5)], -1)
    return q, torch.cat([k, torch.full_like(k_norm, -0.5), k_norm], -1)


class _Kernelized(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, dropout: float, seed: int) -> Tensor:
        """q' (G, N, E), k' and v (G, M, E) -> (G, N, E)."""
        q, k = exponents(q, k)
        ctx.save_for_backward(q, k, v)
        ctx.options = dropout, seed
        out = v.new_empty(*q.shape[:2], v.shape[-1])
        for number, (pairs, rows) in weight_tiles(q, k):
            weights = kernel(q[pairs, rows], k[pairs])
            factor = drop_in_place(weights, dropout, seed + number)
            out[pairs, rows] = (weights @ v[pairs]) * factor
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        dropout, seed = ctx.options
        with autocast_disabled(q):
            dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
            for number, (pairs, rows) in weight_tiles(q, k):
                weights = kernel(q[pairs, rows], k[pairs])
                g = grad[pairs, rows] * drop_in_place(weights, dropout, seed + number)
                dv[pairs] += weights.mT @ g
                dscores = weights.mul_(g @ v[pairs].mT)
                dq[pairs, rows] = dscores @ k[pairs]
                dk[pairs] += dscores.mT @ q[pairs, rows]
            dq = torch.addcmul(dq[..., :-2], dq[..., -2:-1], q[..., :-2], value=2)
            dk = torch.addcmul(dk[..., :-2], dk[..., -1:], k[..., :-2], value=2)
        return dq, dk, dv, None, None


class _Compiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, kernels: Any, dropout: float, seed: int) -> Tensor:
        """q' (B, H, N, E), k' and v (B, H, M, E) -> (B, H, N, E)."""
        kept = kept_levels(dropout) if dropout else 0  # 0 draws no mask
        ctx.save_for_backward(q, k, v)
        ctx.kernels, ctx.masks = kernels, (seed, kept, *tile_sizes(q.flatten(0, 1), k.shape[2]))
        return kernels.kernelized_forward(q, k, v, *ctx.masks)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        return *ctx.kernels.kernelized_backward(grad, *ctx.saved_tensors, *ctx.masks), None, None, None


def kernel(q: Tensor, k: Tensor) -> Tensor:
    """exp( min(q k', 0) )."""
    return (q @ k.mT).clamp_(max=0.0).exp_()


def weight_tiles(q: Tensor, k: Tensor) -> Iterator[Tile]:
    """Tiles of weights: examples and heads, then queries."""
    rows, pairs = tile_sizes(q, k.shape[1])
    return tiles(spans(0, q.shape[0], pairs), spans(0, q.shape[1], rows))


def tile_sizes(q: Tensor, keys: int) -> tuple[int, int]:
    """Queries and pairs of example and head in a tile of q (G, N, E)."""
    rows = min(q.shape[1], max(FEWEST_ROWS, TILE.fit(q, keys)))
    return rows, TILE.fit(q, rows * keys)


class Kernelized(MultiHead):
    """Multi-head kernelized attention."""

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF})
    linear: bool = False

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        return kernelized(q, k, v, key_padding_mask=key_padding_mask, dropout=self.active_dropout)
