"""A running softmax: each latent averages the values so far with its own weights, and each query mixes the latents.

    o_t = sum_l p_tl / alpha_tl sum_{s<=t} e^{theta_sl} v_s,   alpha_tl = sum_{s<=t} e^{theta_sl}

The core of causal Latte (Dolga et al., 2024, arXiv 2402.17512, eq. 10). Tokens are cut into chunks: earlier tokens act
through a state of L E numbers, tokens of the same chunk through products of size C x C. Time O(N L E + N C (L + E)).
Only the inputs and the state before each tile are kept, in the stable form before each chunk; backward recomputes the
rest.

    B batch, H heads, N length, L latents, E value width, C tokens per chunk, K chunks per tile
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops import fla_kernels, native
from models.ops import running_softmax_stable as stable
from models.ops.precision import autocast_disabled, upcast
from models.ops.tiles import TileBudget, in_few_kernels, spans

CHUNK = 32  # a power of two
TILE = TileBudget(2**18, 2**26)  # numbers in one tensor; of the stable form, up to 14 times as many
SAFE_RISE = 40.0  # exponents then round to about 1e-6, 2^-25 of their size, and e^40 is well within float32
HIDDEN = -1e30  # logit of a hidden key; finite, so that an all-hidden tile does not compute inf - inf

Carry = tuple[Tensor, Tensor, Tensor]


def running_softmax(weights: Tensor, logits: Tensor, v: Tensor, *, key_padding_mask: Tensor | None = None) -> Tensor:
    """sum_l weights_tl sum_{s<=t} softmax_{s<=t}(logits_sl) v_s of (B, H, N, L), (B, H, N, L), (B, H, N, E).

    `weights` are arbitrary numbers. `key_padding_mask` (B, N) is True at hidden keys; queries before the first visible
    key get zeros. Sums are in float32, or in float64 if v is. Returns (B, H, N, E) in the type of v, a view of
    (B, N, H, E) memory. Raises ValueError for mismatched shapes. There is a compiled form (`models.ops.native`).
    """
    if weights.shape != logits.shape or logits.shape[:3] != v.shape[:3]:
        shapes = ", ".join(str(tuple(x.shape)) for x in (weights, logits, v))
        raise ValueError(f"weights, logits and values are (B, H, N, L), (B, H, N, L) and (B, H, N, E), not {shapes}")
    kernels = fla_kernels.chosen(v)
    if kernels is not None:
        return kernels.running_softmax(weights, logits, v, key_padding_mask).to(v.dtype)
    return _RunningSoftmax.apply(weights, logits, v, key_padding_mask)


def empty_running_softmax(batch: int, heads: int, latents: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """The state before the first token: z (B, H, L), log sums of exponentials, and means M (B, H, L, E).

    z is float64, because in float32 it stops growing after many large logits; M has the type of `like`, at least
    float32.
    """
    log_sum = like.new_full((batch, heads, latents), HIDDEN, dtype=torch.float64)
    return log_sum, upcast(like.new_zeros(batch, heads, latents, width))


def running_softmax_step(
    weights: Tensor, logits: Tensor, v: Tensor, state: tuple[Tensor, Tensor]
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """One token, weights and logits (B, H, L), v (B, H, E) -> (B, H, E), equal to the same row of `running_softmax`.

    M_t = g M_{t-1} + (1 - g) v_t with g = e^{z_{t-1} - z_t}: both coefficients are in [0, 1] and their sum is 1.
    """
    log_sum, mean = state
    with autocast_disabled(v):
        keep = torch.sigmoid(log_sum - logits).to(mean.dtype)[..., None]  # (B, H, L, 1)
        mean = torch.lerp(v.to(mean.dtype)[:, :, None].expand_as(mean), mean, keep)
        log_sum = torch.logaddexp(log_sum, logits.to(log_sum.dtype))
        o = (weights.to(mean.dtype)[:, :, None] @ mean)[:, :, 0]
    return o.to(v.dtype), (log_sum, mean)


def running_softmax_chunk(
    weights: Tensor, logits: Tensor, v: Tensor, state: tuple[Tensor, Tensor]
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """n tokens, weights and logits (B, H, n, L), v (B, H, n, E) -> (B, H, n, E), equal to n steps, and the state."""
    if v.shape[2] == 1:
        y, state = running_softmax_step(*(x[:, :, 0] for x in (weights, logits, v)), state)
        return y[:, :, None], state
    with autocast_disabled(v):
        all_logits, values = with_state(logits, v, state)
        none = weights.new_zeros(*weights.shape[:2], weights.shape[3], weights.shape[3])
        # not by fla's kernel, whose sums of log decays lose all digits behind the hidden logits of the state
        y = _RunningSoftmax.apply(torch.cat([none, weights], 2), all_logits, values, None)[:, :, weights.shape[3] :]
        return y.to(v.dtype), advance(state, logits, v)


def with_state(logits: Tensor, v: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The state as L tokens before n others, one per latent: logits (B, H, L + n, L), values (B, H, L + n, E).

    The logits of each latent are relative to the sum before the chunk, so they do not require float64.
    """
    log_sum, mean = state
    empty = log_sum <= HIDDEN
    start = torch.where(empty, HIDDEN, 0.0).to(mean.dtype)
    state_logits = torch.diag_embed(start - HIDDEN) + HIDDEN  # (B, H, L, L)
    logits = (logits - log_sum.masked_fill(empty, 0.0)[:, :, None]).to(mean.dtype)
    return torch.cat([state_logits, logits], 2), torch.cat([mean, v.to(mean.dtype)], 2)


