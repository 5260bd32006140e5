"""Memory as torch counts its allocations: the same on every machine, whatever else the process holds.

A resident set depends on the pages that the kernel and the allocator keep, which differ between machines.
"""

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LargestStorage(TorchDispatchMode):
    """Numbers in the largest storage that an operation returns, including the backward pass."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.numbers = max(self.numbers, leaf.untyped_storage().nbytes() // leaf.element_size())
        return result


def peak_allocated_mb(call: Callable[[], object]) -> float:
    """Peak memory of a call's CPU tensors, in MiB."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    allocated = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            allocated += event.nbytes()
            peak = max(peak, allocated)
    return peak / 2**20


def saved_for_backward(call: Callable[[], object]) -> list[torch.Tensor]:
    """The tensors that a call saves for its backward pass."""
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        call()
    return kept
