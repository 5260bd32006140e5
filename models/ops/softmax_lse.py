"""Softmax attention that also returns the logarithm of each row's sum, and a backward pass for any such pair.

    l_i = log sum_j e^{s_ij},   o_i = sum_j p_ij v_j,   p_ij = e^{s_ij - l_i},   s_ij = <q_i, k_j> E^-1/2
    dV = P' dO,   dS = P * (dO V' - rowsum(dO * O)),   dQ = dS K E^-1/2,   dK = dS' Q E^-1/2

Backward takes o and l as arguments. With the o and l of a larger softmax that contains this one, it returns that
softmax's gradients through these queries and keys (LongNet's mixture, ring attention).

torch's fused kernels are used if they return l. With dropout, and with padding on a GPU, scores are computed tile by
tile; with dropout there is a compiled form (`models.ops.native`). Memory is O(M E) plus one tile in all cases. torch's
own form with dropout on a CPU keeps all weights.

    B batch, H heads, P = B H, N query length, M key length, E head width, F width of the values
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from models.ops import native
from models.ops.dropout import Masks, kept_levels
from models.ops.precision import upcast, upcast_product
from models.ops.tiles import TileBudget, spans, tiles

TILE = TileBudget(2**18, 2**26)  # scores
LN2 = math.log(2)
HALF = (torch.float16, torch.bfloat16)
aten = torch.ops.aten


class Visible(NamedTuple):
    """Visibility: `causal` hides keys after the query, `hidden` (B, M) or (B, H, N or 1, M) is True at hidden keys.

    `dropout` is the dropped share of weights, `seed` determines which. `scale` replaces E^-1/2.
    """

    causal: bool
    hidden: Tensor | None = None
    dropout: float = 0.0
    seed: int = 0
    scale: float | None = None


def softmax_lse(q: Tensor, k: Tensor, v: Tensor, visible: Visible) -> tuple[Tensor, Tensor]:
    """q (B, H, N, E), k (B, H, M, E), v (B, H, M, F) -> o (B, H, N, F) and l (B, H, N), in float32 or float64.

    N = M if causal, F = E without dropout. A query that sees no key has o = 0 or any finite o, and an undefined l. o
    has the type of q, to which k and v are converted: under autocast queries have 16 bits, while a decoder's cache may
    have 32.
    """
    k, v = k.to(q.dtype), v.to(q.dtype)
    if _cpu_kernel_fits(q, visible):
        return aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, visible.causal, attn_mask=_additive(visible.hidden, q.dtype), scale=visible.scale
        )
    if _cuda_kernel_fits(q, visible):
        return aten._scaled_dot_product_flash_attention(q, k, v, 0.0, visible.causal, scale=visible.scale)[:2]
    kernels = _compiled(q, k, v, visible)
    if kernels is not None:
        return kernels.softmax_lse_forward(q, k, v, *_arguments(q, k, visible))
    scores = _Tiles(q, k, visible)
    values = scores.rounded(v)
    out, lse = values.new_empty(*scores.q.shape[:2], v.shape[-1]), upcast(q.new_empty(scores.q.shape[:2]))
    for tile, weights, masks in scores:
        largest = weights.amax(-1, keepdim=True).clamp_(min=torch.finfo(weights.dtype).min)
        total = weights.sub_(largest).exp2_().sum(-1, keepdim=True)
        lse[tile] = (largest + total.log2()).mul_(LN2)[..., 0]
        factor = 1.0
        if visible.dropout:
            kept = scores.buffer("kept", weights.shape)
            factor = masks.fill(kept, visible.dropout)
            weights.mul_(kept)
        y = weights.to(values.dtype) @ values[tile[0], : weights.shape[2]]
        out[tile] = y * (factor / total.clamp_(min=torch.finfo(total.dtype).tiny))
    return out.to(q.dtype).unflatten(0, q.shape[:2]), lse.unflatten(0, q.shape[:2])


def softmax_lse_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, visible: Visible
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v from the gradient of o (B, H, N, F), given o and l (B, H, N) of the full softmax.

    As forward, it converts k and v to the type of q, which all gradients have.
    """
    k, v = k.to(q.dtype), v.to(q.dtype)
    if _cpu_kernel_fits(q, visible):
        additive = _additive(visible.hidden, q.dtype)
        return aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, k, v, out, lse, 0.0, visible.causal, attn_mask=additive, scale=visible.scale
        )
    if _cuda_kernel_fits(q, visible):
        unused = torch.empty(0, dtype=torch.int64, device=q.device)  # the generator's state: nothing is dropped
        lengths = (None, None, q.shape[2], k.shape[2])
        return aten._scaled_dot_product_flash_attention_backward(
            grad, q, k, v, out, lse.contiguous(), *lengths, 0.0, visible.causal, unused, unused, scale=visible.scale
        )
    kernels = _compiled(q, k, v, visible)
    if kernels is not None:
        return kernels.softmax_lse_backward(grad, q, k, v, out, lse, *_arguments(q, k, visible))
    scores = _Tiles(q, k, visible)
    # rowsum(dO * O) equals rowsum(P * dP) even with dropped weights
    row = (upcast(grad) * upcast(out)).sum(-1, keepdim=True).flatten(0, 1)
    lse, grad = lse.flatten(0, 1)[..., None] / LN2, scores.rounded(grad)
    values = scores.columns(scores.rounded(v))
    dq, dk, dv = (torch.zeros_like(x, dtype=row.dtype) for x in (scores.q, scores.keys, values))
    for tile, weights, masks in scores:
        pairs, seen = tile[0], slice(0, weights.shape[2])
        weights.sub_(lse[tile]).exp2_()
        kept, g = None, grad[tile]
        if visible.dropout:
            kept = scores.buffer("kept", weights.shape)
            g = g * masks.fill(kept, visible.dropout)
        dp = scores.product("gradients", g, values[pairs, :, seen])
        ds, dropped = softmax_gradient(dp, weights, row[tile], kept)
        scores.add_product(dv[pairs, :, seen], g.mT, dropped)
        ds = ds.to(scores.q.dtype)
        scores.add_product(dk[pairs, :, seen], scores.q[tile].mT, ds)
        dq[tile] = ds @ scores.keys[pairs, :, seen].mT
    gradients = (dq.mul_(LN2), q), (dk.mul_(scores.scale).mT, k), (dv.mT, v)
    return tuple(gradient.to(x.dtype).contiguous().unflatten(0, x.shape[:2]) for gradient, x in gradients)


