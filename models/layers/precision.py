"""Sums over a sequence, and exponentials, are not for 16 bits."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def widen(x: Tensor) -> Tensor:
    """x in float32, or in float64 if it was."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def without_autocast(x: Tensor) -> torch.autocast:
    """Context in which products of widened tensors stay wide, on the device of x."""
    return torch.autocast(x.device.type, enabled=False)


def wide_linear(linear: nn.Linear, x: Tensor) -> Tensor:
    """linear(x) in float32, or in float64 if x is: for what decides, not only for what is summed."""
    with without_autocast(x):
        return F.linear(widen(x), widen(linear.weight), widen(linear.bias))
