"""Two forms of one function have the same results and gradients."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def gradients(results: Tensor | Sequence[Tensor], leaves: Iterable[Tensor | None]) -> tuple[Tensor, ...]:
    """Of one random combination of all results, by the leaves that are not None."""
    results, generator = several(results), torch.Generator().manual_seed(9)
    cotangents = [torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y.dtype) for y in results]
    leaves = [leaf for leaf in leaves if leaf is not None]
    return torch.autograd.grad(
        results, leaves, cotangents, retain_graph=True, allow_unused=True, materialize_grads=True
    )


def several(results: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [results] if isinstance(results, Tensor) else list(results)


def assert_same(ours, theirs, leaves: Iterable[Tensor | None] = (), *, atol: float = 1e-12, rtol: float = 0.0) -> None:
    """Results, and their gradients by `leaves`, which may differ by ten times as much."""
    for a, b in zip(several(ours), several(theirs), strict=True):
        torch.testing.assert_close(a, b, atol=atol, rtol=rtol)
    if leaves := [leaf for leaf in leaves if leaf is not None]:
        for index, pair in enumerate(zip(gradients(ours, leaves), gradients(theirs, leaves), strict=True)):
            torch.testing.assert_close(
                *pair, atol=10 * atol, rtol=10 * rtol, msg=lambda text, i=index: f"gradient of leaf {i}: {text}"
            )


def assert_close_to_largest(ours, exact, share: float) -> None:
    """Each tensor in few bits to a share of its largest exact entry."""
    for a, b in zip(several(ours), several(exact), strict=True):
        assert torch.isfinite(a).all()
        assert (a.double() - b.double()).abs().max() <= share * b.abs().max()
