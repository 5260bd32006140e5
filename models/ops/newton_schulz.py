"""The inverse of a square matrix by a few products (Razavi et al., 2014), as in Nyströmformer and Skyformer.

    Z_0 = A' / max column sum,   Z_{k+1} = Z_k (13 I - A Z_k (15 I - A Z_k (7 I - A Z_k))) / 4,   k = 0 .. 5

It converges if the norm of A A' is at most the largest column sum, as for softmax weights, and for kernels scaled on
both sides by the square roots of their row sums. Directions in which A is nearly singular are not inverted but stay
below (13 / 4)^6 of Z_0, so nothing overflows. Only Z_6 x is computed, never Z_6.

A recursion of P = A Z, P <- P (13 I - 15 P + 7 P^2 - P^3) / 4, takes half as many products for large n. As it does not
use A again, its float32 errors are 15 to 40 times larger.

    B batch, H heads, n size, E width, I identity
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.ops.precision import autocast_disabled

ITERATIONS = 6


def apply_inverse(a: Tensor, x: Tensor, *, over_batch: bool = False) -> Tensor:
    """Z_6 x for A = a (B, H, n, n) with entries >= 0, and x (B, H, n, E): (B, H, n, E).

    `over_batch` takes the largest column sum over all matrices instead of that of each matrix ("original" in the public
    code), so that examples affect each other.
    """
    sums, shape = a.sum(-2), x.shape  # (B, H, n)
    largest = sums.amax() if over_batch else sums.amax(-1)[..., None, None]
    return _Steps.apply(*(y.flatten(0, 1) for y in (a, a.mT / largest, x))).view(shape)


class _Steps(torch.autograd.Function):
    """Z_6 x from A, Z_0 (B H, n, n) and x (B H, n, E). Each step is that of the last, which has x in the place of I."""

    @staticmethod
    def forward(ctx, a: Tensor, z: Tensor, x: Tensor) -> Tensor:
        kept, eye = [], torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
        for step in range(ITERATIONS):
            last, az = step == ITERATIONS - 1, a @ z
            y = x if last else eye
            r = torch.baddbmm(x, az, x, beta=-7) if last else torch.sub(az, eye, alpha=7)
            s = torch.baddbmm(y, az, r, beta=15)
            t = torch.baddbmm(y, az, s, beta=13 / 4, alpha=-1 / 4)
            kept += [z, az, r, s, t]
            z = z @ t
        ctx.save_for_backward(a, x, *kept)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, x, *kept = ctx.saved_tensors
        da, dx = torch.zeros_like(a), None
        with autocast_disabled(a):
            while kept:
                *kept, z, az, r, s, t = kept
                dt = torch.baddbmm(grad, z.mT, grad, beta=0, alpha=1 / 4)  # of 4 t
                ds = az.mT @ dt  # here and below, with the opposite sign
                daz = (dt @ s.mT).baddbmm_(ds, r.mT)
                if dx is None:
                    dr = az.mT @ ds
                    daz.baddbmm_(dr, x.mT)
                    dx = torch.baddbmm(dt, az.mT, dr, beta=13, alpha=-1).add_(ds, alpha=-15).add_(dr, alpha=7)
                else:
                    daz.baddbmm_(az.mT, ds)
                da.baddbmm_(daz, z.mT, alpha=-1)
                grad = (grad @ t.mT).baddbmm_(a.mT, daz, alpha=-1)
        return da, grad, dx