def advance(state: tuple[Tensor, Tensor], logits: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """The state after n more tokens, logits (B, H, n, L) and v (B, H, n, E)."""
    log_sum, mean = state
    total = torch.logaddexp(log_sum, logits.to(log_sum.dtype).logsumexp(2))
    shares = (logits - total[:, :, None]).exp().to(mean.dtype)  # (B, H, n, L)
    return total, (log_sum - total).exp().to(mean.dtype)[..., None] * mean + shares.mT @ v.to(mean.dtype)


class _RunningSoftmax(torch.autograd.Function):
    """A tile has as many chunks as the budget allows. Its exponentials are relative to one M per latent, the largest
    logit up to its end:

        X = e^{theta - M},   alpha_t = sum_{s<=t} X_s,   gamma = p / alpha,   S = sum over the chunks before of X' V
        O = A V + gamma S,   A = tril(gamma X')
        dA = tril(dO V'),   dgamma = dA X + dO S',   dp = dgamma / alpha,   dalpha = -gamma dp
        dS = sum over the chunks after of gamma' dO,   dV = A' dO + X dS
        dtheta_s = X_s (dA' gamma + V dS' + sum_{t>=s} dalpha_t)_s

    M is a constant for gradients, because O does not depend on it. alpha >= e^-j where j is the rise of a latent's
    largest logit inside the tile; tiles with j above `SAFE_RISE` go through `running_softmax_stable`, which has no such
    bound.
    """

    @staticmethod
    def forward(ctx, p: Tensor, theta: Tensor, v: Tensor, padding: Tensor | None):
        ctx.kernels = native.kernels(p, theta, v)
        if ctx.kernels is not None:
            ctx.save_for_backward(p, theta, v, padding)
            return ctx.kernels.running_softmax_forward(p, theta, v, padding)
        carries, ctx.safe = [], []
        with autocast_disabled(v):
            out = v.new_empty(v.transpose(1, 2).shape).transpose(1, 2)
            for rows in _rows(theta, v):
                carry = _nothing(theta[rows], v)
                for tokens in _tokens(theta[rows], v):
                    tile = _ChunkedInputs.cut(p, theta, v, padding, rows, tokens)
                    done = _forward(tile.p, tile.theta, tile.v, carry)
                    ctx.safe.append(done is not None)
                    o, after, kept = (*done, carry) if done else stable.forward(tile.p, tile.theta, tile.v, carry)
                    carries += kept
                    if tokens.stop < theta.shape[2]:
                        carry = tuple(x.clone() for x in after)  # without a view that keeps the states of all chunks
                    _paste(out[rows, :, tokens], o)
        ctx.save_for_backward(p, theta, v, padding, *carries)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, do: Tensor) -> tuple[Tensor | None, ...]:
        p, theta, v, padding, *carries = ctx.saved_tensors
        if ctx.kernels is not None:
            return *ctx.kernels.running_softmax_backward(do, p, theta, v, padding), None
        safe = list(ctx.safe)
        dp, dtheta, dv = torch.empty_like(p), torch.empty_like(theta), torch.empty_like(v)
        with autocast_disabled(v):
            for rows in reversed(_rows(theta, v)):
                _, *dcarry = _nothing(theta[rows], v)
                for tokens in reversed(_tokens(theta[rows], v)):
                    tile = _ChunkedInputs.cut(p, theta, v, padding, rows, tokens)
                    carry, carries = tuple(carries[-3:]), carries[:-3]
                    function = _backward if safe.pop() else stable.backward
                    do_tile = _cut(do[rows, :, tokens].to(tile.v.dtype), tile.v.shape[-2]).contiguous()
                    *grads, dtotal, dstate = function(tile.p, tile.theta, tile.v, carry, do_tile, *dcarry)
                    dcarry = dtotal, dstate
                    for target, grad in zip((dp, dtheta, dv), grads, strict=True):
                        _paste(target[rows, :, tokens], grad)
            if padding is not None:
                # before the first visible key, hidden keys have equal weights; their values are 0, and so is dtheta
                dv.masked_fill_(padding[:, None, :, None], 0.0)
        return dp, dtheta, dv, None


