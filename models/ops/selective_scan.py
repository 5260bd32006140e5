"""The recurrence of Mamba, whose coefficients depend on the token (Gu & Dao, 2023, arXiv 2312.00752, eq. 2 and §3.2).

    h_t = e^{d_t A} h_{t-1} + d_t x_t B_t,   y_t = <C_t, h_t>          (A of zero-order hold, B of Euler's rule)

h has S numbers per channel, more than all other tensors together, so it is computed tile by tile. Only the state before
each tile is kept, and the explicit backward pass recomputes h; a short input keeps a_t and h. On a CPU a tile has at
most 2 N I numbers, so memory is O(N I) at any length. No exponent is positive, so any d A <= 0 is safe. With g_t =
C_t dy_t + e^{d_{t+1} A} g_{t+1} and a_t = e^{d_t A},

    dC_t = sum_i dy_t h_t,  dB_t = sum_i g_t d_t x_t,  d(d_t x_t) = <g_t, B_t>,  d(d_t A) = g_t h_{t-1} a_t

Everything is in float32 or float64.

    B batch, N length, I channels, S state size
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops.precision import autocast_disabled, upcast
from models.ops.scan import CHUNK, scan, scan_backward
from models.ops.tiles import TileBudget, in_few_kernels, spans

TILE = TileBudget(2**19, 2**28)  # numbers
KEPT = 2**23  # most numbers of h that are kept for the backward pass


def selective_scan(
    x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """x and d (B, N, I), A (I, S), B and C (B, N, S), h (B, I, S) before the first token -> y (B, N, I), the last h.

    A <= 0 and d >= 0. y has the type of x.
    """
    a, delta = upcast(a), upcast(delta)
    if state is None:
        state = a.new_zeros(len(x), *a.shape)
    with autocast_disabled(x):
        return _SelectiveScan.apply(x, delta, a, b, c, state)


def selective_step(x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """One token: x and d (B, I), B and C (B, S), h (B, I, S) -> y (B, I), h."""
    delta = upcast(delta)[..., None]
    with autocast_disabled(x):
        state = (delta * upcast(a)).exp() * state + delta * upcast(x)[..., None] * upcast(b)[:, None]
        return (state @ upcast(c)[..., None])[..., 0].to(x.dtype), state


class _SelectiveScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, states, kept = torch.empty_like(x), [], []
        keeps = any(ctx.needs_input_grad) and x.numel() * a.shape[1] <= KEPT
        for tile in _tiles(x, a):
            states.append(state)
            keep, h = _states(x, delta, a, b, state, tile)
            kept += [keep, h] if keeps else []
            y[:, tile] = (h @ upcast(c[:, tile])[..., None])[..., 0]
            state = h[:, -1].clone()
        ctx.save_for_backward(x, delta, a, b, c, torch.stack(states), *kept)
        return y, state

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor, carried: Tensor) -> tuple[Tensor, ...]:
        x, delta, a, b, c, states, *kept = ctx.saved_tensors
        dx, ddelta, db, dc = (torch.empty_like(leaf) for leaf in (x, delta, b, c))
        da = torch.zeros_like(a)
        with autocast_disabled(x):
            for number, tile in reversed(list(enumerate(_tiles(x, a)))):
                keep, h = kept[2 * number :][:2] or _states(x, delta, a, b, states[number], tile)
                grad, steps = upcast(dy[:, tile]), delta[:, tile]  # (B, T, I)
                dc[:, tile] = _weighted_sum(grad, h)
                grad = grad[..., None] * upcast(c[:, tile])[:, :, None]
                grad[:, -1] += carried
                dkeep, written, carried = scan_backward(keep, h, states[number], grad)
                values = upcast(x[:, tile])
                db[:, tile] = _weighted_sum(steps * values, written)
                dvalues = (written @ upcast(b[:, tile])[..., None])[..., 0]
                dx[:, tile] = dvalues * steps
                dexponent = dkeep.mul_(keep)
                ddelta[:, tile] = dvalues * values + torch.einsum("btis,is->bti", dexponent, a)
                da += torch.einsum("bti,btis->is", steps, dexponent)  # in this order five times as fast
        return dx, ddelta, da, db, dc, carried


def _weighted_sum(weights: Tensor, rows: Tensor) -> Tensor:
    """Weights (.., I) and rows (.., I, S) -> (.., S). A product with the vector on the left is six times as fast as
    `rows.mT @ weights` on a CPU, with the same bits."""
    return (weights[..., None, :] @ rows)[..., 0, :]


def _tiles(x: Tensor, a: Tensor) -> list[slice]:
    """The tokens of x (B, N, I) cut into tiles."""
    batch, length, _ = x.shape
    # at least `CHUNK`, because one state per tile is kept
    most = length if in_few_kernels(x) else -(-2 * length // a.shape[1])
    size = max(CHUNK, TILE.fit(x, batch * a.numel(), most))
    return spans(0, length, size)


def _states(x: Tensor, delta: Tensor, a: Tensor, b: Tensor, state: Tensor, tile: slice) -> tuple[Tensor, Tensor]:
    """e^{d A} and h (B, T, I, S) of a tile, from the state (B, I, S) before it."""
    steps = delta[:, tile]
    keep = (steps[..., None] * a).exp_()
    h = (steps * upcast(x[:, tile]))[..., None] * upcast(b[:, tile])[:, :, None]
    scan(keep, h, state, h)
    return keep, h
