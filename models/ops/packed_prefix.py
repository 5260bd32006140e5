"""Causal linear attention through slots, forward and backward (Luna, Ma et al., 2021, arXiv 2106.01540, §3.3).

With keys k, values v and slot activations a_t = w(E^-1/2 P p_t) >= 0, one number per slot in P:

    z_t = E^-1/2 / t q_t sum_{j<=t} k_j' a_j,   u_t = softmax(z_t),   y_t = 1/t u_t sum_{j<=t} a_j' v_j     (7)

Keys and values are concatenated in one memory m = [k v] of width F = 2E, or are equal, m = k = v with F = E: both sums
are slices of S_t = sum_{j<=t} m_j' a_j. Time O(N L E). Backward keeps the inputs and S at the start of each tile, so no
tensor has N L E numbers. All sums are in float32 or float64; a >= 0 and 1/t keep everything bounded.

    B batch, H heads, N length, E head width, F memory width, L slots, C tokens per chunk, G chunks per tile, R = B H
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops import fla_kernels, native
from models.ops.dropout import CompiledMasks, Masks, draw_seed
from models.ops.precision import autocast_disabled, upcast
from models.ops.tiles import TileBudget

TILE = TileBudget(2**21, 2**28)  # numbers
MIN_CHUNKS = 8  # per tile, so that the states kept for backward stay smaller than the inputs
LN2 = math.log(2)
NO_MASKS = (None, None, None, None, 1.0)  # for compiled kernels without dropout


class Activation(NamedTuple):
    """w, and its derivative as a function of w's value."""

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]


# both are 1 at 0; past its threshold torch's softplus is the identity, exactly so from 40 on
ACTIVATIONS = {
    "softplus": Activation(lambda x: F.softplus(x, beta=LN2, threshold=40.0), lambda a: -torch.expm1(-LN2 * a)),
    "elu": Activation(lambda x: F.elu(x) + 1, lambda a: a.clamp(max=1.0)),
}
SOFTPLUS = ACTIVATIONS["softplus"]


