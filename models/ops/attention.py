"""Softmax attention whose weights have dropout: `F.scaled_dot_product_attention` with cheap masks on a CPU.

    o_i = sum_j m_ij p_ij v_j,   p = softmax(Q K' scale + mask),   m_ij = 0 or 1 / (1 - dropout)
    dV = (M * P)' dO,   dP = M * (dO V'),   dS = P * (dP - rowsum(dO * O)),   dQ = dS K scale,   dK = dS' Q scale

torch's fused CPU kernels take no dropout. Its other form draws with `bernoulli_` and keeps all N M weights and their
mask. This one computes tiles of scores, draws each mask again in the backward pass, and keeps O((N + M) E) numbers.

    B batch, H heads, N query length, M key length, E head width, F width of the values
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops.dropout import Masks, draw_seed, drop
from models.ops.precision import autocast_disabled, upcast
from models.ops.tiles import TileBudget, spans, tiles

TILE = TileBudget(2**18, 2**18)  # scores; CPU alone


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """q (B, H, N, E), k (B, H, M, E), v (B, H, M, F) -> (B, H, N, F).

    The mask can be expanded to (B, H, N, M): bool, True at visible keys, or numbers that are added to the scores. Each
    query sees a key. N = M if causal; there is no mask then. `dropout` is the dropped share of weights, whatever the
    mode of the calling module.
    """
    if not dropout or q.device.type != "cpu" or torch.compiler.is_compiling():
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if mask is not None and mask.is_floating_point():  # may be learned
        scores = upcast(q @ k.mT) * scale + mask
        return drop(scores.softmax(-1), dropout).to(v.dtype) @ v
    if mask is not None:
        mask = ~mask.expand(*q.shape[:2], mask.shape[-2], -1)
    return _Dropped.apply(q, k, v, _Options(mask, causal, dropout, draw_seed(dropout), scale))


class _Options(NamedTuple):
    hidden: Tensor | None  # (B, H, N or 1, M)
    causal: bool
    dropout: float
    seed: int
    scale: float


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, options: _Options) -> Tensor:
        with autocast_disabled(q):
            scores = _Tiles(q, k, options)
            values = upcast(v.flatten(0, 1))  # (P, M, F)
            out = values.new_empty(*scores.q.shape[:2], v.shape[-1])
            lse = out.new_empty(out.shape[:2])
            for (pairs, rows), weights, masks in scores:
                largest = weights.amax(-1, keepdim=True)
                total = weights.sub_(largest).exp_().sum(-1, keepdim=True)
                lse[pairs, rows] = largest.add_(total.log())[..., 0]
                kept = scores.buffer("kept", weights.shape)
                factor = masks.fill(kept, options.dropout)
                read = torch.bmm(weights.mul_(kept), values[pairs, : weights.shape[2]])
                out[pairs, rows] = read.mul_(factor / total)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.options = options
        return out.to(v.dtype).unflatten(0, q.shape[:2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (q, k, v, out, lse), options = ctx.saved_tensors, ctx.options
        with autocast_disabled(q):
            grad = upcast(grad.flatten(0, 1))
            # rowsum(dO * O) equals rowsum(P * dP), dropped weights included
            row = (grad * out).sum(-1, keepdim=True)
            scores = _Tiles(q, k, options)
            values = upcast(v.flatten(0, 1)).mT.contiguous()  # (P, F, M)
            dq = torch.empty_like(scores.q)
            dk, dv = torch.zeros_like(scores.keys), torch.zeros_like(values)
            for (pairs, rows), weights, masks in scores:
                seen = slice(0, weights.shape[2])
                weights.sub_(lse[pairs, rows, None]).exp_()
                kept = scores.buffer("kept", weights.shape)
                g = grad[pairs, rows] * masks.fill(kept, options.dropout)
                dp = torch.bmm(g, values[pairs, :, seen], out=scores.buffer("dp", weights.shape))
                dp.mul_(kept).sub_(row[pairs, rows]).mul_(weights)  # the gradient of the scores
                dv[pairs, :, seen].baddbmm_(g.mT, weights.mul_(kept))
                dk[pairs, :, seen].baddbmm_(scores.q[pairs, rows].mT, dp)
                dq[pairs, rows] = torch.bmm(dp, scores.keys[pairs, :, seen].mT)
        gradients = dq, dk.mul_(options.scale).mT, dv.mT
        return *(g.to(x.dtype).unflatten(0, x.shape[:2]) for g, x in zip(gradients, (q, k, v), strict=True)), None


class _Tiles:
    """Scores of some queries of some pairs of example and head, P = B H in all, in one reused buffer."""

    def __init__(self, q: Tensor, k: Tensor, options: _Options):
        self.q, self.options, self.heads = upcast(q.flatten(0, 1)), options, q.shape[1]
        # keys (P, E, M) and values (P, F, M): products with a contiguous last axis are the fastest
        self.keys = upcast(k.flatten(0, 1)).mT.mul(options.scale).contiguous()
        self.memory: dict[str, Tensor] = {}

    def __iter__(self) -> Iterator[tuple[tuple[slice, slice], Tensor, Masks]]:
        """Pairs and queries, their scores (pairs, queries, keys) with -inf at hidden keys, and the tile's masks."""
        (count, length, _), keys = self.q.shape, self.keys.shape[-1]
        size = TILE.fit(self.q, keys, length)
        together = TILE.fit(self.q, keys * size, count)
        for tile in tiles(spans(0, count, together), spans(0, length, size)):
            pairs, rows = tile.index
            seen = slice(0, rows.stop if self.options.causal else keys)
            scores = self.buffer("scores", (pairs.stop - pairs.start, rows.stop - rows.start, seen.stop))
            torch.bmm(self.q[pairs, rows], self.keys[pairs, :, seen], out=scores)
            if self.options.causal:
                square = scores[..., rows]
                square.masked_fill_(torch.ones(square.shape[1:], dtype=torch.bool).triu_(1), float("-inf"))
            if self.options.hidden is not None:
                scores.masked_fill_(self.hidden(pairs, rows), float("-inf"))
            yield (pairs, rows), scores, Masks(self.options.seed + tile.number, self.q.device)

    def hidden(self, pairs: slice, rows: slice) -> Tensor:
        """(pairs, queries or 1, M)."""
        number = torch.arange(pairs.start, pairs.stop)
        hidden = self.options.hidden[number // self.heads, number % self.heads]
        return hidden if hidden.shape[1] == 1 else hidden[:, rows]

    def buffer(self, name: str, shape: Sequence[int]) -> Tensor:
        """An uninitialised part of a memory that later tiles reuse."""
        size = math.prod(shape)
        if name not in self.memory or self.memory[name].numel() < size:
            self.memory[name] = self.q.new_empty(size)
        return self.memory[name][:size].view(shape)
