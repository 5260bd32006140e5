"""Sums over a sequence, and exponentials, are not for 16 bits."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def upcast(x: Tensor) -> Tensor:
    """x in float32, or in float64 if it was."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def autocast_disabled(x: Tensor) -> torch.autocast:
    """Context in which products of widened tensors stay wide, on the device of x."""
    return torch.autocast(x.device.type, enabled=False)


def upcast_linear(linear: nn.Linear, x: Tensor) -> Tensor:
    """linear(x) in float32, or in float64 if x is: for what decides, not only for what is summed."""
    with autocast_disabled(x):
        bias = None if linear.bias is None else upcast(linear.bias)
        return F.linear(upcast(x), upcast(linear.weight), bias)
