"""Chunks of tokens and the decays within them, for recurrences on a matrix state (`gated_linear`, `delta_rule`).

With log decays g_t <= 0, and b_t the sum of g from a chunk's start to t, the products of q_t and k_s are weighed by
e^{b_t - b_s}. They are assembled from blocks of 2, 4, .. C tokens: e^{b_t - b_m} right of a block's middle m, e^{b_m -
b_s} left of it, with sums of g computed by doubling. No exponent is positive, and none is a difference: under strong
decay a factor e^{-b_s} would overflow, and differences of b would lose digits. The result is exact for any g <= 0,
including minus infinity, except that decays below 7e-16 in float32, and 9e-124 in float64, are zero: exponentials and
products that give denormal numbers take 20 to 200 times as long on an Intel Xeon. A token enters with the factor 1, so
what is left out is far below the rounding of what enters. In few kernels no decay is left out; the sums of all levels
are one product with a matrix of zeros and ones, and so are the weights, which take 1 + log2 C times the memory.

    B batch, H heads, N length, K key width, G chunks of C tokens
"""

import functools
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from models.ops.tiles import in_few_kernels

Level = tuple[Tensor, ...]


class Chunks:
    """A cut of `length` tokens into G = `count` chunks of C = `size`, at most `longest` and a power of two, unless a
    single chunk may have `any_size`."""

    def __init__(self, length: int, longest: int, *, any_size: bool = False):
        self.length = length
        self.size = min(longest, length if any_size else 1 << (length - 1).bit_length())
        self.count = -(-length // self.size)

    def cut(self, x: Tensor) -> Tensor:
        """(B, H, N, F) -> (B, H, G, C, F), contiguous, so that no product of a tile copies it again."""
        more = self.count * self.size - self.length
        x = F.pad(x, (0, 0, 0, more)) if more else x.contiguous()
        return x.unflatten(2, (self.count, self.size))

    def join(self, x: Tensor) -> Tensor:
        """(B, H, G, C, F) -> (B, H, N, F)."""
        return x.flatten(2, 3)[:, :, : self.length]


class Decay:
    """The decay of some chunks computed together: g (.., C, K or 1) or None, `lower` ones (C, C) with t >= s.

    Without `with_products` it has only the decays from the start and to the end of a chunk.
    """

    def __init__(self, g: Tensor | None, lower: Tensor, *, with_products: bool = True):
        self.per_channel = g is not None and g.shape[-1] > 1
        # e^{b_t} and e^{b_C - b_s}, and the same within blocks
        self.from_start = self.to_end = self.levels = None
        if g is not None:
            self.from_start, self.to_end, self.levels = decays(g, with_products)
        if with_products and not self.per_channel:
            self.pair = lower  # e^{b_t - b_s}, (.., C, C), if all channels share it; zero for t < s
            if g is not None and in_few_kernels(g):
                ((right, left, pairs),) = self.levels
                self.pair = (right @ left.mT * pairs).sum(-3)
            elif g is not None:
                self.pair = decayed_products(*torch.ones_like(g).expand(2, *g.shape), self.levels)

    def products(self, q: Tensor, k: Tensor) -> Tensor:
        """sum_c q_tc k_sc e^{b_tc - b_sc} for s <= t, else zero: (.., C, C) of q and k (.., C, K)."""
        if self.per_channel:
            return decayed_products(q, k, self.levels)
        return (q @ k.mT).mul_(self.pair)

    def products_backward(self, dproducts: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of q and k, (.., C, K) each, from that of `products`, which is overwritten; b is fixed."""
        if self.per_channel:
            return decayed_products_backward(dproducts, q, k, self.levels)
        dproducts.mul_(self.pair)
        return dproducts @ k, dproducts.mT @ q

    def of_sums(self, dsums: Tensor, dlast: Tensor | None, lower: Tensor) -> Tensor:
        """Gradient of g from those of all b_t (.., C, K) and of b_C (.., K), which is zero if None."""
        dlast = None if dlast is None else dlast[..., None, :]
        if not self.per_channel:
            dsums, dlast = (x if x is None else x.sum(-1, keepdim=True) for x in (dsums, dlast))
        dg = lower.mT @ dsums
        return dg if dlast is None else dg + dlast


def decayed(x: Tensor, factor: Tensor | None) -> Tensor:
    return x if factor is None else x * factor


def decays(g: Tensor, with_levels: bool = True) -> tuple[Tensor, Tensor, list[Level]]:
    """Exponentials of sums of g (.., C, F): from the start to t, from after s to the end, (.., C, F), and levels.

    Levels, computed only `with_levels`, are the same within blocks of 2, 4, .. C tokens: from the middle to t in the
    right half, and from after s in the left half to the middle, (.., M, half, F).
    """
    if in_few_kernels(g):
        return decays_at_once(g, with_levels)
    to_here, from_here, levels = g.clone(), torch.zeros_like(g), []  # in blocks of `half` tokens
    half, size = 1, g.shape[-2]
    while half < size:
        (to_left, to_right), (from_left, _) = halves(to_here, half), halves(from_here, half)
        if with_levels:
            levels.append((exponential(to_right), exponential(from_left)))
        from_left += to_right[..., -1:, :]
        to_right += to_left[..., -1:, :]
        half *= 2
    return exponential(to_here), exponential(from_here), levels


def decays_at_once(g: Tensor, with_levels: bool = True) -> tuple[Tensor, Tensor, list[Level]]:
    """`decays` in few kernels: one level, that of `decayed_products` in few kernels, (.., 1 + log2 C, C, F)."""
    g = g.clamp(min=-1000.0)  # e^-1000 is zero, and zero times minus infinity would be nan
    spans, pairs = blocks_of_all_sizes(g.shape[-2], g.device, g.dtype)
    sums = ((spans if with_levels else spans[:, -1:]).flatten(0, 2) @ g).exp_().unflatten(-2, (2, -1, g.shape[-2]))
    to_here, from_here = sums.unbind(-4)  # (.., 2 + log2 C, C, F)
    level = to_here[..., :-1, :, :], from_here[..., :-1, :, :], pairs
    return to_here[..., -1, :, :], from_here[..., -1, :, :], [level] if with_levels else []


def exponential(sums: Tensor) -> Tensor:
    """The decays e^{sums}; zero for one so small that it, or its product with a key or another decay, is denormal."""
    least = torch.finfo(sums.dtype).tiny ** 0.4
    return F.threshold_(sums.clamp(min=math.log(least) - 1).exp_(), least, 0.0)


@functools.lru_cache(maxsize=16)
def blocks_of_all_sizes(size: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Which tokens the sums of `decays` contain, for blocks of 0, 1, 2, 4, .. C tokens: ones (2, 2 + log2 C, C, C).

    Row t of the first half has ones from the start of its block to t, of the second from after t to the end. And the
    pairs of tokens of each level, (1 + log2 C, C, C): the diagonal, then the `corners` of blocks of 2, 4, .. C tokens.
    """
    place = torch.arange(size, device=device)
    sizes = 1 << torch.arange(size.bit_length() + 1, device=device) >> 1
    same = ((place[:, None] ^ place) < sizes[:, None, None]).to(dtype)
    spans = torch.stack([same.tril(), same.triu(1)])
    return spans, spans[0].diff(dim=0)


def halves(x: Tensor, half: int) -> tuple[Tensor, Tensor]:
    """Left and right halves, (.., M, half, F), of the M blocks of x (.., C, F); views."""
    return x.unflatten(-2, (-1, 2, half)).unbind(-3)


def corners(x: Tensor, half: int) -> Tensor:
    """The lower left quarters of the M blocks on the diagonal of x (.., C, C): (.., M, half, half), a view."""
    blocks = x.unflatten(-1, (-1, 2, half)).unflatten(-4, (-1, 2, half))  # (.., M, 2, half, M, 2, half)
    return blocks.diagonal(dim1=-6, dim2=-3)[..., 1, :, 0, :, :].movedim(-1, -3)


def decayed_products(q: Tensor, k: Tensor, levels: list[Level]) -> Tensor:
    """sum_f q_tf k_sf e^{b_tf - b_sf} for s <= t, else zero: (.., C, C) of q and k (.., C, F)."""
    if in_few_kernels(q):
        ((right, left, pairs),) = levels
        products = (q[..., None, :, :] * right) @ (k[..., None, :, :] * left).mT  # (.., 1 + log2 C, C, C)
        return (products * pairs).sum(-3)
    out = q.new_zeros(*q.shape[:-1], q.shape[-2])
    out.diagonal(dim1=-2, dim2=-1).copy_((q * k).sum(-1))
    for right, left in levels:
        half = right.shape[-2]
        right, left = halves(q, half)[1] * right, halves(k, half)[0] * left
        corners(out, half).copy_(right * left.mT if right.shape[-1] == 1 else right @ left.mT)
    return out


def decayed_products_backward(dout: Tensor, q: Tensor, k: Tensor, levels: list[Level]) -> tuple[Tensor, Tensor]:
    """Gradients of q and k from the gradient of `decayed_products`, with b fixed."""
    if in_few_kernels(q):
        ((right, left, pairs),) = levels
        dout = dout[..., None, :, :] * pairs
        dq = (dout @ (k[..., None, :, :] * left) * right).sum(-3)
        return dq, (dout.mT @ (q[..., None, :, :] * right) * left).sum(-3)
    diagonal = dout.diagonal(dim1=-2, dim2=-1)[..., None]
    dq, dk = diagonal * k, diagonal * q
    for right, left in levels:
        half = right.shape[-2]
        dcorner = corners(dout, half)
        halves(dq, half)[1].addcmul_(dcorner @ (halves(k, half)[0] * left), right)
        halves(dk, half)[0].addcmul_(dcorner.mT @ (halves(q, half)[1] * right), left)
    return dq, dk
