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


def upcast_product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b of shapes (.., n, m) and (.., m, k), without gradient, in float32, or in float64 if they are.

    Of float16 the product is float32's: scores of queries and keys near 100 are beyond its 65,504. bfloat16 has the
    range of float32, and its product is rounded to 16 bits.
    """
    if a.dtype is not torch.float16:
        return upcast(a @ b)
    if a.is_cuda and hasattr(torch.ops.aten.bmm, "dtype"):  # from torch 2.8 on
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = (x.expand(*batch, -1, -1).flatten(0, -3) for x in (a, b))
        return torch.bmm(a, b, out_dtype=torch.float32).unflatten(0, batch)
    return upcast(a) @ upcast(b)


def upcast_linear(linear: nn.Linear, x: Tensor) -> Tensor:
    """linear(x) in float32, or in float64 if x is: for what decides, not only for what is summed."""
    with autocast_disabled(x):
        bias = None if linear.bias is None else upcast(linear.bias)
        return F.linear(upcast(x), upcast(linear.weight), bias)
