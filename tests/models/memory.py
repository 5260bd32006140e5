"""Memory by torch's own count of what it allocates and frees: the same on every machine, whatever else a process holds.

A resident set depends on the pages that the kernel and the allocator keep, which differ between machines.
"""

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def peak_allocated_mb(call: Callable[[], object]) -> float:
    """The most that a call's tensors on the CPU take at one time, in MiB."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    allocated = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            allocated += event.nbytes()
            peak = max(peak, allocated)
    return peak / 2**20
