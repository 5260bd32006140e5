"""Questions to a layer: what an output depends on, and whether two ways to compute it agree.

A diagram shows answers, so it is true of the code. Everything is in float64 with a fixed seed, on one CPU thread's
arithmetic, and what is shown is rounded. So every machine draws the same picture.
"""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

SAME = 1e-12  # two float64 computations of one thing differ by less


@contextlib.contextmanager
def exact(seed: int = 0) -> Iterator[None]:
    """New tensors are float64 and random numbers begin at the seed; both are as before afterwards."""
    default = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(default)


def tokens(length: int, width: int) -> Tensor:
    """Random inputs (1, N, D) that a gradient can be taken of."""
    return torch.randn(1, length, width).requires_grad_()


def unit_values(length: int, heads: int = 1) -> Tensor:
    """Unit vectors (1, H, N, N) as values: an output is then the row of its weights."""
    return torch.eye(length).expand(1, heads, length, length)


def dependence(y: Tensor, *inputs: Tensor) -> Tensor:
    """y (1, N, F), inputs (1, M_i, D_i) -> (N, sum M_i), True where row i of y depends on a row of the inputs."""
    rows = []
    for row in y[0]:
        # random weights: a plain sum of what a LayerNorm gives is constant
        probe = (row * torch.rand_like(row)).sum()
        gradients = [None] * len(inputs)
        if probe.requires_grad:
            gradients = torch.autograd.grad(probe, inputs, retain_graph=True, allow_unused=True)
        parts = [
            torch.zeros(x.shape[1], dtype=torch.bool) if g is None else (g[0] != 0).any(-1)
            for x, g in zip(inputs, gradients, strict=True)
        ]
        rows.append(torch.cat(parts))
    return torch.stack(rows)


def require(holds: bool | Tensor, claim: str) -> str:
    """The claim, for a note of the figure. Raises ValueError, and nothing is drawn, where it does not hold."""
    if not bool(holds):
        raise ValueError(f"the code does not do what the figure says: {claim}")
    return claim


def same(a: Tensor, b: Tensor, claim: str) -> str:
    """As `require`, of two results that must be equal up to the rounding of float64."""
    difference = (a - b).abs().max()
    return require(difference < SAME, f"{claim}: the largest difference is below {SAME:.0e}.")
