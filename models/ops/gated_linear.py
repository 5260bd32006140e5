"""Gated linear attention: a linear recurrence on a matrix state, in time and memory linear in the length.

    S_t = diag(e^{g_t}) S_{t-1} + k_t v_t',   y_t = S_t' q_t                (Yang et al., 2024, arXiv 2312.06635, eq. 3)

with log decays g_t <= 0 per key channel, per head, or none (linear attention, Katharopoulos et al., 2020). The sequence
is cut into chunks of C tokens. With b_t the sum of g from the chunk's start to t and S the state before the chunk,

    y_t = S' (e^{b_t} q_t) + sum_{s <= t} A_ts v_s,   A_ts = sum_c q_tc k_sc e^{b_tc - b_sc},   (eq. 4)
    S <- e^{b_C} S + sum_s (e^{b_C - b_s} k_s) v_s'

C is the larger of 64 and K / 2 rounded down to a power of two. Time O(N (C (K + V) + K V)) with log2 C exponentials per
key channel; memory O(N (K + V + K V / C)) plus one tile of A.

    B batch, H heads, N length, K key width, V value width, G chunks of C tokens
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops import fla_kernels
from models.ops.decayed_chunks import Chunks, Decay, decayed, exponential
from models.ops.precision import autocast_disabled, upcast
from models.ops.scan import scan
from models.ops.tiles import EVERY, TileBudget, spans, tiles

CHUNK = 64  # a power of two: the smallest C; wide keys justify a longer chunk
TILE = TileBudget(2**19, 2**26)  # numbers of A


def gated_linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor | None = None,
    *,
    initial_state: Tensor | None = None,
    final_state: bool = True,
    key_padding_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """q and k (B, H, N, K), v (B, H, N, V), log_decay (B, H, N, K or 1) -> y (B, H, N, V), final state (B, H, K, V).

    q and k that all heads share may have one head, (B, 1, N, K). A padded token, True in `key_padding_mask` (B, N),
    leaves the state unchanged. The state is zero at first unless given; it and all sums are float32 or float64. It may
    be None without `final_state`: a sequence of one chunk then needs no states.
    """
    dtype, kernels = v.dtype, fla_kernels.chosen(v)
    with autocast_disabled(v):
        q, k, v = upcast(q), upcast(k), upcast(v)
        g = None if log_decay is None else upcast(log_decay)
        if key_padding_mask is not None:
            hidden = key_padding_mask[:, None, :, None]
            k = k.masked_fill(hidden, 0.0)
            g = None if g is None else g.masked_fill(hidden, 0.0)
        if g is not None and g.shape[-1] > 1:  # scores decay per channel, so that each head has its own
            q, k = (x.expand(-1, v.shape[1], -1, -1) for x in (q, k))
        if initial_state is None and not final_state and kernels is None and _CutTokens.size_of(q) >= v.shape[2]:
            return _GatedLinear.apply(q, k, v, g, None)[0].to(dtype), None
        if initial_state is None:
            initial_state = v.new_zeros(*v.shape[:2], k.shape[-1], v.shape[-1])
        compute = _GatedLinear.apply if kernels is None else kernels.gated_linear
        y, state = compute(q, k, v, g, upcast(initial_state))
        return y.to(dtype), state


def gated_linear_step(
    q: Tensor, k: Tensor, v: Tensor, state: Tensor, log_decay: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """One token: q and k (B, H, K), v (B, H, V), state (B, H, K, V), log_decay (B, H, K or 1) -> y (B, H, V), state.

    q and k may have one head, as above.
    """
    with autocast_disabled(v):
        if log_decay is not None:
            state = state * upcast(log_decay).exp()[..., None]
        state = state + upcast(k)[..., None] * upcast(v)[..., None, :]
        y = (upcast(q)[..., None, :] @ state)[..., 0, :]
        return y.to(v.dtype), state


def gated_linear_chunk(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor | None,
    state: Tensor | None,
    *,
    key_padding_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The next n tokens in decoding, in the shapes of `gated_linear_attention`: a single token takes one step.

    Without a state, the tokens are a whole sequence, and its final state is not returned.
    """
    if state is None:
        return gated_linear_attention(q, k, v, log_decay, final_state=False, key_padding_mask=key_padding_mask)
    if q.shape[2] > 1 or key_padding_mask is not None:
        return gated_linear_attention(q, k, v, log_decay, initial_state=state, key_padding_mask=key_padding_mask)
    decay = None if log_decay is None else log_decay[:, :, 0]
    y, state = gated_linear_step(q[:, :, 0], k[:, :, 0], v[:, :, 0], state, decay)
    return y[:, :, None], state


