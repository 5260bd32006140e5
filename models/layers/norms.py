"""Norms that torch does not provide, not for (B, N, D), or not in float32.

ScaleNorm(x) = g x / sqrt(mean x^2 + eps)         one gain g (Nguyen & Salazar, 2019, arXiv 1910.05895; Mega's code)
BatchNorm(x) = (x - m) / sqrt(v + eps) * g + b    (Ioffe & Szegedy, 2015, arXiv 1502.03167)

B batch, N length, D width; m, v mean and variance per channel over all positions in the batch
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.ops.precision import upcast


def upcast_rms_norm(norm: nn.RMSNorm, x: Tensor) -> Tensor:
    """norm(x) in float32 or float64, whatever the types of x and of the weights."""
    return F.rms_norm(upcast(x), norm.normalized_shape, upcast(norm.weight), norm.eps)


class ScaleNorm(nn.Module):
    """(..., D) -> (..., D)."""

    def __init__(self, dim: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.gain * (upcast(x).square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return x * scale.to(x.dtype)


class BatchNorm(nn.BatchNorm1d):
    """(B, N, D), or (B, D) in decoding, -> the same shape, by torch's batch norm over all positions.

    A norm receives no mask, so padding counts in m and v, as in the published code of Mega and S5 (D-30). In training
    later tokens count as well, whatever the pattern. In evaluation m and v are the running means from training, and
    positions are independent. If a batch is read in parts, each part has its own m and v.
    """

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(0, -2)).view_as(x)
