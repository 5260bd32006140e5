"""Linear attention whose weights are the Taylor series of exp to second order (Arora et al., 2024, arXiv 2402.18668).

    y_t = sum_{s<=t} A_ts v_s,   A_ts = 1 + a + a^2 / 2 = <phi(q_t), phi(k_s)>,   a = <q_t, k_s> K^-1/2

phi(x) has a one, K^-1/4 x_i, and K^-1/2 times the products x_i^2 / sqrt(2) and x_i x_j, i < j, together
m = 1 + K + K (K + 1) / 2 features. The sequence is cut into chunks of C tokens. With S the sum of phi(k_s) v_s' over
the tokens before a chunk, y_t = S' phi(q_t) plus the sum over the chunk, where A is computed from a. Features exist
only for a tile of some chunks; S before each tile is kept, and backward recomputes the rest. Time O(N V (m + C)),
memory O(N (K + V)) plus a tile and one S per tile.

    B batch, H heads, N length, K key width, V value width, m features, P pairs of example and head, G chunks per tile
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops.precision import autocast_disabled, upcast
from models.ops.tiles import TileBudget, in_few_kernels, spans

CHUNK = 64  # C
TILE = TileBudget(2**20, 2**26)  # numbers of features


def feature_count(width: int) -> int:
    """m for K = `width`."""
    return 1 + width + width * (width + 1) // 2


def taylor_features(x: Tensor) -> Tensor:
    """phi(x) (.., m) of x (.., K)."""
    return _features(x[..., None])[..., 0]


def taylor_attention(q: Tensor, k: Tensor, v: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """y (B, H, N, V) and the final S from q and k (B, H, N, K), v (B, H, N, V) and the first S (B, H, m, V).

    A token whose v is zero leaves S unchanged. All sums are float32 or float64.
    """
    with autocast_disabled(v):
        flat = (upcast(x).flatten(0, 1) for x in (q, k, v, state))
        y, last = _Taylor.apply(*flat)
        return y.unflatten(0, v.shape[:2]).to(v.dtype), last.unflatten(0, v.shape[:2])


class _Taylor(torch.autograd.Function):
    """q, k (P, N, K), v (P, N, V), state (P, m, V)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, last, kept = torch.empty_like(v), state.clone(), []
        for index in _tiles(q):
            tile, before = _Tile(q[index], k[index], v[index]), last[index[0]]
            kept.append(before.clone())
            added = tile.keys @ tile.v
            inside = tile.weights() @ tile.v
            y[index] = tile.join(inside + tile.queries.mT @ (before[:, None] + _sums_before(added)))
            before += added.sum(1)
        ctx.save_for_backward(q, k, v, *kept)
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_state: Tensor) -> tuple[Tensor, ...]:
        q, k, v, *kept = ctx.saved_tensors
        dq, dk, dv, dstate = (*(torch.empty_like(x) for x in (q, k, v)), grad_state.clone())
        with autocast_disabled(grad):
            for index, before in zip(reversed(_tiles(q)), reversed(kept), strict=True):
                tile, after = _Tile(q[index], k[index], v[index]), dstate[index[0]]
                dy = tile.cut(grad[index])
                # gradients of S before and after each chunk
                read = tile.queries @ dy
                written = after[:, None] + _sums_before(read.flip(1)).flip(1)
                states = before[:, None] + _sums_before(tile.keys @ tile.v)
                dv[index] = tile.join(tile.weights().mT @ dy + tile.keys.mT @ written)
                da = (dy @ tile.v.mT).mul_(1 + tile.products).tril_()
                dqs = da @ tile.k + _features_backward(tile.q.mT, states @ dy.mT).mT
                dks = da.mT @ tile.q + _features_backward(tile.k.mT, written @ tile.v.mT).mT
                dq[index], dk[index] = (tile.join(x) * tile.scale for x in (dqs, dks))
                after += read.sum(1)
        return dq, dk, dv, dstate


def _tiles(q: Tensor) -> list[tuple[slice, slice]]:
    """Slices of the pairs and of the tokens of q (P, N, K), in the order of computation."""
    pairs, length, width = q.shape
    chunk = CHUNK * feature_count(width)
    together = TILE.fit(q, chunk, pairs)
    tokens = CHUNK * TILE.fit(q, together * chunk)
    return [(rows, part) for rows in spans(0, pairs, together) for part in spans(0, length, tokens)]