@dataclass(frozen=True)
class _ChunkedInputs:
    """A few chunks of the inputs; values of hidden keys are zero, and their logits are `HIDDEN`."""

    p: Tensor  # (K, B, H, C, L)
    theta: Tensor  # (K, B, H, C, L)
    v: Tensor  # (K, B, H, C, E), contiguous

    @classmethod
    def cut(
        cls, p: Tensor, theta: Tensor, v: Tensor, padding: Tensor | None, rows: slice, tokens: slice
    ) -> "_ChunkedInputs":
        chunk = min(CHUNK, 1 << (p.shape[2] - 1).bit_length())
        wide = torch.promote_types(v.dtype, torch.float32)
        p, theta, v = (x[rows, :, tokens].to(wide) for x in (p, theta, v))
        if padding is not None:
            hidden = padding[rows, None, tokens, None]
            theta, v = theta.masked_fill(hidden, HIDDEN), v.masked_fill(hidden, 0.0)
        return cls(_cut(p, chunk), _cut(theta, chunk, HIDDEN), _cut(v, chunk).contiguous())


def _forward(p: Tensor, theta: Tensor, v: Tensor, carry: Carry) -> tuple[Tensor, Carry] | None:
    """As `running_softmax_stable.forward`, or None if logits rise too far or if the CPU would wait for the answer."""
    if in_few_kernels(theta):
        return None
    top = _top(theta, carry[0])
    rise = top - torch.maximum(carry[0], theta[0, :, :, 0])
    if not rise.max() <= SAFE_RISE:
        return None
    f = _factors(theta, v, carry, top)
    gamma = torch.div(p, f.alpha, out=f.alpha).flatten(0, 2)
    o = gamma.bmm(f.state[:-1].flatten(0, 2))
    o.baddbmm_(gamma.bmm(f.x.mT).tril_(), v.flatten(0, 2))
    return o.view_as(v), (top, f.total[-1], f.state[-1])