class _GatedLinear(torch.autograd.Function):
    """The scores A of a chunk are `Decay.products`.

    Backward recomputes A and derives the decay's gradient from those of q and k: inside a chunk dL/db_t = q_t dq_t -
    k_t dk_t, and the gradient of b_C comes from the final state. If the heads share q and k, it keeps y as well. One
    chunk without a first state, whose final state is not read, computes no products with states.
    """

    @staticmethod
    def forward(
        ctx, q: Tensor, k: Tensor, v: Tensor, g: Tensor | None, initial: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        chunks, before = _CutTokens(q, k, v, g), None
        if initial is not None:
            written = chunks.empty_states()
            for index, tile in chunks.tiles(with_scores=False):
                written[index] = tile.written()
            before = chunks.carry(written, initial)
        y = torch.empty_like(chunks.v)
        for index, tile in chunks.tiles():
            y[index] = tile.read(None if before is None else before[index])
        y = chunks.join(y)
        ctx.save_for_backward(q, k, v, g, before, y if chunks.shared else None)
        return y, None if before is None else before[:, :, -1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor, grad_state: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, v, g, before, y = ctx.saved_tensors
        with autocast_disabled(q):
            chunks = _CutTokens(q, k, v, g)
            grad, y = chunks.cut(grad), None if y is None else chunks.cut(y)
            if before is not None:
                read = chunks.empty_states()
                for index, tile in chunks.tiles(with_scores=False):
                    read[index] = tile.state_gradient(grad[index])
                dbefore = chunks.carry(read, grad_state, reverse=True)
                after, dafter = before[:, :, 1:], dbefore[:, :, 1:]
            gradients = [None if x is None else torch.empty_like(x) for x in (chunks.q, chunks.k, chunks.v, chunks.g)]
            for index, tile in chunks.tiles():
                states = (None, None) if before is None else (before[index], dafter[index])
                *parts, dsums = tile.gradients(grad[index], *states, None if y is None else y[index])
                if g is not None:
                    dlast = None if before is None else (after[index] * dafter[index]).sum(-1)
                    parts.append(tile.decay.of_sums(dsums, dlast, chunks.lower))
                for gradient, part in zip(gradients, parts, strict=False):
                    gradient[index] = part
        joined = (None if x is None else chunks.join(x) for x in gradients)
        return *joined, None if before is None else dbefore[:, :, 0].clone()


Index = tuple[slice, slice, slice]


class _CutTokens(Chunks):
    """The tokens of one call cut into chunks, (B, H, G, C, ..)."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, g: Tensor | None):
        super().__init__(q.shape[2], self.size_of(q), any_size=g is None)
        self.q, self.k, self.v = self.cut(q), self.cut(k), self.cut(v)
        self.g = None if g is None else self.cut(g)
        self.lower = q.new_ones(self.size, self.size).tril()
        self.shared = q.shape[1] < v.shape[1]  # one q and k for all heads

    @staticmethod
    def size_of(q: Tensor) -> int:
        """Most tokens of a chunk: one state per chunk is written and read, which outweighs the scores for wide K until
        C is about K / 2."""
        return max(CHUNK, 1 << max(0, (q.shape[-1] // 2).bit_length() - 1))

    def empty_states(self, more: int = 0) -> Tensor:
        batch, heads, count = self.v.shape[:3]
        return self.q.new_empty(batch, heads, count + more, self.q.shape[-1], self.v.shape[-1])

    def tiles(self, *, with_scores: bool = True) -> Iterator[tuple[Index, "_DecayedChunks"]]:
        batch, heads = self.v.shape[:2]
        chunk = heads * self.size**2
        rows = TILE.fit(self.q, chunk, batch)
        chunks = TILE.fit(self.q, rows * chunk, self.count)
        for _, index in tiles(spans(0, batch, rows), EVERY, spans(0, self.count, chunks)):
            g = None if self.g is None else self.g[index]
            parts = self.q[index], self.k[index], self.v[index], g
            yield index, (_SharedChunks if self.shared else _DecayedChunks)(*parts, self.lower, with_scores=with_scores)

    def carry(self, added: Tensor, initial: Tensor, *, reverse: bool = False) -> Tensor:
        """States at the G + 1 chunk boundaries, (B, H, G + 1, K, V), from what each chunk adds to a zero state."""
        if self.g is None:
            decay = added.new_ones(1).expand(*added.shape[:3], 1, 1)
        else:
            decay = exponential(self.g.sum(3))[..., None]  # (B, H, G, K or 1, 1)
        states = self.empty_states(1)
        states[:, :, -1 if reverse else 0] = initial
        inner = states[:, :, :-1] if reverse else states[:, :, 1:]
        scan(*(x.flatten(0, 1) for x in (decay, added, initial, inner)), reverse=reverse)
        return states


class _DecayedChunks:
    """Some chunks computed together: q, k (.., C, K), v (.., C, V) and their decay.

    Without `with_scores` it computes only what is read from and written to the states, not A.
    """

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, g: Tensor | None, lower: Tensor, *, with_scores: bool):
        self.q, self.k, self.v = q, k, v
        self.decay = Decay(g, lower, with_products=with_scores)

    def written(self) -> Tensor:
        """What the chunks add to a zero state, (.., K, V)."""
        return decayed(self.k, self.decay.to_end).mT @ self.v

    def read(self, before: Tensor | None) -> Tensor:
        """y (.., C, V) from the states before the chunks, (.., K, V); None means zero."""
        y = self.scores() @ self.v
        return y if before is None else y + decayed(self.q, self.decay.from_start) @ before

    def state_gradient(self, dy: Tensor) -> Tensor:
        """Gradient of the states before the chunks, (.., K, V), from that of y alone."""
        return decayed(self.q, self.decay.from_start).mT @ dy

    def gradients(
        self, dy: Tensor, before: Tensor | None, dafter: Tensor | None, y: Tensor | None
    ) -> tuple[Tensor, ...]:
        """Gradients of q, k and v, and products whose sum over channels is that of b_t, without the part of b_C.

        `before` and `dafter`, the states before the chunks and the gradients of those after, are zero if None.
        """
        dv = self.scores().mT @ dy
        dq, dk = self.decay.products_backward(dy @ self.v.mT, self.q, self.k)
        if before is not None:
            dv += decayed(self.k, self.decay.to_end) @ dafter
            dq += decayed(dy @ before.mT, self.decay.from_start)
            dk += decayed(self.v @ dafter.mT, self.decay.to_end)
        return dq, dk, dv, self.q * dq - self.k * dk

    def scores(self) -> Tensor:
        """A, (.., C, C)."""
        return self.decay.products(self.q, self.k)


class _SharedChunks(_DecayedChunks):
    """Chunks whose heads share q and k, (B, 1, G, C, K): a product with q or k is one product for all heads.

    The decays, one for each head, therefore multiply the values. The gradient of b_t is y_t dy_t - v_t dv_t.
    """

    def written(self) -> Tensor:
        return self.split(self.k[:, 0].mT @ joined(decayed(self.v, self.decay.to_end)))

    def read(self, before: Tensor | None) -> Tensor:
        y = self.scores() @ self.v
        return y if before is None else y + decayed(self.split(self.q[:, 0] @ joined(before)), self.decay.from_start)

    def state_gradient(self, dy: Tensor) -> Tensor:
        return self.split(self.q[:, 0].mT @ joined(decayed(dy, self.decay.from_start)))

    def gradients(
        self, dy: Tensor, before: Tensor | None, dafter: Tensor | None, y: Tensor | None
    ) -> tuple[Tensor, ...]:
        dv = self.scores().mT @ dy
        dq, dk = self.scores_backward(dy @ self.v.mT)
        if before is not None:
            dafter_joined = joined(dafter)
            dv += decayed(self.split(self.k[:, 0] @ dafter_joined), self.decay.to_end)
            dq += (joined(decayed(dy, self.decay.from_start)) @ joined(before).mT)[:, None]
            dk += (joined(decayed(self.v, self.decay.to_end)) @ dafter_joined.mT)[:, None]
        return dq, dk, dv, y * dy - self.v * dv

    def scores(self) -> Tensor:
        return (self.q @ self.k.mT) * self.decay.pair

    def scores_backward(self, dscores: Tensor) -> tuple[Tensor, Tensor]:
        dscores = dscores.mul_(self.decay.pair).sum(1, keepdim=True)
        return dscores @ self.k, dscores.mT @ self.q

    def split(self, x: Tensor) -> Tensor:
        """The heads of x (B, G, .., H V): (B, H, G, .., V)."""
        return x.unflatten(-1, (self.v.shape[1], -1)).movedim(-2, 1)


def joined(x: Tensor) -> Tensor:
    """The heads of x (B, H, G, .., V) side by side: (B, G, .., H V)."""
    return x.movedim(1, -2).flatten(-2)
