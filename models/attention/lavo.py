"""LAVO: attention to an orthogonal memory of fixed size, and to a local window (Zhang et al., 2023, arXiv 2312.11135).

Per head, with directions b_1 .. b_r, orthonormal at first (Table 1: r = 64, w = 16; Table 11: r = 32, w = 256):

    F_local,i  = sum_j softmax_j( s <q_i, k_j> + P[j - i + w - 1] ) v_j                      (§3.2, §3.3)
                 causal: -w < j - i <= 0; noncausal: |j - i| < w
    H          = mean_j ( <b_1, F_local,j>, .., <b_r, F_local,j> )                           (3, 4)
                 causal: j in the windows before the query's own; noncausal: all j
    F_global,i = sum_r p_ir H_r b_r,   p_i = softmax_r( s H_r <q_i, b_r> )                   (3)
    y          = W_o (F_local + F_global) / 2;   cross: y = W_o F_global, H = mean_j B x_j   (§3.2; 5, 6)

Time O(n (w + r) D), memory O(n D), decoding state O(w D + h r).

    B batch, N length, M source length, H heads, E head width, R bases, W windows
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from models.attention.base import INPUT_GAIN, Attention, Pattern, State, check_choice, projection
from models.ops import native
from models.ops.banded import banded_attention
from models.ops.dropout import CompiledMasks, apply_dropout, draw_seed
from models.ops.heads import merge_heads, split_heads
from models.ops.padding import real_tokens
from models.ops.precision import autocast_disabled, upcast
from models.ops.ring import attend_to_ring, empty_ring
from models.ops.tiles import in_few_kernels

CROSS_SOURCES = ("raw", "value")
TILE = 2048  # queries whose r logits exist at once


def lavo(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bases: Tensor,
    bias: Tensor | None = None,
    *,
    window: int,
    causal: bool,
    raw: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Self-attention: q, k, v (B, H, N, E), bases (H, R, E), bias (H, 2 window - 1) -> (B, H, N, E).

    `raw` (B, H, N, E) replaces the local features in the memory, token by token ("w/o cd" in Table 9). `scale` is that
    of the global half, by default E^-1/2. `key_padding_mask` (B, N) is True at padding.
    """
    right = 0 if causal else window - 1
    local = banded_attention(
        q,
        k,
        v,
        left=window - 1,
        right=right,
        bias=None if bias is None else bias[:, : window + right],
        key_padding_mask=key_padding_mask,
        dropout=dropout,
    )
    remembered = local if raw is None else raw
    if causal:
        per_memory = window if raw is None else 1
        memory = past_memory(remembered, bases, key_padding_mask, window=window if raw is None else None)
    else:
        per_memory, memory = None, mean_memory(remembered, bases, key_padding_mask)
    return (local + read(q, memory, bases, window=per_memory, dropout=dropout, scale=scale)) / 2


