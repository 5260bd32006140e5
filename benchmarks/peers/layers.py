"""Two layers with the same weights, (B, N, D) -> (B, N, D), in training mode, without dropout and padding."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.comparison import Sides, Tensors
from benchmarks.workloads import Workload
from models.attention.base import Attention, Pattern

BATCH, LENGTH = 4, 2048

Function = Callable[[Tensor], Tensor]
Weights = dict[str, Tensor]


def layer(
    kind: type[Attention], dim: int, heads: int, *, pattern: Pattern = Pattern.NONCAUSAL_SELF, **hyper: Any
) -> Attention:
    return kind(dim, heads, pattern=pattern, max_length=LENGTH, **hyper)


def projections(**linears: nn.Module) -> Weights:
    """Weights for linear layers of these names in ours, from the peer's linear layers."""
    return {f"{name}.{part}": value for name, linear in linears.items() for part, value in linear.named_parameters()}


@torch.no_grad()
def copy(model: nn.Module, values: Weights) -> None:
    """Raises ValueError unless `values` are those of all parameters, in their shapes."""
    parameters = dict(model.named_parameters())
    if set(values) != set(parameters):
        raise ValueError(f"other parameters: {sorted(set(values) ^ set(parameters))}")
    for name, value in values.items():
        parameters[name].copy_(value.reshape(parameters[name].shape))


@torch.no_grad()
def scatter(module: nn.Module, scale: float = 0.05) -> Weights:
    """Weights of `module` that are all random, by name."""
    for parameter in module.parameters():
        parameter.copy_(scale * torch.randn_like(parameter))
    return dict(module.named_parameters())


def sides_of(
    ours: Attention,
    theirs: nn.Module,
    call: Function | None = None,
    *,
    size: tuple[int, int] = (BATCH, LENGTH),
) -> Sides:
    """`call` reads theirs where it is not simply called. `size`: batch and length."""
    torch.manual_seed(0)
    x, cotangent = torch.randn(2, *size, ours.dim).unbind(0)
    functions = (lambda x: ours(x)[0], call or theirs)
    ours.train(), theirs.train()

    def values() -> tuple[Tensors, Tensors]:
        results = []
        for function in functions:
            leaf = x.clone().requires_grad_()
            y = function(leaf)
            y.backward(cotangent)
            results.append((y.detach(), leaf.grad))
        return tuple(results)

    parameters = (ours.parameters(), theirs.parameters())
    steps = (Workload(f, x, parameters=of_side).train for f, of_side in zip(functions, parameters, strict=True))
    return Sides(*steps, values, {"batch": size[0], "tokens": size[1], "width": ours.dim, "heads": ours.heads})
