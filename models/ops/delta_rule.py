"""The delta rule: a linear recurrence on a matrix state that removes before it adds, in time and memory linear in N.

    S_t = (I - e_t r_t') diag(e^{g_t}) S_{t-1} + k_t v_t',   y_t = S_t' q_t

with log decays g_t <= 0 per key channel, per head, or none. e_t = k_t, r_t = beta_t k_t and values beta_t v_t give the
delta rule (Schlag et al., 2021, arXiv 2102.11174) and its gated forms; e_t != k_t gives RWKV-7's transition (Peng et
al., 2025, arXiv 2503.14456). The sequence is cut into chunks of C tokens (Yang et al., 2024, arXiv 2406.06484, §3.2).
With b_t the sum of g from the chunk's start to t, S the state before the chunk, A^{xy}_ts = sum_c x_tc y_sc e^{b_tc -
b_sc} and L the strictly lower part of A^{re}, the rows m_t that the chunk adds along e solve a triangular system:

    (I + L) m = z - (e^b r) S,    z = v if e = k, else -tril(A^{rk}, -1) v
    y = (e^b q) S + tril(A^{qe}) m  [+ tril(A^{qk}) v],   S <- e^{b_C} S + (e^{b_C - b} e)' m  [+ (e^{b_C - b} k)' v]

Terms in brackets only if e != k. Time O(N (C (C + K + V) + K V)), with log2 C exponentials per key channel; memory
O(N (K + V + K V / C)) plus one tile. In few kernels, the states of all chunks are products of the matrices
e^{b_C} - (e^{b_C - b} e)' (I + L)^-1 e^b r, in O(N K (K + V) K / C log G) time.

    B batch, H heads, N length, K key width, V value width, G chunks of C tokens
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops import fla_kernels
from models.ops.decayed_chunks import Chunks, Decay, blocks_of_all_sizes, decayed
from models.ops.gated_linear import CHUNK
from models.ops.precision import autocast_disabled, upcast
from models.ops.scan import write
from models.ops.tiles import EVERY, TileBudget, in_few_kernels, spans, tiles

TILE = TileBudget(2**17, 2**26)  # numbers of A


def delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    remove: Tensor,
    log_decay: Tensor | None = None,
    *,
    erase: Tensor | None = None,
    initial_state: Tensor | None = None,
    final_state: bool = True,
    key_padding_mask: Tensor | None = None,
    kernel_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor | None]:
    """q, k (B, H, N, K), v (B, H, N, V) -> y (B, H, N, V), final state (B, H, K, V).

    `remove` is r and `erase` is e, (B, H, N, K); None means e = k. log_decay is (B, H, N, K or 1). A padded token, True
    in `key_padding_mask` (B, N), leaves the state unchanged. The state is zero at first unless given; it and all sums
    are float32 or float64. It may be None without `final_state`: a sequence of one chunk then needs no states.
    `kernel_dtype` is the type of q, k and v in a kernel of models/ops/fla_kernels.py; None means that of v.
    """
    dtype, kernels = v.dtype, fla_kernels.chosen(v, key_width=k.shape[-1], dtype=kernel_dtype)
    with autocast_disabled(v):
        q, k, v, r = upcast(q), upcast(k), upcast(v), upcast(remove)
        g, e = (None if x is None else upcast(x) for x in (log_decay, erase))
        if key_padding_mask is not None:
            hidden = key_padding_mask[:, None, :, None]
            k, r = k.masked_fill(hidden, 0.0), r.masked_fill(hidden, 0.0)
            g = None if g is None else g.masked_fill(hidden, 0.0)
        if initial_state is None and not final_state and kernels is None and v.shape[2] <= CHUNK:
            return _DeltaRule.apply(q, k, v, r, g, e, None)[0].to(dtype), None
        state = _empty_state(k, v) if initial_state is None else upcast(initial_state)
        if kernels is None:
            y, state = _DeltaRule.apply(q, k, v, r, g, e, state)
        else:
            y, state = kernels.delta_rule(q, k, v, r, g, k if e is None else e, state)
        return y.to(dtype), state


def beta_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_decay: Tensor | None,
    state: Tensor | None,
    *,
    key_padding_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """`delta_rule` of keys k, values beta v and removals beta k with rates beta (B, H, N, 1).

    `state` None: zero, and the final state is not read. y is float32 or float64, as beta is.
    """
    kernels = fla_kernels.chosen(v, key_width=k.shape[-1])
    if kernels is None:
        options = {"initial_state": state, "final_state": state is not None, "key_padding_mask": key_padding_mask}
        return delta_rule(q, k, beta * v, beta * k, log_decay, **options)
    if key_padding_mask is not None:
        hidden = key_padding_mask[:, None, :, None]
        beta = beta.masked_fill(hidden, 0.0)
        log_decay = None if log_decay is None else log_decay.masked_fill(hidden, 0.0)
    with autocast_disabled(v):
        before = _empty_state(k, v) if state is None else upcast(state)
        y, state = kernels.beta_delta_rule(q, k, v, beta, log_decay, before)
        return upcast(y), state


def _empty_state(k: Tensor, v: Tensor) -> Tensor:
    """Zeros (B, H, K, V) in float32 or float64."""
    return upcast(v.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1]))


def delta_rule_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    remove: Tensor,
    state: Tensor,
    log_decay: Tensor | None = None,
    *,
    erase: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One token: the arguments of `delta_rule` without N, state (B, H, K, V) -> y (B, H, V), state."""
    with autocast_disabled(v):
        q, k, r = upcast(q), upcast(k), upcast(remove)
        if log_decay is not None:
            state = state * upcast(log_decay).exp()[..., None]
        removed = r[..., None, :] @ state  # (B, H, 1, V)
        added = upcast(v)[..., None, :]
        if erase is None:
            state = state + k[..., None] * (added - removed)
        else:
            state = state + k[..., None] * added - upcast(erase)[..., None] * removed
        return (q[..., None, :] @ state)[..., 0, :].to(v.dtype), state


