"""RWKV's decayed mean of values per channel (Peng et al., 2023, arXiv 2305.13048, eq. 16).

    y_t = (sum_{s<t} e^{k_s - (t-1-s) w} v_s + e^{u + k_t} v_t) / (the same with v = 1)

With z_t = log sum_{s<=t} e^{k_s - (t-s) w}, and m_t the mean of the values with these weights,

    z_t = log(e^{z_{t-1} - w} + e^{k_t}),  a_t = sigmoid(z_{t-1} - w - k_t),  b_t = sigmoid(z_{t-1} - u - k_t)
    m_t = a_t m_{t-1} + (1 - a_t) v_t,     y_t = b_t m_{t-1} + (1 - b_t) v_t

where all shares lie in [0, 1], so no k or w causes an overflow. Everything is in float32 or float64. Time and memory
O(N D); the backward pass is explicit and keeps k, v, z and m. With c_t and e_t the gradients of m_{t-1} and z_{t-1}
from the steps t and later, and d_t = m_{t-1} - v_t,

    c_t = a_t c_{t+1} + b_t dy_t,  p_t = a_t (1 - a_t) d_t c_{t+1},  q_t = b_t (1 - b_t) d_t dy_t
    e_t = a_t e_{t+1} + p_t + q_t
    dv_t = (1 - a_t) c_{t+1} + (1 - b_t) dy_t,  dk_t = (1 - a_t) e_{t+1} - p_t - q_t
    dw = -sum_t (a_t e_{t+1} + p_t),  du = -sum_t q_t

    B batch, N length, D width, C chunks of T steps
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops.precision import upcast
from models.ops.running_softmax import HIDDEN
from models.ops.scan import CHUNK, scan
from models.ops.tiles import TileBudget, in_few_kernels, spans

TILE = TileBudget(2**18, 2**26)  # numbers


def empty_state(like: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """z and m (B, D) before the first token, for the channels of `like` (D,)."""
    mean = upcast(like.new_zeros(batch, len(like)))
    return torch.full_like(mean, HIDDEN), mean


def wkv(
    k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor, state: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """k and v (B, N, D), w and u (D,), w >= 0, (z, m) before the first token -> y (B, N, D), and (z, m) after the last.

    A token with k = `HIDDEN` has no weight; y is finite but meaningless where no token has weight.
    """
    decay, bonus = upcast(decay), upcast(bonus)
    log_sum, mean = empty_state(decay, len(k)) if state is None else state
    if k.shape[1] == 1 and not torch.is_grad_enabled():
        return _step(k, v, decay, bonus, log_sum, mean)
    y, *after = _WKV.apply(k, v, decay, bonus, log_sum, mean)
    return y, tuple(after)


def _step(
    k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor, log_sum: Tensor, mean: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """`wkv` for one token, without gradients."""
    key, value = upcast(k[:, 0]), upcast(v[:, 0])
    y = torch.lerp(value, mean, (log_sum - key - bonus).sigmoid())
    return y[:, None].to(v.dtype), _add(log_sum, mean, key, value, decay)


class _WKV(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor, log_sum: Tensor, mean: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        z, m = (torch.empty(k.shape, dtype=decay.dtype, device=k.device) for _ in range(2))
        y = torch.empty_like(v)
        for tile in _tiles(k):
            keys, values = upcast(k[:, tile]), upcast(v[:, tile])
            state = (_state(z, log_sum, tile), _state(m, mean, tile))
            _means(keys, values, decay, *state, (z[:, tile], m[:, tile]))
            past = (_before(z, log_sum, tile) - keys - bonus).sigmoid()
            y[:, tile] = torch.lerp(values, _before(m, mean, tile), past)
        ctx.save_for_backward(k, v, decay, bonus, log_sum, mean, z, m)
        return y, z[:, -1].clone(), m[:, -1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor, e: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        k, v, decay, bonus, log_sum, mean, z, m = ctx.saved_tensors
        dk, dv = torch.empty_like(k), torch.empty_like(v)
        ddecay, dbonus = torch.zeros_like(decay), torch.zeros_like(bonus)
        for tile in reversed(_tiles(k)):
            keys, values, grad = upcast(k[:, tile]), upcast(v[:, tile]), upcast(dy[:, tile])
            gap = _before(z, log_sum, tile) - keys
            keep, past = (gap - decay).sigmoid(), (gap - bonus).sigmoid()
            drift = _before(m, mean, tile) - values
            later, c = _later(keep, past * grad, c)
            p, q = keep * (1 - keep) * drift * later, past * (1 - past) * drift * grad
            dv[:, tile] = (1 - keep) * later + (1 - past) * grad
            later, e = _later(keep, p + q, e)
            dk[:, tile] = (1 - keep) * later - p - q
            ddecay -= (keep * later + p).sum((0, 1))
            dbonus -= q.sum((0, 1))
        return dk, dv, ddecay, dbonus, e, c


def _tiles(x: Tensor) -> list[slice]:
    """The tokens of x (B, N, D) cut into tiles."""
    batch, length, dim = x.shape
    size = max(CHUNK, TILE.fit(x, batch * dim))
    return spans(0, length, size)


def _state(x: Tensor, first: Tensor, tile: slice) -> Tensor:
    """The row of x (B, N, D) before the tile, (B, D); `first` before the first tile."""
    return x[:, tile.start - 1] if tile.start else first


def _before(x: Tensor, first: Tensor, tile: slice) -> Tensor:
    """The rows of x (B, N, D) one token before those of the tile."""
    if tile.start:
        return x[:, tile.start - 1 : tile.stop - 1]
    return torch.cat([first[:, None], x[:, : tile.stop - 1]], 1)


def _later(keep: Tensor, added: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """c_t = a_t c_{t+1} + added_t, with c = `end` (B, D) after the tile: c_{t+1} for its tokens, and its first c."""
    sums = torch.empty_like(added)
    scan(keep, added, end, sums, reverse=True)
    return torch.cat([sums[:, 1:], end[:, None]], 1), sums[:, 0]


def _means(k: Tensor, v: Tensor, decay: Tensor, z: Tensor, m: Tensor, into: tuple[Tensor, Tensor]) -> None:
    """Write z and m for k and v (B, N, D), starting from z and m (B, D), `into` two tensors (B, N, D).

    One position of all chunks at a time: first the sum and mean of each chunk, then those before the chunks, which
    follow the same recurrence with chunks as tokens, then those of all tokens.
    """
    length = k.shape[1]
    if in_few_kernels(k):
        for whole, part in zip(into, _doubled(k, v, decay, z, m), strict=True):
            whole.copy_(part)
        return
    chunks = length // CHUNK
    if chunks > 1:
        inner, rest = slice(0, chunks * CHUNK), slice(chunks * CHUNK, length)
        inside = [x[:, inner].unflatten(1, (chunks, CHUNK)) for x in (k, v, *into)]  # (B, C, T, D)
        added = tuple(x[:, :, 0] for x in inside[:2])
        for t in range(1, CHUNK):
            added = _add(*added, *(x[:, :, t] for x in inside[:2]), decay)
        ends = torch.empty_like(added[0]), torch.empty_like(added[1])
        _means(*added, CHUNK * decay, z, m, ends)
        before = (torch.cat([x[:, None], end[:, :-1]], 1) for x, end in zip((z, m), ends, strict=True))
        _loop(*inside[:2], decay, *before, inside[2:])
        z, m = (end[:, -1] for end in ends)
        k, v, *into = (x[:, rest] for x in (k, v, *into))
    _loop(k[:, None], v[:, None], decay, z[:, None], m[:, None], [x[:, None] for x in into])


def _doubled(k: Tensor, v: Tensor, decay: Tensor, z: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    """z and m (B, N, D) as for `_means`: tokens double the span of their sums and means log2 N times."""
    sums, means, reach = k, v, 1
    while reach < k.shape[1]:
        later = _add(sums[:, :-reach], means[:, :-reach], sums[:, reach:], means[:, reach:], reach * decay)
        sums, means = (torch.cat([x[:, :reach], y], 1) for x, y in zip((sums, means), later, strict=True))
        reach *= 2
    steps = torch.arange(1, k.shape[1] + 1, device=k.device, dtype=decay.dtype)[:, None]
    return _add(z[:, None], m[:, None].expand_as(means), sums, means, steps * decay)


def _loop(k: Tensor, v: Tensor, decay: Tensor, z: Tensor, m: Tensor, into: Sequence[Tensor]) -> None:
    """The recurrence in all chunks at once: k and v (B, C, T, D), z and m before them (B, C, D), `into` z and m."""
    for t in range(k.shape[2]):
        z, m = _add(z, m, k[:, :, t], v[:, :, t], decay)
        into[0][:, :, t], into[1][:, :, t] = z, m


def _add(z: Tensor, m: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """z and m with one more token. In the form m + (1 - a) (v - m), the mean of equal values stays exact."""
    faded = z - decay
    return torch.logaddexp(faded, k), torch.lerp(v, m, (faded - k).sigmoid())
