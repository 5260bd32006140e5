"""Sums over a sequence, and exponentials, are not for 16 bits."""

import torch
from torch import Tensor


def widen(x: Tensor) -> Tensor:
    """x in float32, or in float64 if it was."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def without_autocast(x: Tensor) -> torch.autocast:
    """Context in which products of widened tensors stay wide, on the device of x."""
    return torch.autocast(x.device.type, enabled=False)