def packed_prefix(
    q: Tensor,
    memory: Tensor,
    pack_k: Tensor,
    pack_q: Tensor,
    *,
    activation: Activation,
    key_padding_mask: Tensor | None = None,
    slot_mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q and pack_k (B, H, N, E), memory (B, H, N, E or 2E), pack_q (B, H, L, E): (B, H, N, E).

    `memory` holds the keys and, if it is 2E wide, then the values. `key_padding_mask` (B, N) is True at tokens that are
    excluded from sums and from the count t. `slot_mask` (B, L) is True at unused slots. `dropout` is the dropped share
    of a and of u, whatever the mode of the calling module. There is a compiled form (`models.ops.native`).
    """
    kernels = fla_kernels.chosen(q)
    if kernels is not None:
        return _by_kernels(kernels, q, memory, pack_k, pack_q, activation, key_padding_mask, slot_mask, dropout)
    seed = draw_seed(dropout)
    plan = _SlotOptions(activation, q.shape[-1] ** -0.5, dropout, seed)
    return _PackedPrefix.apply(q, memory, pack_k, pack_q, key_padding_mask, slot_mask, plan)


def _by_kernels(
    kernels: fla_kernels.Kernels,
    q: Tensor,
    memory: Tensor,
    pack_k: Tensor,
    pack_q: Tensor,
    activation: Activation,
    padding: Tensor | None,
    slot_mask: Tensor | None,
    dropout: float,
) -> Tensor:
    """`packed_prefix` by two calls of a kernel; a and u, (B, H, N, L), are stored. Dropout has torch's masks."""
    width, seen = q.shape[-1], torch.arange(1, q.shape[2] + 1, device=q.device, dtype=torch.float32)  # t
    with autocast_disabled(q):
        a = activation.value(width**-0.5 * (upcast(pack_k) @ upcast(pack_q).mT))
        if padding is not None:
            a = a.masked_fill(padding[:, None, :, None], 0.0)
            seen = (~padding).cumsum(1).clamp(min=1)[:, None].to(torch.float32)  # (B, 1, N)
        share = 1 / seen[..., None]
        a = F.dropout(a, dropout)
        z = upcast(kernels.prefix_sums(q, memory[..., :width], a)) * (share * width**-0.5)
        if slot_mask is not None:
            z = z.masked_fill(slot_mask[:, None, None], torch.finfo(z.dtype).min)
        u = F.dropout(z.softmax(-1), dropout)
        return (upcast(kernels.prefix_sums(u, a, memory[..., -width:])) * share).to(q.dtype)


def packed_prefix_chunk(
    q: Tensor,
    memory: Tensor,
    pack_k: Tensor,
    pack_q: Tensor,
    total: Tensor,
    seen: int,
    *,
    activation: Activation,
    slot_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """n tokens, q and pack_k (B, H, n, E), memory (B, H, n, F), after `seen` tokens with the sum `total` (B, H, F, L).

    Returns y (B, H, n, E), equal to the same rows of `packed_prefix`, and the new sum.
    """
    if q.shape[2] == 1:
        width = q.shape[-1]
        scale = width**-0.5
        with autocast_disabled(q):
            a = activation.value(scale * (upcast(pack_k) @ upcast(pack_q).mT))  # (B, H, 1, L)
            total = torch.addcmul(total, upcast(memory).mT, a)
            z = upcast(q) @ total[:, :, :width] * (scale / (seen + 1))  # (B, H, 1, L)
            if slot_mask is not None:
                z = z.masked_fill(slot_mask[:, None, None], torch.finfo(z.dtype).min)
            y = z.softmax(-1) @ total[:, :, -width:].mT / (seen + 1)
        return y.to(q.dtype), total
    with autocast_disabled(q):
        plan = _SlotOptions(activation, q.shape[-1] ** -0.5, 0.0, 0)
        call = _PackedInputs(q, memory, pack_k, pack_q, None, slot_mask, plan, seen)
        y, after = torch.empty_like(q), torch.empty_like(total)
        for tiles in call.groups():
            rows = tiles[0].rows
            *_, state = call.forward(tiles, y, total[rows].flatten(0, 1))
            after[rows] = state.view_as(after[rows])
    return y, after


@dataclass(frozen=True)
class _SlotOptions:
    activation: Activation
    scale: float
    dropout: float
    seed: int

    def kernels(self, q: Tensor, memory: Tensor, pack_k: Tensor, pack_q: Tensor) -> Any | None:
        """The compiled form, if it supports these inputs."""
        if self.dropout >= 1 or self.activation not in ACTIVATIONS.values() or pack_q.shape[2] % 16:
            return None
        return native.kernels(q, memory, pack_k, pack_q)


class _PackedPrefix(torch.autograd.Function):
    """Tokens are cut into chunks of C; with S the sum before a chunk, inside it, with 1/t folded into Q and Y,

        G = tril(Q K'),  Z = G A + Q S_k,   W = tril(U A'),  Y = W V + U S_v'

    Backward, with X the gradient of the sum after the chunk:

        dW = tril(dY V'),  dU = dW A + dY S_v,   dZ = U * (dU - rowsum(U * dU)),   dG = tril(dZ A')
        dQ = dG K + dZ S_k',   dK += dG' Q,   dV += W' dY,   dM += A X',   dA = G' dZ + dW' U + M X
        X before the chunk = X + [Q' dZ, dY' U]
    """

    @staticmethod
    def forward(ctx, q, memory, pack_k, pack_q, padding, slot_mask, plan):
        inputs = q, memory, pack_k, pack_q, padding, slot_mask
        ctx.plan, ctx.kernels = plan, plan.kernels(q, memory, pack_k, pack_q)
        if ctx.kernels is not None:
            ctx.save_for_backward(*inputs)
            masks = _PackedInputs(*inputs, plan).compiled_masks(ctx.kernels) if plan.dropout else NO_MASKS
            return ctx.kernels.packed_prefix_forward(*inputs, *masks, plan.scale, plan.activation == SOFTPLUS)
        starts = []
        with autocast_disabled(q):
            call = _PackedInputs(q, memory, pack_k, pack_q, padding, slot_mask, plan)
            y = torch.empty_like(q)
            for tiles in call.groups():
                starts += call.forward(tiles, y, call.empty_sum(tiles[0]))[:-1]
        ctx.save_for_backward(*inputs, *starts)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        q, memory, pack_k, pack_q, padding, slot_mask, *starts = ctx.saved_tensors
        if ctx.kernels is not None:
            scale, softplus = ctx.plan.scale, ctx.plan.activation == SOFTPLUS
            call = _PackedInputs(*ctx.saved_tensors, ctx.plan) if ctx.plan.dropout else None
            masks = NO_MASKS if call is None else call.compiled_masks(ctx.kernels)
            gradients = ctx.kernels.packed_prefix_backward(grad, *ctx.saved_tensors, *masks, scale, softplus)
            return *gradients, None, None, None
        with autocast_disabled(q):
            call = _PackedInputs(q, memory, pack_k, pack_q, padding, slot_mask, ctx.plan)
            dq, dmemory, dpack_k = (torch.empty_like(x) for x in (q, memory, pack_k))
            dpack_q = torch.zeros_like(pack_q, dtype=call.dtype)
            for tiles in call.groups():
                queries, future = call.pack_queries(tiles[0]), call.empty_sum(tiles[0])
                for where in reversed(tiles):
                    tile = _TileSums(call, where, queries, starts[where.number])
                    dy = where.cut(grad, tile.share)
                    dw = (dy @ tile.v.mT).mul_(tile.past)
                    du = (dw @ tile.a).baddbmm_(dy, tile.s_v)
                    if tile.keep_u is not None:
                        du *= tile.keep_u
                    dz = du.sub_((du * tile.u).sum(-1, keepdim=True)).mul_(tile.u)
                    dg = (dz @ tile.a.mT).mul_(tile.past)
                    where.put(dq, (dg @ tile.k).baddbmm_(dz, tile.s_k.mT), tile.share * ctx.plan.scale)

                    added = torch.zeros_like(tile.before)
                    call.keys(added, 1).baddbmm_(tile.q.mT, dz)
                    call.values(added, 1).baddbmm_(dy.mT, tile.read)
                    x, future = where.running(added, future, reverse=True)
                    dm = tile.a @ x.mT
                    call.keys(dm, 2).baddbmm_(dg.mT, tile.q)
                    call.values(dm, 2).baddbmm_(tile.w.mT, dy)
                    where.put(dmemory, dm)

                    da = (tile.g.mT @ dz).baddbmm_(dw.mT, tile.read).baddbmm_(tile.m, x)
                    if tile.keep_a is not None:
                        da *= tile.keep_a
                    da *= ctx.plan.activation.slope(tile.raw)
                    where.put(dpack_k, da @ tile.pack_q)
                    dpack_q[where.rows] += (da.mT @ tile.p).view(where.count, -1, *dpack_q.shape[1:]).sum(0)
            dpack_q *= ctx.plan.scale
        return dq, dmemory, dpack_k, dpack_q.to(pack_q.dtype), None, None, None


@dataclass(frozen=True)
class _ChunkRange:
    """`count` chunks of `size` tokens of some examples, computed together."""

    number: int
    rows: slice
    first: int
    last: int
    size: int

    @property
    def count(self) -> int:
        return (self.last - self.first) // self.size

    def view(self, x: Tensor) -> Tensor:
        """(B or 1, H, N, E) -> (G, b or 1, H, C, E)."""
        rows = self.rows if len(x) > 1 else slice(None)
        x = x[rows, :, self.first : self.last].unflatten(2, (self.count, self.size))
        return x.permute(2, 0, 1, 3, 4)

    def cut(self, x: Tensor, factor: Tensor | None = None) -> Tensor:
        """x, times a factor (G, b or 1, 1, C, 1): (B, H, N, E) -> (G R, C, E), a wide copy."""
        view = self.view(x)
        out = view.new_empty(view.shape, dtype=torch.promote_types(x.dtype, torch.float32))
        out = out.copy_(view) if factor is None else torch.mul(view, factor, out=out)
        return out.flatten(0, 2)

    def put(self, target: Tensor, value: Tensor, factor: Tensor | None = None) -> None:
        """target (B, H, N, E) = value (G R, C, E), times a factor."""
        view = self.view(target)
        value = value.view(view.shape)
        if factor is None:
            view.copy_(value)
        else:
            torch.mul(value, factor, out=view)

    def running(self, added: Tensor, edge: Tensor, *, reverse: bool = False) -> tuple[Tensor, Tensor]:
        """`edge` (R, F, L) plus the sums of `added` (G R, F, L) over the chunks before each, and over all chunks.

        With `reverse` the sums run over the chunks after each. A triangular product is faster than cumsum on a CPU.
        """
        parts = added.view(self.count, -1)  # (G, R F L)
        triangle = parts.new_ones(self.count, self.count)
        triangle = triangle.triu(1) if reverse else triangle.tril(-1)
        sums = torch.addmm(edge.view(1, -1), triangle, parts)
        last = 0 if reverse else -1
        return sums.view_as(added), (sums[last] + parts[last]).view_as(edge)


class _PackedInputs:
    """The inputs of one call, and how they are cut into tiles."""

    def __init__(self, q, memory, pack_k, pack_q, padding, slot_mask, plan, seen=0):
        self.q, self.memory, self.pack_k, self.slot_mask, self.plan = q, memory, pack_k, slot_mask, plan
        self.length, self.width, self.room = q.shape[2], q.shape[3], memory.shape[3]
        self.dtype = torch.promote_types(q.dtype, torch.float32)
        self.pack_q = pack_q.to(self.dtype) * plan.scale  # (B, H, L, E)
        self.valid = None
        counts = torch.arange(seen + 1, seen + self.length + 1, device=q.device)[None]
        if padding is not None:
            self.valid = (~padding).to(self.dtype)[:, None, :, None]  # (B, 1, N, 1)
            counts = (~padding).cumsum(1).clamp(min=1)
        self.share = counts.to(self.dtype).reciprocal()[:, None, :, None]  # 1/t, (B or 1, 1, N, 1)

    def forward(self, tiles: list[_ChunkRange], y: Tensor, state: Tensor) -> list[Tensor]:
        """Fill y (B, H, N, E) at these tiles. Returns the sums (R, F, L) before each tile and after the last."""
        queries, states = self.pack_queries(tiles[0]), [state]
        for where in tiles:
            tile = _TileSums(self, where, queries, states[-1])
            where.put(y, (tile.w @ tile.v).baddbmm_(tile.read, tile.s_v.mT), tile.share)
            states.append(tile.state)
        return states

    def compiled_masks(self, kernels: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
        """Dropout for compiled kernels: bits, entries of a and of u of each token's first head (B, N), entries per head
        (N), and the factor of what is kept."""
        (batch, heads), slots = self.q.shape[:2], self.pack_q.shape[2]
        tiles = [tile for group in self.groups() for tile in group]
        sizes = [(tile.rows.stop - tile.rows.start) * heads * (tile.last - tile.first) * slots for tile in tiles]
        seeds = [self.plan.seed + tile.number for tile in tiles]
        # both masks of a tile come from one stream, and the second begins with a whole draw of four entries
        masks = CompiledMasks.draw(kernels, self.plan.dropout, seeds, [-(-size // 4) * 4 + size for size in sizes])
        first, per_head = torch.empty(batch, self.length).long(), torch.empty(self.length).long()
        second = torch.empty_like(first)
        for tile, size, start in zip(tiles, sizes, masks.starts.tolist(), strict=True):
            tokens, rows = torch.arange(tile.last - tile.first), torch.arange(tile.rows.stop - tile.rows.start)[:, None]
            chunk = tokens // tile.size * len(rows) + rows  # (b, n)
            entries = start + (chunk * heads * tile.size + tokens % tile.size) * slots
            where = tile.rows, slice(tile.first, tile.last)
            first[where], second[where] = entries, entries + -(-size // 4) * 4
            per_head[where[1]] = tile.size * slots
        return masks.bits, first, second, per_head, masks.factor

    def keys(self, x: Tensor, dim: int) -> Tensor:
        return x.narrow(dim, 0, self.width)

    def values(self, x: Tensor, dim: int) -> Tensor:
        return x.narrow(dim, self.room - self.width, self.width)

    def pack_queries(self, where: _ChunkRange) -> Tensor:
        """(G R, L, E), the same in every chunk."""
        return self.pack_q[where.rows].flatten(0, 1).repeat(where.count, 1, 1)

    def empty_sum(self, where: _ChunkRange) -> Tensor:
        """(R, F, L)"""
        pack_q = self.pack_q[where.rows].flatten(0, 1)
        return pack_q.new_zeros(len(pack_q), self.room, pack_q.shape[1])

    def groups(self) -> list[list[_ChunkRange]]:
        """Tiles per group of examples, from the first token on; a shorter last chunk is a separate tile."""
        (batch, heads), slots = self.q.shape[:2], self.pack_q.shape[2]
        # long chunks have larger C x C products, short chunks more sums of F x L numbers
        size = min(self.length, max(32, min(math.isqrt(self.room * slots), 64)))
        numbers = heads * (size * (3 * self.width + 4 * slots + 2 * size) + self.room * slots)
        chunks = TILE.fit(self.q, numbers)
        # of one example; with dropout more examples per tile would change the masks, which follow the tile's number
        fewest = MIN_CHUNKS if self.plan.dropout else min(MIN_CHUNKS, -(-self.length // size))
        rows = min(batch, max(1, chunks // fewest))
        step = max(1, chunks // rows) * size
        end = self.length // size * size
        edges = [(first, min(first + step, end), size) for first in range(0, end, step)]
        if end < self.length:
            edges.append((end, self.length, self.length - end))
        examples = [slice(first, min(first + rows, batch)) for first in range(0, batch, rows)]
        return [
            [_ChunkRange(group * len(edges) + tile, examples[group], *edge) for tile, edge in enumerate(edges)]
            for group in range(len(examples))
        ]


class _TileSums:
    """The intermediate results of a tile, computed in the forward pass and again in the backward pass."""

    def __init__(self, call: _PackedInputs, where: _ChunkRange, pack_q: Tensor, start: Tensor):
        plan = call.plan
        self.share = where.view(call.share)
        self.q = where.cut(call.q, self.share * plan.scale)  # (G R, C, E)
        self.m = where.cut(call.memory)  # (G R, C, F)
        self.p = where.cut(call.pack_k)
        self.k, self.v = call.keys(self.m, 2), call.values(self.m, 2)
        self.pack_q = pack_q[: len(self.q)]  # for as many chunks as this tile has
        self.past = self.q.new_ones(where.size, where.size).tril()
        self.raw = plan.activation.value(self.p @ self.pack_q.mT)  # (G R, C, L)
        masks = Masks(plan.seed + where.number, self.q.device) if plan.dropout else None
        self.keep_a = masks.draw(self.raw, plan.dropout) if masks else None
        if call.valid is not None:
            valid = where.view(call.valid).expand(-1, -1, call.q.shape[1], -1, -1).flatten(0, 2)  # (G R, C, 1)
            self.keep_a = valid if self.keep_a is None else self.keep_a * valid
        self.a = self.raw if self.keep_a is None else self.raw * self.keep_a
        self.before, self.state = where.running(self.m.mT @ self.a, start)  # (G R, F, L), (R, F, L)
        self.s_k, self.s_v = call.keys(self.before, 1), call.values(self.before, 1)
        self.g = (self.q @ self.k.mT).mul_(self.past)  # (G R, C, C)
        z = (self.q @ self.s_k).baddbmm_(self.g, self.a)  # (G R, C, L)
        if call.slot_mask is not None:
            unread = call.slot_mask[where.rows][None, :, None, None]  # (1, b, 1, 1, L)
            z.view(where.count, len(unread[0]), -1, *z.shape[1:]).masked_fill_(unread, torch.finfo(z.dtype).min)
        self.u = z.softmax(-1)
        self.keep_u = masks.draw(self.raw, plan.dropout) if masks else None
        self.read = self.u if self.keep_u is None else self.u * self.keep_u
        self.w = (self.read @ self.a.mT).mul_(self.past)
