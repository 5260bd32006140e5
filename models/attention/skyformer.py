"""Skyformer: kernelized attention through sampled queries and keys (Chen et al., 2021, arXiv 2111.00035).

With X_S = m / 2 rows of Q and m / 2 rows of K, and kappa the Gaussian kernel of `models/attention/kernelized.py`,

    S = kappa(X_S, X_S) + 0.1 I,   D = diag(S 1)^-1/2
    y = kappa(Q, X_S) D Z D kappa(X_S, K) V,   Z ~ (D S D)^-1 by Newton-Schulz                   (§4)

Time O(N m D + m^3 H), memory O(N (D + m)): kernels of all N tokens are computed tile by tile, as in kernelized
attention. Float32 or float64. Rows are sampled from all tokens, so there is no causal form.

    B batch, N length, n real tokens, H heads, E head width, m features
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from models.attention.base import MultiHead, Pattern
from models.attention.kernelized import kernelized
from models.ops.newton_schulz import apply_inverse
from models.ops.padding import ranks, real_tokens
from models.ops.precision import autocast_disabled, upcast

DIAGONAL = 0.1


def skyformer(
    q: Tensor, k: Tensor, v: Tensor, sample: Tensor, *, key_padding_mask: Tensor | None = None, batch_init: bool = False
) -> Tensor:
    """q, k, v (B, H, N, E), mask (B, N) True at padding -> (B, H, N, E).

    `sample` (B, m) holds token indices: queries in the first m // 2 columns, keys in the others.
    """
    with autocast_disabled(q):
        dtype = v.dtype
        q, k, v = upcast(q), upcast(k), upcast(v)
        # one-hot products: rows may be sampled twice, and a gather's backward pass is not deterministic on every device
        chosen = (sample[..., None] == torch.arange(k.shape[2], device=k.device)).to(q.dtype)[:, None]  # (B, 1, m, N)
        half = sample.shape[1] // 2
        x = torch.cat([chosen[:, :, :half] @ q, chosen[:, :, half:] @ k], 2)  # X_S, (B, H, m, E)
        products = x * x.shape[-1] ** -0.5 @ x.mT
        norms = products.diagonal(dim1=-2, dim2=-1)[..., None]
        s = products.sub(norms, alpha=1 / 2).sub(norms.mT, alpha=1 / 2).clamp(max=0.0).exp()
        s = s.add(torch.eye(s.shape[-1], dtype=s.dtype, device=s.device), alpha=DIAGONAL)
        d = s.sum(-1, keepdim=True).rsqrt()  # (B, H, m, 1)
        read = kernelized(x, k, v, key_padding_mask=key_padding_mask)  # (B, H, m, E)
        read = d * apply_inverse(d * s * d.mT, d * read, over_batch=batch_init)
        return kernelized(q, x, read).to(dtype)


def tokens_at(draws: Tensor, real: Tensor) -> Tensor:
    """Token indices at the relative positions `draws` (m) in [0, 1) among the real tokens, `real` (B, N): (B, m)."""
    count = real.sum(1, keepdim=True)
    rank = (draws * count).long().minimum(count - 1)  # (B, m)
    return torch.searchsorted(ranks(real), rank).clamp(max=real.shape[1] - 1)


class Skyformer(MultiHead):
    """Multi-head Skyformer.

    Row t of the sample is token floor(u_t n) of the n real tokens. u_t is uniform in [0, 1), drawn once and saved with
    the weights, so that an example's output depends only on the example. The public code draws a new sample at every
    call, including evaluation; `resample` does so in training. Its factor 32^-1/4 equals E^-1/4 at its head width; here
    it is E^-1/4 at every width. The inverse starts from the largest column sum of each matrix; `batch_init` takes the
    largest of the batch, as the public code does. Padding is neither sampled nor read. Dropout has no effect, as in the
    public code.

    Raises ValueError for fewer than two features.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF})
    has_weights: ClassVar[bool] = False

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        features: int = 128,
        resample: bool = False,
        batch_init: bool = False,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        if features < 2:
            raise ValueError(f"Skyformer requires features >= 2, not {features}")
        self.resample, self.batch_init = resample, batch_init
        self.register_buffer("draws", torch.rand(features))  # u, shared by heads and examples

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        draws = torch.rand_like(self.draws) if self.resample and self.training else self.draws
        sample = tokens_at(draws, real_tokens(key_padding_mask, q).expand(len(q), -1))
        return skyformer(q, k, v, sample, key_padding_mask=key_padding_mask, batch_init=self.batch_init)
