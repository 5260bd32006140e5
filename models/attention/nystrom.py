"""Nyströmformer: softmax attention through landmarks (Xiong et al., 2021, arXiv 2102.03902).

    F = softmax( Q K~' / sqrt(E) ),  A = softmax( Q~ K~' / sqrt(E) ),  B = softmax( Q~ K' / sqrt(E) )
    y = F Z B V + conv(V),   Z ~ A^-1 by Newton-Schulz                                            (13, 14)

Q~ and K~ are the means of r segments of the real tokens: the first r - n mod r segments have floor(n / r) tokens, the
others one more. Time O(N r D + r^3 H), memory O(N (D + r)): F and B are never formed, because fused softmax attention
applies both. Everything is computed in float32 or float64. Landmarks see all tokens, so there is no causal form (D-27).

    B batch, N length, n real tokens, H heads, E head width, r landmarks
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from models.attention.base import MultiHead, Pattern
from models.attention.vanilla import softmax_attention
from models.ops.newton_schulz import apply_inverse
from models.ops.padding import real_tokens, segment_means
from models.ops.precision import autocast_disabled, upcast
from models.ops.time_convolution import time_convolution


def nystrom(
    q: Tensor, k: Tensor, v: Tensor, *, landmarks: int, key_padding_mask: Tensor | None = None, batch_init: bool = False
) -> Tensor:
    """q, k, v (B, H, N, E), mask (B, N) True at padding -> (B, H, N, E)."""
    if k.shape[2] <= landmarks:
        return softmax_attention(q, k, v, key_padding_mask=key_padding_mask)
    with autocast_disabled(q):
        dtype, padded = v.dtype, key_padding_mask is not None
        q, k, v = upcast(q), upcast(k), upcast(v)
        real = real_tokens(key_padding_mask, k)  # (B or 1, N)
        means = segment_means(real, landmarks, q.dtype)  # (B or 1, 1, r, N)
        q_marks, k_marks = means @ q, means @ k  # (B, H, r, E)
        empty = (means == 0).all(-1) if padded else None  # (B, 1, r)
        logits = q_marks @ k_marks.mT * q.shape[-1] ** -0.5  # (B, H, r, r)
        if padded:
            logits = logits.masked_fill(empty[:, :, None], torch.finfo(logits.dtype).min)
        read = softmax_attention(q_marks, k, v, key_padding_mask=key_padding_mask)  # B V
        read = apply_inverse(logits.softmax(-1), read, over_batch=batch_init)  # Z B V, (B, H, r, E)
        if padded:
            exact = (real.sum(1) <= landmarks)[:, None, None, None]
            read = torch.where(exact, means @ v, read)
        return softmax_attention(q, k_marks, read, key_padding_mask=empty[:, 0] if padded else None).to(dtype)


class Nystrom(MultiHead):
    """Multi-head Nyströmformer.

    With n <= r attention is exact, as in the public code: every token is a landmark, and y = F V~. The inverse starts
    from the largest column sum of each matrix; `batch_init` takes the largest of the batch ("original" in the public
    code). `cab_compat` follows CAB: logits scaled by 1 / E, and `batch_init`; CAB keeps padding in the segments, which
    is not reproduced (D-20). The depthwise convolution of the values over time is off unless `conv_kernel` is set (33
    and 35 in the papers' code); it reads padding as zeros. Dropout has no effect, as in the public code.

    Raises ValueError for fewer than one landmark and an even convolution.
    """

    patterns: ClassVar[frozenset[Pattern]] = frozenset({Pattern.NONCAUSAL_SELF})
    has_weights: ClassVar[bool] = False

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        landmarks: int = 64,
        conv_kernel: int | None = None,
        batch_init: bool = False,
        cab_compat: bool = False,
        **options: Any,
    ):
        super().__init__(dim, heads, **options)
        self.check_sizes(landmarks=landmarks)
        if conv_kernel is not None and (conv_kernel < 1 or conv_kernel % 2 == 0):
            raise ValueError(f"Nystrom requires an odd conv_kernel, not {conv_kernel}")
        self.landmarks = landmarks
        self.batch_init = batch_init or cab_compat
        self.query_scale = self.head_dim**-0.5 if cab_compat else 1.0  # in addition to E^-1/2
        self.conv = None
        if conv_kernel is not None:
            self.conv = nn.Conv2d(
                heads, heads, (conv_kernel, 1), padding=(conv_kernel // 2, 0), groups=heads, bias=False
            )

    def attend(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        y = nystrom(
            q * self.query_scale,
            k,
            v,
            landmarks=self.landmarks,
            key_padding_mask=key_padding_mask,
            batch_init=self.batch_init,
        )
        if self.conv is None:
            return y
        if key_padding_mask is not None:
            v = v.masked_fill(key_padding_mask[:, None, :, None], 0.0)
        return y + time_convolution(v, self.conv.weight[:, 0, :, 0])