def read(
    q: Tensor,
    memory: Tensor,
    bases: Tensor,
    *,
    window: int | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """softmax(q X~') X~ of q (B, H, N, E) and bases (H, R, E), with rows X~_r = H_r b_r: (B, H, N, E).

    Memory H is (B, H, W, R), one per `window` queries, or (B, H, 1, R), one for all. With u = s q B', p = softmax(u H),
    y = p H and o = y B, neither X~ nor any other tensor of n r E numbers exists. The backward pass is explicit:

        dy = do B',  dl = p (dy H - <p, dy H>),  dH = p dy + u dl,  dq = s (dl H) B,  dB = y' do + s (dl H)' q
    """
    if scale is None:
        scale = q.shape[-1] ** -0.5
    per_memory = q.shape[2] if window is None else window
    with autocast_disabled(q):
        memory, bases = memory.to(q.dtype), bases.to(q.dtype)
        if q.shape[2] == 1 and not dropout:  # a single decoded token: no tiles, as few operations as possible
            p = ((q @ bases.mT) * memory * scale).softmax(-1, dtype=upcast(memory).dtype)
            return (p.to(q.dtype) * memory) @ bases
        if in_few_kernels(q):  # no tiles
            h = spread(memory, slice(None), slice(0, q.shape[2]), per_memory)
            p = ((q @ bases.mT) * h * scale).softmax(-1, dtype=upcast(h).dtype)
            return (F.dropout(p, dropout).to(q.dtype) * h) @ bases
        return _Read.apply(q, memory, bases, per_memory, dropout, scale, draw_seed(dropout))


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, memory, bases, window: int, dropout: float, scale: float, seed: int) -> Tensor:
        ctx.save_for_backward(q, memory, bases)
        ctx.options = window, dropout, scale, seed
        ctx.kernels = native.kernels(q, memory, bases) if dropout < 1 else None
        if ctx.kernels is not None:
            masks = compiled_masks(ctx.kernels, q, bases, window, dropout, seed)
            return ctx.kernels.lavo_read_forward(q, memory, bases, *masks, window, scale)
        out = torch.empty_like(q)
        for rows, memories in query_tiles(q.shape[2], window):
            h = spread(memory, memories, rows, window)  # (B, H, T, R)
            p = ((q[:, :, rows] @ bases.mT).mul_(h).mul_(scale)).softmax(-1, dtype=upcast(h).dtype)
            out[:, :, rows] = (apply_dropout(p, dropout, seed + rows.start).to(q.dtype) * h) @ bases
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, memory, bases = ctx.saved_tensors
        window, dropout, scale, seed = ctx.options
        if ctx.kernels is not None:
            masks = compiled_masks(ctx.kernels, q, bases, window, dropout, seed)
            return *ctx.kernels.lavo_read_backward(grad, q, memory, bases, *masks, window, scale), *(None,) * 4
        with autocast_disabled(q):
            dq, dmemory, dbases = torch.empty_like(q), torch.zeros_like(upcast(memory)), torch.zeros_like(upcast(bases))
            for rows, memories in query_tiles(q.shape[2], window):
                h = spread(memory, memories, rows, window)
                u = (q[:, :, rows] @ bases.mT).mul_(scale)
                p = (u * h).softmax(-1, dtype=dbases.dtype)
                dy = upcast(grad[:, :, rows] @ bases.mT)
                weights = apply_dropout(p, dropout, seed + rows.start)  # p, with dropped entries at zero
                dh = weights * dy
                y = (weights * h).to(q.dtype)
                dl = dh * h  # p dp at this point
                dl -= p * dl.sum(-1, keepdim=True)
                dh += u * dl
                du = (dl * h).mul_(scale).to(q.dtype)
                dq[:, :, rows] = du @ bases
                dbases += (y.mT @ grad[:, :, rows] + du.mT @ q[:, :, rows]).sum(0)
                dmemory[:, :, memories] += gathered(dh, memories, rows, window)
        return dq, dmemory.to(memory.dtype), dbases.to(bases.dtype), None, None, None, None


def compiled_masks(
    kernels: Any, q: Tensor, bases: Tensor, window: int, dropout: float, seed: int
) -> tuple[Tensor | None, Tensor | None, int, float]:
    """Dropout for compiled kernels: bits, the entry of each tile, queries per tile, and the factor of kept weights."""
    (batch, heads, length), size = q.shape[:3], tile_size(window)
    if not dropout:
        return None, None, size, 1.0
    rows = [rows for rows, _ in query_tiles(length, window)]
    entries = [batch * heads * (tile.stop - tile.start) * bases.shape[1] for tile in rows]
    masks = CompiledMasks.draw(kernels, dropout, [seed + tile.start for tile in rows], entries)
    return masks.bits, masks.starts, size, masks.factor


