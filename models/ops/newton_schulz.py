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
    a, z, x = a.flatten(0, 1), (a.mT / largest).flatten(0, 1), x.flatten(0, 1)  # (B H, n, n) twice, (B H, n, E)
    eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    for _ in range(ITERATIONS - 1):
        az = a @ z
        inner = torch.baddbmm(15 * eye, az, 7 * eye - az, alpha=-1)
        z = z @ torch.baddbmm(13 * eye, az, inner, beta=1 / 4, alpha=-1 / 4)
    az = a @ z
    azx = az @ x
    return (z @ torch.baddbmm(13 * x - 15 * azx, az, az @ (7 * x - azx), beta=1 / 4, alpha=1 / 4)).view(shape)
