"""Kernels of linear recurrences, for convolutions: sums of exponentials (S4D, Mega's moving average).

    K_l = Re sum_n c_n e^{r_n l},  l = 0 .. L - 1

With l = a T + b and T about sqrt(L) this is a matrix product, (c_n e^{r_n a T}) times (e^{r_n b}): O(n sqrt(L))
exponentials and numbers besides the kernel, instead of O(n L) with one exponential per mode and l.

    K kernels, D channels, n modes, L length
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from models.ops.precision import autocast_disabled


def exponential_sums(x: Tensor, rates: Tensor) -> Tensor:
    """sum_t e^{r_n (L - 1 - t)} x_t of real x (B, D, L) and r (D, n): (B, D, n), the state after L tokens."""
    length = x.shape[-1]
    size = math.ceil(math.sqrt(length))  # T; torch.compile cannot trace `isqrt`
    count = -(-length // size)
    with autocast_disabled(rates):
        steps = torch.arange(size, device=rates.device, dtype=rates.real.dtype).flip(0)
        blocks = size * steps[-count:]
        x = F.pad(x, (size * count - length, 0)).unflatten(-1, (count, size)).to(rates.dtype)  # (B, D, A, T)
        inside = torch.einsum("bdat,dnt->bdan", x, torch.exp(rates[..., None] * steps))
        return torch.einsum("bdan,dna->bdn", inside, torch.exp(rates[..., None] * blocks))


def exponential_kernel(coefficients: Tensor, rates: Tensor, length: int) -> Tensor:
    """c (.., D, n) and r (D, n), both real or both complex, Re r <= 0 -> (.., D, L), real, in their precision."""
    size = math.ceil(math.sqrt(length))  # T; torch.compile cannot trace `isqrt`
    with autocast_disabled(rates):
        steps = torch.arange(size, device=rates.device, dtype=rates.real.dtype)
        blocks = size * steps[: -(-length // size)]
        coarse = coefficients[..., None] * torch.exp(rates[..., None] * blocks)  # (.., D, n, A)
        fine = torch.exp(rates[..., None] * steps)  # (D, n, T)
        if rates.is_complex():  # Re c e = Re c Re e - Im c Im e: twice as many real modes
            coarse = torch.cat([coarse.real, -coarse.imag], -2)
            fine = torch.cat([fine.real, fine.imag], -2)
        return torch.einsum("...dna,dnt->...dat", coarse, fine).flatten(-2)[..., :length]
