"""Computation in float32 or float64: sums over a sequence and exponentials are too inaccurate in 16 bits."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def upcast(x: Tensor) -> Tensor:
    """x in float32, or in float64 if it is."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def autocast_disabled(x: Tensor) -> torch.autocast:
    """Context that keeps products of upcast tensors in their type, on the device of x."""
    return torch.autocast("cpu" if x.is_meta else x.device.type, enabled=False)


def upcast_product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b of shapes (.., n, m) and (.., m, k), without gradient, in float32, or in float64 if they are.

    float16 factors are multiplied in float32: queries and keys near 100 have scores above float16's 65,504. bfloat16
    has the range of float32, so its product is rounded to 16 bits.
    """
    if a.dtype is not torch.float16:
        return upcast(a @ b)
    if a.is_cuda and hasattr(torch.ops.aten.bmm, "dtype"):  # since torch 2.8
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = (x.expand(*batch, -1, -1).flatten(0, -3) for x in (a, b))
        return torch.bmm(a, b, out_dtype=torch.float32).unflatten(0, batch)
    return upcast(a) @ upcast(b)


def upcast_linear(linear: nn.Linear, x: Tensor) -> Tensor:
    """linear(x) in float32, or in float64 if x is: for discrete choices such as hashes."""
    with autocast_disabled(x):
        bias = None if linear.bias is None else upcast(linear.bias)
        return F.linear(upcast(x), upcast(linear.weight), bias)