class _DeltaRule(torch.autograd.Function):
    """Both passes read tiles of chunks in order, backward from the last one. In a tile, products between tokens are
    computed for all chunks at once, then the states one chunk after another, then outputs or gradients.

    Backward recomputes each tile from the states before its chunks; a single chunk without a first state has none. As
    in models/ops/gated_linear.py, no exponent is positive, and inside a chunk dL/db_t = q_t dq_t + r_t dr_t - k_t dk_t
    - e_t de_t.
    """

    @staticmethod
    def forward(
        ctx, q: Tensor, k: Tensor, v: Tensor, r: Tensor, g: Tensor | None, e: Tensor | None, initial: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        chunks, states = _CutTokens(q, k, v, r, g, e), None
        if initial is not None:
            states = initial.new_empty(*initial.shape[:2], chunks.count + 1, *initial.shape[2:])
            states[:, :, 0] = initial
        y = torch.empty_like(chunks.parts[2])
        for index, after in chunks.indices():
            tile = chunks.tile(index, with_states=states is not None)
            if states is not None:
                states[after] = tile.advance(states[index][:, :, 0])
            y[index] = tile.read(None if states is None else states[index])
        ctx.save_for_backward(q, k, v, r, g, e, states)
        return chunks.join(y), None if states is None else states[:, :, -1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor, grad_state: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, v, r, g, e, states = ctx.saved_tensors
        with autocast_disabled(q):
            chunks = _CutTokens(q, k, v, r, g, e)
            grad, dstate = chunks.cut(grad), None if states is None else grad_state.clone()
            gradients = [None if x is None else torch.empty_like(x) for x in chunks.parts]
            for index, after in reversed(chunks.indices()):
                tile, rows = chunks.tile(index, with_states=states is not None), index[0]
                if states is None:
                    parts, _ = tile.backward(None, None, grad[index], None)
                else:
                    parts, dstate[rows] = tile.backward(states[index], states[after], grad[index], dstate[rows])
                if len(chunks.indices()) == 1:
                    gradients = parts
                    break
                for gradient, part in zip(gradients, parts, strict=True):
                    if gradient is not None:
                        gradient[index] = part
            return *(None if x is None else chunks.join(x) for x in gradients), dstate


Index = tuple[slice, slice, slice]


class _CutTokens(Chunks):
    """The tokens of one call cut into chunks: `parts` are q, k, v, r, g and e, (B, H, G, C, ..) or None."""

    def __init__(self, *parts: Tensor | None):
        super().__init__(parts[0].shape[2], CHUNK)
        self.parts = [None if x is None else self.cut(x) for x in parts]
        self.lower = blocks_of_all_sizes(self.size, parts[0].device, parts[0].dtype)[0][0, -1]

    def indices(self) -> list[tuple[Index, Index]]:
        """The chunks of each tile, which index the states before them, too, and the index of the states after them."""
        q = self.parts[0]
        batch, heads = q.shape[:2]
        chunk = heads * self.size**2
        rows = TILE.fit(q, chunk, batch)
        chunks = TILE.fit(q, rows * chunk, self.count)
        return [
            ((*axes, span), (*axes, slice(span.start + 1, span.stop + 1)))
            for _, (*axes, span) in tiles(spans(0, batch, rows), EVERY, spans(0, self.count, chunks))
        ]

    def tile(self, index: Index, *, with_states: bool = True) -> "_Tile":
        return _Tile(*(None if x is None else x[index] for x in self.parts), self.lower, with_states=with_states)


class _Tile:
    """Some chunks computed together: q, k, r, e (.., C, K), v (.., C, V), g (.., C, K or 1).

    Without `with_states` it computes only products between tokens, for chunks whose states are zero (None below).
    """

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        r: Tensor,
        g: Tensor | None,
        e: Tensor | None,
        lower: Tensor,
        *,
        with_states: bool = True,
    ):
        self.q, self.k, self.v, self.r, self.e, self.lower = q, k, v, r, k if e is None else e, lower
        self.both = e is not None  # whether k and e differ
        self.decay = Decay(g, lower)
        self.inverse = unit_inverse(self.decay.products(r, self.e))
        self.between = strictly(self.decay.products(r, k)) if self.both else None  # tril(A^{rk}, -1)
        target = -(self.between @ v) if self.both else v
        self.z = self.inverse @ target
        if with_states:
            start = self.decay.from_start
            self.last = None if start is None else start[..., -1, :, None]  # e^{b_C}, (.., K or 1, 1)
            self.reading_q = decayed(q, start)
            self.writing_e = decayed(self.e, self.decay.to_end)
            self.writing_k = decayed(k, self.decay.to_end) if self.both else None
            self.w = self.inverse @ decayed(r, start)  # m = z - w S

    def advance(self, state: Tensor) -> Tensor:
        """The states after the chunks from the one before them (.., K, V)."""
        added = self.writing_k.mT @ self.v if self.both else None
        if in_few_kernels(state):
            written = self.writing_e.mT @ self.z
            return doubled_states(self.passed_on(), written if added is None else written + added, state)
        states = []
        for c in range(self.q.shape[2]):
            m = self.z[:, :, c] - self.w[:, :, c] @ state
            state = decayed(state, None if self.last is None else self.last[:, :, c])
            state = state + self.writing_e[:, :, c].mT @ m
            if added is not None:
                state = state + added[:, :, c]
            states.append(state)
        return torch.stack(states, 2)

    def passed_on(self) -> Tensor:
        """The matrices that the chunks multiply a state by, (.., K, K)."""
        moved = self.writing_e.mT @ -self.w
        moved.diagonal(dim1=-2, dim2=-1).add_(1.0 if self.last is None else self.last[..., 0])
        return moved

    def read(self, before: Tensor | None) -> Tensor:
        """y from the states before the chunks (.., K, V)."""
        y = self.decay.products(self.q, self.e) @ self.added(before)
        if before is not None:
            y = self.reading_q @ before + y
        return y + self.decay.products(self.q, self.k) @ self.v if self.both else y

    def added(self, before: Tensor | None) -> Tensor:
        """m from the states before the chunks (.., K, V)."""
        return self.z if before is None else self.z - self.w @ before

    def backward(
        self, before: Tensor | None, after: Tensor | None, grad: Tensor, dstate: Tensor | None
    ) -> tuple[list[Tensor | None], Tensor | None]:
        """Gradients of q, k, v, r, g and e, and of the first state (.., K, V), from those of y and of the last state.

        `before` and `after` are the states around the chunks (.., K, V).
        """
        dm = self.decay.products(self.q, self.e).mT @ grad
        if before is not None:
            dread = self.reading_q.mT @ grad
            if in_few_kernels(grad):
                dbefore = doubled_states(self.passed_on().mT.flip(2), (dread - self.w.mT @ dm).flip(2), dstate).flip(2)
                dafter = torch.cat([dbefore[:, :, 1:], dstate[:, :, None]], 2)
                dm, dstate = dm + self.writing_e @ dafter, dbefore[:, :, 0]
            else:
                dafter = torch.empty_like(after)
                for c in reversed(range(self.q.shape[2])):
                    dafter[:, :, c] = dstate
                    dm[:, :, c] += self.writing_e[:, :, c] @ dstate
                    dstate = decayed(dstate, None if self.last is None else self.last[:, :, c])
                    dstate = dstate + dread[:, :, c] - self.w[:, :, c].mT @ dm[:, :, c]
        m = self.added(before)
        dtarget = self.inverse.mT @ dm
        dq, de = self.decay.products_backward(grad @ m.mT, self.q, self.e)
        dr, more = self.decay.products_backward(strictly(dtarget @ -m.mT), self.r, self.e)
        de += more
        if before is not None:
            dq += decayed(grad @ before.mT, self.decay.from_start)
            dr -= decayed(dtarget @ before.mT, self.decay.from_start)
            de += decayed(m @ dafter.mT, self.decay.to_end)
        dk, dv = de, dtarget
        if self.both:
            dv = self.decay.products(self.q, self.k).mT @ grad - self.between.mT @ dtarget
            more, dk = self.decay.products_backward(grad @ self.v.mT, self.q, self.k)
            dq += more
            more_r, more_k = self.decay.products_backward(strictly(dtarget @ -self.v.mT), self.r, self.k)
            dr += more_r
            if before is not None:
                dv = dv + self.writing_k @ dafter
                more_k = more_k + decayed(self.v @ dafter.mT, self.decay.to_end)
            dk += more_k
        dg = None
        if self.decay.from_start is not None:
            dsums = self.q * dq + self.r * dr - self.k * dk
            if self.both:
                dsums -= self.e * de
            dg = self.decay.of_sums(dsums, None if after is None else (after * dafter).sum(-1), self.lower)
        return [dq, dk, dv, dr, dg, de if self.both else None], dstate


def doubled_states(move: Tensor, added: Tensor, first: Tensor) -> Tensor:
    """S_c = move_c S_(c-1) + added_c of (B, H, G, K, K) and (B, H, G, K, V) from `first` (B, H, K, V).

    Each of log2 G pairs of kernels doubles the number of chunks that a chunk's matrices cover. As in
    models/ops/scan.py, two buffers take turns, and zeros before the chunks, with `first` as the last of them, save a
    kernel for the others.
    """
    count, batch = move.shape[2], move.shape[:2]
    pad = 1 << count.bit_length() - 1
    # chunks first: products read and write slices without a copy
    moves, sums = (first.new_zeros(2, pad + count, *batch, *x.shape[-2:]) for x in (move, added))
    moves[0, pad:], sums[0, pad:], sums[:, pad - 1] = move.movedim(2, 0), added.movedim(2, 0), first
    now, reach = 0, 1
    while reach <= count:
        factor = moves[now, pad:].flatten(0, 2)
        before = [x[now, pad - reach : pad - reach + count].flatten(0, 2) for x in (sums, moves)]
        then = [x[1 - now, pad:].flatten(0, 2) for x in (sums, moves)]
        write(then[0], torch.baddbmm, sums[now, pad:].flatten(0, 2), factor, before[0])
        if 2 * reach <= count:
            write(then[1], torch.bmm, factor, before[1])
        now, reach = 1 - now, 2 * reach
    return sums[now, pad:].movedim(0, 2)


def strictly(products: Tensor) -> Tensor:
    """Products of (.., C, C) without those of a token with itself, in place."""
    products.diagonal(dim1=-2, dim2=-1).zero_()
    return products


def unit_inverse(products: Tensor) -> Tensor:
    """(I + L)^-1 with the strictly lower part L of `products` (.., C, C)."""
    one = blocks_of_all_sizes(products.shape[-1], products.device, products.dtype)[1][0]
    return torch.linalg.solve_triangular(products, one, upper=False, unitriangular=True)
