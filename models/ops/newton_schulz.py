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

ITERATIONS = 6


def apply_inverse(a: Tensor, x: Tensor, *, over_batch: bool = False) -> Tensor:
    """Z_6 x for A = a (B, H, n, n) with entries >= 0, and x (B, H, n, E): (B, H, n, E).

    `over_batch` takes the largest column sum over all matrices instead of that of each matrix ("original" in the public
    code), so that examples affect each other.
    """
    sums, shape = a.sum(-2), x.shape  # (B, H, n)
    largest = sums.amax() if over_batch else sums.amax(-1)[..., None, None]
    a, z, x = (y.flatten(0, 1) for y in (a, a.mT / largest, x))
    eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    for _ in range(ITERATIONS - 1):
        az = a @ z
        s = torch.baddbmm(eye, az, torch.sub(az, eye, alpha=7), beta=15)
        z = z @ torch.baddbmm(eye, az, s, beta=13 / 4, alpha=-1 / 4)
    az = a @ z  # and the last step with x in the place of I
    s = torch.baddbmm(x, az, torch.baddbmm(x, az, x, beta=-7), beta=15)
    return (z @ torch.baddbmm(x, az, s, beta=13 / 4, alpha=-1 / 4)).view(shape)
