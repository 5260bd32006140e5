"""Diagonal linear recurrences along a sequence, in time and memory linear in the length.

    h_t = a_t h_{t-1} + b_t                                      (elementwise, real or complex)

The sequence is cut into chunks that are computed in parallel, one position of all chunks at a time: first each chunk's
result from a zero state and the product of its a, then the states before the chunks (the same recurrence over chunks),
then h. Where launches cost more than arithmetic, all tokens double the span of their results log2 N times instead
(Hillis & Steele, 1986). Nothing is divided by a product of a, so a = 0 is no special case. The backward pass is
explicit, because autograd would keep every step of the loop; it is the recurrence from the right:

    g_t = dh_t + conj(a_{t+1}) g_{t+1},   db_t = g_t,   da_t = g_t conj(h_{t-1})

    P examples, N length, C chunks of T steps
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops.tiles import in_few_kernels

CHUNK = 32  # T; the time is the same from 16 to 64 (measured)


def diagonal_scan(
    a: Tensor, b: Tensor, initial: Tensor | None = None, *, dim: int = 1, reverse: bool = False
) -> Tensor:
    """h of h_t = a_t h_{t-1} + b_t along `dim`, or of h_t = a_t h_{t+1} + b_t with `reverse`.

    a and b have at least two dimensions and are broadcast against each other. `initial`, of b's shape without `dim`, is
    the state before the first step; None means zero. The result is float32, float64 or complex, also under autocast.
    """
    dtype = torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.float32)
    a, b = (x.movedim(dim, 1) for x in torch.broadcast_tensors(a.to(dtype), b.to(dtype)))
    if initial is None:
        initial = torch.zeros_like(b[:, 0])
    return _Scan.apply(a, b, initial.to(dtype), reverse).movedim(1, dim)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a: Tensor, b: Tensor, initial: Tensor, reverse: bool) -> Tensor:
        h = torch.empty_like(b, memory_format=torch.contiguous_format)
        scan(a, b, initial, h, reverse=reverse)
        ctx.reverse = reverse
        ctx.save_for_backward(a, h, initial)
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        return *scan_backward(*ctx.saved_tensors, grad, reverse=ctx.reverse), None


def scan(a: Tensor, b: Tensor, state: Tensor, out: Tensor, *, reverse: bool = False) -> None:
    """Write h for a and b (P, N, ..) from `state` (P, ..) to `out`, outside autograd; from the right with `reverse`.

    a may have size 1 in dimensions in which b is larger.
    """
    if in_few_kernels(b):
        out.copy_(doubled(a, b, state, reverse=reverse))
        return
    length = b.shape[1]
    chunks = length // CHUNK
    if chunks > 1:
        rest = length - chunks * CHUNK
        inner = slice(rest, None) if reverse else slice(0, length - rest)
        outer = slice(0, rest) if reverse else slice(length - rest, None)
        inside = [x[:, inner].unflatten(1, (chunks, CHUNK)) for x in (a, b, out)]  # (P, C, T, ..)
        states = b.new_empty(b.shape[0], chunks + 1, *b.shape[2:])  # at the borders of chunks
        first, last = (-1, 0) if reverse else (0, -1)
        states[:, first] = state
        scan(*_summaries(*inside[:2], reverse), state, states[:, :-1] if reverse else states[:, 1:], reverse=reverse)
        _loop(*inside, states[:, 1:] if reverse else states[:, :-1], reverse)
        state = states[:, last]
        a, b, out = (x[:, outer] for x in (a, b, out))
    _loop(a[:, None], b[:, None], out[:, None], state[:, None], reverse)


def scan_backward(
    a: Tensor, h: Tensor, state: Tensor, grad: Tensor, *, reverse: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of a, b and `state` from the gradient of h = `scan`(a, b, state); a, b and h have one shape."""
    if h.is_complex():
        a, h, state = (x.conj().resolve_conj() for x in (a, h, state))
    # each step but the last passes on what each step but the first receives
    before, after, first, last = slice(0, -1), slice(1, None), 0, -1
    if reverse:
        before, after, first, last = after, before, last, first
    g, da = torch.empty_like(h), torch.empty_like(h)
    g[:, last] = grad[:, last]
    scan(a[:, after], grad[:, before], g[:, last], g[:, before], reverse=not reverse)
    if in_few_kernels(h):
        da = torch.cat([g[:, after] * h[:, before], (g[:, first] * state).unsqueeze(1)][:: 1 if reverse else -1], 1)
    else:
        torch.mul(g[:, after], h[:, before], out=da[:, after])
        torch.mul(g[:, first], state, out=da[:, first])
    return da, g, a[:, first] * g[:, first]


def doubled(a: Tensor, b: Tensor, state: Tensor, *, dim: int = 1, reverse: bool = False) -> Tensor:
    """h as for `scan`, along `dim`, not the last, in some 3 log2 N kernels: a and b are parts of one tensor, of which a
    step multiplies both by a."""
    dim, length, reach = dim % b.ndim - b.ndim, b.shape[dim], 1
    whole = a.shape[-1] == b.shape[-1]
    axis = 0 if whole else -1
    rest = 1 if whole else b.shape[-1]
    both = torch.stack([a.expand_as(b), b]) if whole else torch.cat([a.expand(*b.shape[:-1], 1), b], -1)
    while reach < length:
        first, later, before = _shift(both, reach, dim, reverse)
        product = later.narrow(axis, 0, 1) * before
        product.narrow(axis, 1, rest).add_(later.narrow(axis, 1, rest))
        both = torch.cat([first, product][:: -1 if reverse else 1], dim)
        reach *= 2
    a, b = both.split([1, rest], axis)
    h = torch.addcmul(b, a, state.unsqueeze(dim))
    return h[0] if whole else h


def _shift(x: Tensor, reach: int, dim: int, reverse: bool) -> tuple[Tensor, Tensor, Tensor]:
    """x at the first `reach` tokens, at all later ones, and `reach` tokens before those."""
    rest = x.shape[dim] - reach
    if reverse:
        return x.narrow(dim, rest, reach), x.narrow(dim, 0, rest), x.narrow(dim, reach, rest)
    return x.narrow(dim, 0, reach), x.narrow(dim, reach, rest), x.narrow(dim, 0, rest)


def _loop(a: Tensor, b: Tensor, out: Tensor, state: Tensor, reverse: bool) -> None:
    """The recurrence in all chunks at once: a, b, out (P, C, T, ..), state before them (P, C, ..)."""
    for t in _order(b.shape[2], reverse):
        state = torch.addcmul(b[:, :, t], a[:, :, t], state, out=out[:, :, t])


def _summaries(a: Tensor, b: Tensor, reverse: bool) -> tuple[Tensor, Tensor]:
    """For each chunk of a and b (P, C, T, ..): the product of a, and the result from a zero state; (P, C, ..) each."""
    first, *others = _order(CHUNK, reverse)
    product, end = (x[:, :, first].clone(memory_format=torch.contiguous_format) for x in (a, b))
    for t in others:
        torch.addcmul(b[:, :, t], a[:, :, t], end, out=end)
        product *= a[:, :, t]
    return product, end


def _order(steps: int, reverse: bool) -> range:
    return range(steps - 1, -1, -1) if reverse else range(steps)