def softmax_gradient(dp: Tensor, weights: Tensor, row: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
    """Gradient of the scores of a tile, and its weights after dropout; both overwrite their inputs.

    dp = dO V' and the softmax `weights` are (.., queries, keys), `row` = rowsum(dO * O) is (.., queries, 1), `keep` is
    dropout's mask or None.
    """
    if keep is not None:
        dp.mul_(keep)
    dp.sub_(row).mul_(weights)
    return dp, weights if keep is None else weights.mul_(keep)


def is_fused(q: Tensor, visible: Visible) -> bool:
    """Whether one of torch's kernels computes q (B, H, N, E). They keep scores in float32 at least, tiles do not."""
    return _cpu_kernel_fits(q, visible) or _cuda_kernel_fits(q, visible)


def _cpu_kernel_fits(q: Tensor, visible: Visible) -> bool:
    return q.device.type == "cpu" and not visible.dropout


def _cuda_kernel_fits(q: Tensor, visible: Visible) -> bool:
    if q.device.type != "cuda" or visible.dropout or visible.hidden is not None or q.dtype not in HALF:
        return False
    return q.shape[-1] % 8 == 0 and q.shape[-1] <= 256 and torch.cuda.get_device_capability(q.device) >= (8, 0)


def _compiled(q: Tensor, k: Tensor, v: Tensor, visible: Visible) -> Any | None:
    """The compiled kernels, if they support these inputs: with dropout, and with 16-vectors of any length."""
    if not 0 < visible.dropout < 1 or not q.numel() or not k.numel():
        return None
    return native.kernels(q, k, v)


def _arguments(q: Tensor, k: Tensor, visible: Visible) -> tuple[Any, ...]:
    """What both compiled kernels take after their tensors."""
    hidden = visible.hidden
    if hidden is not None:
        hidden = hidden[_four_axes(hidden)]
    scale = q.shape[-1] ** -0.5 if visible.scale is None else visible.scale
    sizes = tile_sizes(q, q.shape[0] * q.shape[1], q.shape[2], k.shape[2])
    return hidden, visible.causal, scale, visible.seed, kept_levels(visible.dropout), *sizes


def tile_sizes(like: Tensor, pairs: int, queries: int, keys: int) -> tuple[int, int]:
    """Queries and pairs of example and head in a tile."""
    rows = TILE.fit(like, keys, queries)
    return rows, TILE.fit(like, keys * rows, pairs)


def _additive(hidden: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Numbers to add to the scores, with four axes: -inf where True."""
    if hidden is None:
        return None
    return torch.zeros_like(hidden, dtype=dtype).masked_fill_(hidden, float("-inf"))[_four_axes(hidden)]


def _four_axes(hidden: Tensor) -> tuple[slice | None, ...]:
    """The index that gives a mask (B, M) axes of heads and queries, and leaves one of four axes as it is."""
    return (slice(None), None, None) if hidden.ndim == 2 else (slice(None),)


Index = tuple[slice, slice]  # of pairs of example and head, and of queries


class _Tiles:
    """Scores of some queries of some pairs of example and head, in a reused buffer, divided by ln 2.

    `exp2` takes a third of the time of `exp` on some CPUs. Factors of products keep their 16 bits on a GPU; a CPU is
    faster and more exact with 32.
    """

    def __init__(self, q: Tensor, k: Tensor, visible: Visible):
        self.visible, self.on_cpu, self.heads = visible, q.device.type == "cpu", q.shape[1]
        self.scale = q.shape[-1] ** -0.5 if visible.scale is None else visible.scale
        hidden = visible.hidden
        self.hidden = None if hidden is None else hidden[_four_axes(hidden)].expand(*q.shape[:2], -1, -1)
        self.q = self.rounded(q)
        self.keys = self.columns(self.rounded(k) * (self.scale / LN2))
        self.memory: dict[str, Tensor] = {}

    def rounded(self, x: Tensor) -> Tensor:
        """(B, H, N, E) -> (P, N, E) in the type of a product's factor."""
        x = x.flatten(0, 1)
        return upcast(x) if self.on_cpu else x

    def columns(self, x: Tensor) -> Tensor:
        """(P, M, E) -> (P, E, M); contiguous, which makes products faster, if several tiles share the copy."""
        rows, _ = tile_sizes(self.q, *self.q.shape[:2], x.shape[1])
        return x.mT if rows == self.q.shape[1] else x.mT.contiguous()

    def __iter__(self) -> Iterator[tuple[Index, Tensor, Masks | None]]:
        """Pairs and queries, their scores (pairs, queries, keys) with -inf at hidden keys, and the tile's masks."""
        (count, length, _), keys = self.q.shape, self.keys.shape[-1]
        size, together = tile_sizes(self.q, count, length, keys)
        for tile in tiles(spans(0, count, together), spans(0, length, size)):
            pairs, rows = tile.index
            seen = slice(0, rows.stop if self.visible.causal else keys)
            scores = self.product("scores", self.q[pairs, rows], self.keys[pairs, :, seen])
            if self.visible.causal:
                square = scores[..., rows]
                future = torch.ones(square.shape[1:], dtype=torch.bool, device=scores.device).triu_(1)
                square.masked_fill_(future, float("-inf"))
            if self.hidden is not None:
                scores.masked_fill_(self.hidden_keys(pairs, rows)[..., seen], float("-inf"))
            masks = Masks(self.visible.seed + tile.number, scores.device) if self.visible.dropout else None
            yield (pairs, rows), scores, masks

    def hidden_keys(self, pairs: slice, rows: slice) -> Tensor:
        """(pairs, queries or 1, M)."""
        number = torch.arange(pairs.start, pairs.stop, device=self.hidden.device)
        hidden = self.hidden[number // self.heads, number % self.heads]
        return hidden if hidden.shape[1] == 1 else hidden[:, rows]

    def product(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """a @ b of (pairs, n, m) and (pairs, m, k), in float32 or float64; on a CPU in the memory of that name."""
        if not self.on_cpu:
            return upcast_product(a, b)
        return torch.bmm(a, b, out=self.buffer(name, (*a.shape[:2], b.shape[2])))

    def add_product(self, total: Tensor, a: Tensor, b: Tensor) -> None:
        """total (pairs, n, k) += a @ b of (pairs, n, m) and (pairs, m, k); on a CPU without a temporary result."""
        if self.on_cpu:
            total.baddbmm_(a, b)
        else:
            total += a @ b.to(a.dtype)

    def buffer(self, name: str, shape: Sequence[int]) -> Tensor:
        """An uninitialised part of a memory that later tiles reuse."""
        size = math.prod(shape)
        if name not in self.memory or self.memory[name].numel() < size:
            self.memory[name] = torch.empty(size, dtype=upcast(self.q[:0]).dtype, device=self.q.device)
        return self.memory[name][:size].view(shape)
