"""Norms that torch does not have, or not for (B, N, D).

ScaleNorm(x) = g x / sqrt(mean x^2 + eps)         one gain g (Nguyen & Salazar, 2019, arXiv 1910.05895; Mega's code)
BatchNorm(x) = (x - m) / sqrt(v + eps) * g + b    (Ioffe & Szegedy, 2015, arXiv 1502.03167)

B batch, N length, D width; m, v mean and variance of each channel over all positions of the batch
"""

import torch
from torch import Tensor, nn

from models.ops.precision import upcast


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

    Positions of padding count in m and v, as in the published code of Mega and S5 (D-30): a norm sees no mask. So do
    later tokens, in training, whatever the pattern. In evaluation m and v are the running means of training, and no
    position depends on another. Where a batch is read in parts, each part has its own m and v.
    """

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(0, -2)).view_as(x)