def tile_size(window: int) -> int:
    """Queries per tile: whole windows, or a part of a window that is longer than a tile."""
    return max(1, TILE // window) * window if window <= TILE else TILE


def query_tiles(length: int, window: int) -> Iterator[tuple[slice, slice]]:
    """(queries, their memories) of each tile."""
    size = tile_size(window)
    for start in range(0, length, size):
        stop = min(start + size, length)
        yield slice(start, stop), slice(start // window, -(-stop // window))


def spread(memory: Tensor, memories: slice, rows: slice, window: int) -> Tensor:
    """The memory of every query in a tile."""
    chosen, before = memory[:, :, memories], rows.start % window  # a tile may begin within a window
    if chosen.shape[2] == 1 or window == 1:
        return chosen
    return chosen.repeat_interleave(window, 2)[:, :, before : before + rows.stop - rows.start]


def gathered(x: Tensor, memories: slice, rows: slice, window: int) -> Tensor:
    """(B, H, T, R) -> sums over the queries that share a memory."""
    if memories.stop - memories.start == 1:
        return x.sum(2, keepdim=True)
    if window == 1:
        return x
    return F.pad(x, (0, 0, rows.start % window, -rows.stop % window)).unflatten(2, (-1, window)).sum(3)


def mean_memory(x: Tensor, bases: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
    """Mean of B x over the tokens of x (B, H, M, E): (B, H, 1, R), zero if all tokens are padding."""
    with autocast_disabled(x):
        if key_padding_mask is None:
            mean = upcast(x).mean(2, keepdim=True)
        else:
            x = x.masked_fill(key_padding_mask[:, None, :, None], 0.0)
            count = (~key_padding_mask).sum(1).clamp(min=1)
            mean = upcast(x).sum(2, keepdim=True) / count[:, None, None, None]
        return mean @ upcast(bases).mT


def past_memory(x: Tensor, bases: Tensor, key_padding_mask: Tensor | None = None, *, window: int | None) -> Tensor:
    """Mean of B x over the past that queries may read from x (B, H, N, E), zero where there is none.

    The queries of each window read all earlier windows: (B, H, W, R). With `window=None` each query reads all tokens up
    to its own: (B, H, N, R).
    """
    with autocast_disabled(x):
        valid = real_tokens(key_padding_mask, x).to(x.dtype)  # (B or 1, N)
        x = upcast(x if key_padding_mask is None else x * valid[:, None, :, None])
        valid = upcast(valid)[:, None, :, None]
        if window is None:
            return (x @ upcast(bases).mT).cumsum(2) / valid.cumsum(2).clamp(min=1)
        total = windows_before(x, window) @ upcast(bases).mT  # (B, H, W, R)
        return total / windows_before(valid, window).clamp(min=1)


def windows_before(x: Tensor, window: int) -> Tensor:
    """(B, H, N, F) -> (B, H, W, F): the sum over all windows before each one, including the next one to begin."""
    full = x.shape[2] // window  # windows; an incomplete last one precedes none
    sums = x[:, :, : full * window].unflatten(2, (full, window)).sum(3).cumsum(2)
    return F.pad(sums, (0, 0, 1, 0))


class LAVO(Attention):
    """Multi-head LAVO. Self: 4 D^2 + 4 D + r D + h (2 w - 1) parameters; cross: 2 D^2 + 2 D + r D, + D^2 + D for W_v.

    Our readings: each head has its own bases, which are trained and not re-orthogonalised, r <= E (D-1). P is per head
    and starts at zero (D-2). A noncausal query sees 2 w - 1 tokens locally (D-41). s = E^-1/2 in both halves; without
    `global_scale` it is 1 in the global half (D-3). All noncausal queries share one H (D-4). The cross source is read
    raw, or through W_v with `cross_source="value"` (D-5). In the first causal window H = 0, and the local half is still
    divided by two (D-1b). Padding is excluded from sums and counts. Table 9's ablations: `epe=False` drops P;
    `dissection=False` takes H over all j <= i (noncausal: all j) of x itself.

    Raises ValueError for more bases than head dimensions, a window below 1, or an unknown `cross_source`.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset(Pattern)

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        bases: int = 64,
        window: int = 16,
        epe: bool = True,
        dissection: bool = True,
        freeze_bases: bool = False,
        global_scale: bool = True,
        cross_source: str = "raw",
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        if not 1 <= bases <= self.head_dim:
            raise ValueError(f"LAVO requires bases <= head width: {bases} bases, head width {self.head_dim}")
        self.check_sizes(window=window)
        check_choice("cross_source", cross_source, CROSS_SOURCES)
        self.window, self.dissection = window, dissection
        self.global_scale = self.head_dim**-0.5 if global_scale else 1.0
        self.q_proj = projection(dim, dim, INPUT_GAIN)
        self.k_proj = None if self.pattern.cross else projection(dim, dim, INPUT_GAIN)
        raw_source = self.pattern.cross and cross_source == "raw"
        self.v_proj = None if raw_source else projection(dim, dim, INPUT_GAIN)
        self.out_proj = projection(dim, dim, 1.0)
        self.bases = nn.Parameter(torch.empty(heads, bases, self.head_dim), requires_grad=not freeze_bases)
        for base in self.bases.detach():
            nn.init.orthogonal_(base)
        local = epe and not self.pattern.cross
        self.position_bias = nn.Parameter(torch.zeros(heads, 2 * window - 1)) if local else None

    def forward(
        self, x: Tensor, context: Tensor | None = None, *, key_padding_mask: Tensor | None = None, carry: Any = None
    ) -> tuple[Tensor, Any]:
        source = self.source(x, context)
        if self.pattern.cross:
            return self.recall(x, self.context_state(source, key_padding_mask, carry)["memory"]), carry
        # this order fixes the order in which their gradients are added
        q, v, k = (split_heads(linear(x), self.head_dim) for linear in (self.q_proj, self.v_proj, self.k_proj))
        y = lavo(
            q,
            k,
            v,
            self.bases,
            self.position_bias,
            window=self.window,
            causal=self.pattern.causal,
            raw=None if self.dissection else split_heads(x, self.head_dim),
            key_padding_mask=key_padding_mask,
            dropout=self.active_dropout,
            scale=self.global_scale,
        )
        return self.out_proj(merge_heads(y)), carry

    def empty_state(self, batch: int) -> State:
        """Rings of the last `window` keys and values, and sums of B x over the finished windows and the current one."""
        sums = upcast(self.bases.new_zeros(2, batch, self.heads, 1, self.bases.shape[1]))
        ring = empty_ring(self.bases, batch, self.heads, self.window, self.head_dim)
        return {**ring, "past": sums[0], "current": sums[1]}

    def context_state(self, context: Tensor, key_padding_mask: Tensor | None, carry: Any) -> State:
        """The memory of the context: r numbers per head, whatever its length."""
        v = split_heads(context if self.v_proj is None else self.v_proj(context), self.head_dim)  # (B, H, M, E)
        return {"memory": mean_memory(v, self.bases, key_padding_mask), "carry": carry}

    def recall(self, x: Tensor, memory: Tensor) -> Tensor:
        """What queries x (B, N, D) read from the memory (B, H, 1, R) of a context."""
        q = split_heads(self.q_proj(x), self.head_dim)  # (B, H, N, E)
        y = read(q, memory, self.bases, dropout=self.active_dropout, scale=self.global_scale)
        return self.out_proj(merge_heads(y))

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        if self.pattern.cross:
            return self.recall(x, state["memory"]), state
        q, k, v = (split_heads(linear(x), self.head_dim) for linear in (self.q_proj, self.k_proj, self.v_proj))
        y, state = self.attend_chunk(q, k, v, split_heads(x, self.head_dim), state)
        return self.out_proj(merge_heads(y)), state

    def attend_chunk(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The next n tokens, q, k, v and the layer's input x (B, H, n, E) -> (B, H, n, E), and the state after them."""
        seen, count = state["seen"], q.shape[2]
        bias = None if self.position_bias is None else self.position_bias[:, : self.window]
        local, after = attend_to_ring(q, k, v, state, bias=bias)
        z = upcast((local if self.dissection else x) @ self.bases.mT)  # (B, H, n, R)
        if count == 1:
            memory, sums = self.token_memory(z, state)
            remembered = read(q, memory, self.bases, scale=self.global_scale)
        else:
            memory, sums = self.chunk_memory(z, state)
            begun, window = (seen % self.window, self.window) if self.dissection else (0, 1)
            rows = F.pad(q, (0, 0, begun, 0))  # padded to the start of the first token's window
            remembered = read(rows, memory, self.bases, window=window, scale=self.global_scale)[:, :, begun:]
        return (local + remembered) / 2, {**after, **sums}

    def token_memory(self, z: Tensor, state: State) -> tuple[Tensor, State]:
        """For one token with z = B x (B, H, 1, R): the memory that it reads, (B, H, 1, R), and the sums after it."""
        past, current, seen = state["past"], state["current"], state["seen"]
        if not self.dissection:  # a token also remembers itself
            past = past + z
            return past / (seen + 1), {"past": past}
        begun = seen % self.window
        if begun:
            return past / max(1, seen - begun), {"current": current + z}
        past = past + current  # the window that just ended
        return past / max(1, seen), {"past": past, "current": z}

    def chunk_memory(self, z: Tensor, state: State) -> tuple[Tensor, State]:
        """The same for n tokens, z (B, H, n, R): memories (B, H, W, R) per window or, without dissection, per token."""
        past, current, seen = state["past"], state["current"], state["seen"]
        if not self.dissection:
            total = past + z.cumsum(2)
            tokens = torch.arange(seen + 1, seen + 1 + z.shape[2], device=z.device)[:, None]
            return total / tokens, {"past": total[:, :, -1:].clone()}
        window = self.window
        begun = seen % window  # earlier tokens in the first token's window
        sums = F.pad(z, (0, 0, begun, -(begun + z.shape[2]) % window)).unflatten(2, (-1, window)).sum(3)
        if begun:
            sums[:, :, :1] += current
        else:
            past = past + current
        total = torch.cat([past, sums], 2).cumsum(2)[:, :, :-1]  # a window remembers the earlier ones
        tokens = seen - begun + window * torch.arange(total.shape[2], device=z.device)[:, None]
        last = {"past": total[:, :, -1:].clone(), "current": sums[:, :, -1:].clone()}
        return total / tokens.clamp(min=1), last
