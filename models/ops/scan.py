"""Diagonal linear recurrences along a sequence, in time and memory linear in the length.

    h_t = a_t h_{t-1} + b_t                                      (elementwise, real or complex)

The sequence is cut into chunks that are computed in parallel, one position of all chunks at a time: first each chunk's
result from a zero state and the product of its a, then the states before the chunks (the same recurrence over chunks),
then h. Where launches cost more than arithmetic, pairs of tokens double the span of their results log2 N times instead
(Hillis & Steele, 1986). Nothing is divided by a product of a, so a = 0 is no special case. The backward pass is
explicit, because autograd would keep every step of the loop; it is the recurrence from the right:

    g_t = dh_t + conj(a_{t+1}) g_{t+1},   db_t = g_t,   da_t = g_t conj(h_{t-1})

    P examples, N length, C chunks of T steps
"""

from collections.abc import Callable

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
    if b.shape[1] == 1:
        return torch.addcmul(b, a, initial.to(dtype)[:, None]).movedim(1, dim)
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
        return _doubled(a, b, state, out, reverse)
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
    write(da[:, after], torch.mul, g[:, after], h[:, before])
    write(da[:, first], torch.mul, g[:, first], state)
    return da, g, a[:, first] * g[:, first]


def _doubled(a: Tensor, b: Tensor, state: Tensor, out: Tensor, reverse: bool) -> None:
    """As `scan`, in some 6 + log2 N kernels: pairs of tokens double the span of their results, and then each pair's
    second token has its h, from which the first ones follow.

    Two buffers (2, 3, P, pad + K, ..) of a, zero and b for K pairs take turns. A row of zeros lets one kernel compute
    a_t a_s + 0 and a_t b_s + b_t; zeros before the pairs, and the state as the last of these, save the first pairs a
    kernel of their own.
    """
    length, a = b.shape[1], a.expand_as(b)
    count, firsts = length // 2, -(-length // 2)
    pad = 1 << max(0, count.bit_length() - 1)
    total = pad + count
    buffers = b.new_zeros(2, 3, b.shape[0], total, *b.shape[2:])
    now, then = buffers.unbind()

    def part(x: Tensor, start: int, stop: int, length: int = total) -> Tensor:
        """Some tokens of x (.., P, length, ..), in the order of the recurrence."""
        return x.narrow(x.ndim - b.ndim + 1, length - stop if reverse else start, stop - start)

    def every_other(x: Tensor, start: int) -> Tensor:
        return x[:, (length - 1 - start) % 2 if reverse else start :: 2]

    part(buffers[:, 2], pad - 1, pad).copy_(state.unsqueeze(1))
    first_a, first_b, first_out = (every_other(x, 0) for x in (a, b, out))
    second_a, second_b, second_out = (every_other(x, 1) for x in (a, b, out))
    write(part(now[0], pad, total), torch.mul, second_a, part(first_a, 0, count, firsts))
    write(part(now[2], pad, total), torch.addcmul, second_b, second_a, part(first_b, 0, count, firsts))
    reach = 1
    while reach <= count:
        added, factor = part(now[1:], pad, total), part(now[:1], pad, total)
        write(part(then[::2], pad, total), torch.addcmul, added, factor, part(now[::2], pad - reach, total - reach))
        now, then, reach = then, now, 2 * reach
    second_out.copy_(part(now[2], pad, total))
    write(first_out, torch.addcmul, first_b, first_a, part(now[2], pad - 1, pad - 1 + firsts))


def write(out: Tensor, function: Callable[..., Tensor], *inputs: Tensor) -> None:
    """out = function(*inputs); torch.compile knows no `out` that is a part of a tensor."""
    if torch.compiler.is_compiling():
        out.copy_(function(*inputs))
    else:
        function(*inputs, out=out)


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