def _backward(
    p: Tensor, theta: Tensor, v: Tensor, carry: Carry, do: Tensor, dtotal: Tensor, dstate: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """As `running_softmax_stable.backward`, for tiles in which `_forward` is not None."""
    f = _factors(theta, v, carry, _top(theta, carry[0]))
    shape = f.alpha.shape
    gamma = torch.div(p, f.alpha, out=torch.empty_like(f.alpha)).flatten(0, 2)
    v, do = v.flatten(0, 2), do.flatten(0, 2)

    da = do.bmm(v.mT).tril_()
    dgamma = do.bmm(f.state[:-1].flatten(0, 2).mT).baddbmm_(da, f.x)
    dp = dgamma.div_(f.alpha.flatten(0, 2))
    dalpha = torch.mul(gamma, dp).neg_()
    # row k + 1: what chunk k passes to later chunks
    dtotals = _sums_after(dalpha.sum(-2).view(shape[0], *dtotal.shape), dtotal)
    dstates = _sums_after(gamma.mT.bmm(do).view(shape[0], *dstate.shape), dstate)
    after = dstates[1:].flatten(0, 2)

    dv = f.x.bmm(after).baddbmm_(gamma.bmm(f.x.mT).tril_().mT, do)
    dtheta = torch.baddbmm(dtotals[1:].flatten(0, 2)[:, None], _triangle(dalpha).mT, dalpha)
    dtheta.baddbmm_(da.mT, gamma).baddbmm_(v, after.mT).mul_(f.x)
    dp, dtheta, dv = (x.view(*shape[:-1], -1) for x in (dp, dtheta, dv))
    return dp, dtheta, dv, dtotals[0] * f.shrink, dstates[0] * f.shrink[..., None]


@dataclass(frozen=True)
class _Factors:
    """Intermediate results of a tile that both passes use."""

    x: Tensor  # e^{theta - M}, all chunks in one dimension (K B H, C, L)
    alpha: Tensor  # (K, B, H, C, L)
    total: Tensor  # sum of x before each chunk and after the last (K + 1, B, H, L)
    state: Tensor  # the same sum times values (K + 1, B, H, L, E)
    shrink: Tensor  # e^{M before the tile - M} (B, H, L)


def _factors(theta: Tensor, v: Tensor, carry: Carry, top: Tensor) -> _Factors:
    largest, total, state = carry
    shrink = (largest - top).exp_()
    x = torch.sub(theta, top[:, :, None], out=v.new_empty(theta.shape)).exp_().flatten(0, 2)
    totals = _sums_before(x.sum(-2).view(-1, *total.shape), total * shrink)
    states = _sums_before(x.mT.bmm(v.flatten(0, 2)).view(-1, *state.shape), state * shrink[..., None])
    alpha = torch.baddbmm(totals[:-1].flatten(0, 2)[:, None], _triangle(x), x).view(theta.shape)
    return _Factors(x, alpha, totals, states, shrink)


def _top(theta: Tensor, largest: Tensor) -> Tensor:
    """Largest logits after a tile theta (K, B, H, C, L), from those before it: (B, H, L) -> (B, H, L)."""
    return torch.maximum(largest, theta.amax(-2).amax(0))


def _triangle(x: Tensor) -> Tensor:
    """Ones on and below the diagonal, (n, C, C) for x (n, C, L)."""
    return x.new_ones(x.shape[1], x.shape[1]).tril_().expand(len(x), -1, -1)


def _sums_before(x: Tensor, start: Tensor) -> Tensor:
    """start + sum of x (K, ..) before each chunk, and over all chunks: (K + 1, ..)."""
    return _cumulate(torch.cat([start[None], x]))


def _sums_after(x: Tensor, start: Tensor) -> Tensor:
    """start + sum of x (K, ..) from each chunk on, and start alone: (K + 1, ..)."""
    return _cumulate(torch.cat([x, start[None]]), reverse=True)


def _cumulate(x: Tensor, *, reverse: bool = False) -> Tensor:
    """Running sums over the first dimension, from its start or from its end, in place."""
    for before, now in pairwise(x.unbind(0)[:: -1 if reverse else 1]):
        now.add_(before)
    return x


def _nothing(theta: Tensor, v: Tensor) -> Carry:
    """The carry before the first token of theta (B, H, N, L)."""
    batch, heads, _, latents = theta.shape
    dtype = torch.promote_types(v.dtype, torch.float32)
    none = v.new_zeros(batch, heads, latents, v.shape[-1], dtype=dtype)
    return none.new_full((batch, heads, latents), HIDDEN), none[..., 0], none


def _rows(theta: Tensor, v: Tensor) -> list[slice]:
    """Examples computed together: as many as leave room for 16 chunks per tile, so that few states are kept."""
    step = _chunks(theta, v, min(16, -(-theta.shape[2] // CHUNK)))
    return spans(0, theta.shape[0], step)


def _tokens(theta: Tensor, v: Tensor) -> list[slice]:
    """Tokens of each tile for the examples in theta."""
    step = _chunks(theta, v, theta.shape[0]) * CHUNK
    return spans(0, theta.shape[2], step)


def _chunks(theta: Tensor, v: Tensor, count: int) -> int:
    """How often `count` chunks, over all heads of one example, fit a tile."""
    return TILE.fit(v, count * theta.shape[1] * CHUNK * max(theta.shape[-1], v.shape[-1], CHUNK))


def _cut(x: Tensor, chunk: int, fill: float = 0.0) -> Tensor:
    """(B, H, N, F) -> (K, B, H, C, F); the last chunk is filled up."""
    missing = -x.shape[2] % chunk
    if missing:
        x = F.pad(x, (0, 0, 0, missing), value=fill)
    return x.unflatten(2, (-1, chunk)).permute(2, 0, 1, 3, 4)


def _paste(target: Tensor, x: Tensor) -> None:
    """Write (K, B, H, C, F) to (B, H, N, F), without the filler of `_cut`."""
    length, chunk = target.shape[2], x.shape[-2]
    full = length // chunk
    target[:, :, : full * chunk].unflatten(2, (full, chunk)).copy_(x[:full].permute(1, 2, 0, 3, 4))
    if length % chunk:
        target[:, :, full * chunk :] = x[full, :, :, : length % chunk]