class _Tile:
    """Some tokens of some pairs, cut into chunks: q and k (P, G, C, K), which contain K^-1/4, and v (P, G, C, V)."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor):
        self.scale, self.length = q.shape[-1] ** -0.25, q.shape[1]
        self.q, self.k, self.v = self.cut(q) * self.scale, self.cut(k) * self.scale, self.cut(v)
        self.queries, self.keys = _features(self.q.mT, scaled=True), _features(self.k.mT, scaled=True)  # (P, G, m, C)
        self.products = self.q @ self.k.mT  # a

    def cut(self, x: Tensor) -> Tensor:
        """(P, n, F) -> (P, G, C, F)."""
        size = min(CHUNK, self.length)
        return F.pad(x, (0, 0, 0, -self.length % size)).unflatten(1, (-1, size))

    def join(self, x: Tensor) -> Tensor:
        """(P, G, C, F) -> (P, n, F)."""
        return x.flatten(1, 2)[:, : self.length]

    def weights(self) -> Tensor:
        """A, (P, G, C, C)."""
        return torch.addcmul(1 + self.products, self.products, self.products, value=0.5).tril_()


def _sums_before(x: Tensor) -> Tensor:
    """The sum of the earlier chunks for each chunk, (P, G, m, V)."""
    return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)], 1)


def _rows(width: int) -> Iterator[tuple[int, slice]]:
    """For each channel i, where the features x_i x_j, j >= i, stand."""
    start = 1 + width
    for i in range(width):
        yield i, slice(start, start + width - i)
        start += width - i


def _factors(first: Tensor, second: Tensor, like: Tensor) -> Tensor:
    """1, or 2^-1/2 for a square: (m - 1 - K, 1)."""
    return torch.where(first == second, 0.5**0.5, 1.0).to(like.dtype)[:, None]


def _features(x: Tensor, *, scaled: bool = False) -> Tensor:
    """phi, (.., m, n), of x (.., K, n), channel by channel unless in few kernels; `scaled`: x contains K^-1/4."""
    width = x.shape[-2]
    x = x if scaled else x * width**-0.25
    if in_few_kernels(x):
        first, second = torch.triu_indices(width, width, device=x.device)
        products = x.index_select(-2, first) * x.index_select(-2, second) * _factors(first, second, x)
        return torch.cat([torch.ones_like(x[..., :1, :]), x, products], -2)
    out = x.new_empty(*x.shape[:-2], feature_count(width), x.shape[-1])
    out[..., 0, :] = 1.0
    out[..., 1 : 1 + width, :] = x
    for i, row in _rows(width):
        out[..., row, :] = x[..., i:, :] * x[..., i : i + 1, :]
        out[..., row.start, :] *= 0.5**0.5
    return out


def _features_backward(x: Tensor, grad: Tensor) -> Tensor:
    """Gradient of the scaled x (.., K, n) from that of phi (.., m, n), which is overwritten."""
    width = x.shape[-2]
    if in_few_kernels(x):
        first, second = torch.triu_indices(width, width, device=x.device)
        number = torch.zeros(width, width, dtype=torch.long, device=x.device)
        number[first, second] = number[second, first] = torch.arange(len(first), device=x.device)
        dproducts = grad[..., 1 + width :, :] * _factors(first, second, x)
        # x_i^2 has x_i twice
        dproducts = dproducts.index_select(-2, number.flatten()).unflatten(-2, (width, width))
        twice = 1 + torch.eye(width, dtype=x.dtype, device=x.device)[..., None]
        return grad[..., 1 : 1 + width, :] + (dproducts * twice * x[..., None, :, :]).sum(-2)
    dx = grad[..., 1 : 1 + width, :].contiguous()
    for i, row in _rows(width):
        grad[..., row.start, :] *= 0.5**0.5
        dx[..., i, :] += (grad[..., row, :] * x[..., i:, :]).sum(-2)
        dx[..., i:, :].addcmul_(grad[..., row, :], x[..., i : i + 1, :])
    return dx
