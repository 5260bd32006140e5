"""LARA: linear randomised attention with one proposal per landmark (Zheng et al., 2022, arXiv 2204.04667).

With q~_c and k~_c the means of segment c of the real tokens, mu_c = q~_c + k~_c, w_c = mu_c + e_c, and
lp(x, w) = ( w'x - |x|^2 / 2 ) / sqrt(E),

    f_c = sum_s softmax_s( lp(k_s, w_c) ) v_s,   y_t = sum_c softmax_c( l_ct ) f_c
    l_ct = mu_c'q_t / sqrt(E) + lp(q_t, w_c) + log sum_s e^{lp(k_s, w_c)} - lp(mu_c, w_c)

|q_t|^2 is the same for all landmarks and cancels. Time O(N r D), memory O(N (D + H r)). Float32 or float64.
Landmarks see all tokens, so there is no causal form (D-27).

    B batch, N length, n real tokens, H heads, E head width, r landmarks
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from models.attention.base import MultiHead, Pattern
from models.ops.attention import attention
from models.ops.padding import real_tokens, segment_means
from models.ops.precision import autocast_disabled, upcast

# logit of a landmark without tokens, if any other has tokens: with only such landmarks a fused backward pass would lose
# the logarithm of their number
HIDDEN = -1e30


def lara(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    landmarks: int,
    noise: bool,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q, k, v (B, H, N, E), mask (B, N) True at padding -> (B, H, N, E)."""
    with autocast_disabled(q):
        dtype, padded, scale = v.dtype, key_padding_mask is not None, q.shape[-1] ** -0.5
        q, k, v = upcast(q), upcast(k), upcast(v)
        real = real_tokens(key_padding_mask, k)  # (B or 1, N)
        means = segment_means(real, landmarks, q.dtype)  # (B or 1, 1, r, N)
        centres = means @ (q + k)  # mu, (B, H, r, E)
        directions = centres + torch.randn_like(centres) if noise else centres  # w
        logits = (directions @ k.mT - half_norm(k).mT) * scale  # lp(k_s, w_c), (B, H, r, N)
        if padded:
            logits = logits.masked_fill(key_padding_mask[:, None, None], torch.finfo(logits.dtype).min)
        total = logits.logsumexp(-1, keepdim=True)  # (B, H, r, 1)
        read = logits.softmax(-1) @ v  # f, (B, H, r, E); through `total` its weights would not sum to 1 in float32
        at_mean = (directions * centres).sum(-1, keepdim=True) - half_norm(centres)
        empty = (means == 0).all(-1, keepdim=True)
        bias = (total / scale - at_mean).masked_fill(empty, 0.0)
        bias = bias.masked_fill(empty & ~empty.all(2, keepdim=True), HIDDEN)
        # for the fused kernels: the bias as an additional channel, and values as wide as keys
        q = torch.cat([q, torch.ones_like(q[..., :1])], -1)
        keys = torch.cat([centres + directions, bias], -1)
        y = attention(q, keys, F.pad(read, (0, 1)), dropout=dropout, scale=scale)
        return y[..., :-1].to(dtype)


def half_norm(x: Tensor) -> Tensor:
    """|x|^2 / 2, (.., 1)."""
    return x.square().sum(-1, keepdim=True) / 2


class LARA(MultiHead):
    """Multi-head LARA; no parameters but the projections.

    As in the CAB benchmark, which LAVO's tables used, |x|^2 is scaled like w'x. e_c is Gaussian noise from torch's
    generator in training and zero in evaluation; without `noise` it is always zero. The first r - n mod r segments have
    floor(n / r) tokens, the others one more; with n < r each token is a landmark. CAB includes padding in the means
    (D-20). Dropout acts on the landmark weights.

    Raises ValueError for fewer than one landmark.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF})

    def __init__(self, dim: int, heads: int, *, landmarks: int = 64, noise: bool = True, **options: Any):
        super().__init__(dim, heads, **options)
        self.check_sizes(landmarks=landmarks)
        self.landmarks, self.noise = landmarks, noise

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        return lara(
            q,
            k,
            v,
            landmarks=self.landmarks,
            noise=self.noise and self.training,
            key_padding_mask=key_padding_mask,
            dropout=self.active_dropout,
        )
