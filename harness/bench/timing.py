"""Time and memory of calls on a machine that other processes use too.

Candidates alternate within one run, so whatever slows the machine slows all of them. A sample lasts at least
`min_sample_s`. A sample during which other processes took more than a tenth of a core is discarded and taken again. So
may be one of which the kernel took more than a tenth to give the process new memory: training reuses what it has.
Devices are synchronised. Results are medians and quartiles.
"""

import gc
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from harness.records.machine import CPU_TIME_RESOLUTION_S, keep_freed_memory, other_cpu_s, return_freed_memory
from harness.records.provenance import peak_memory_mb, reset_peak_memory, resident_mb

MAX_OTHER_LOAD = 0.1  # fraction of a core that other processes may use during a sample
MAX_RETRIES = 4  # discarded samples for each that counts
MAX_NEW_MEMORY = 0.1  # fraction of a sample that the kernel may take to give the process new memory
PAGES_PER_S = 100_000  # that a kernel gives at least; on a virtual machine 100,000 to 1,000,000
COLD_RETRIES = 3  # samples of a candidate that are taken again for it; more where it has more rounds


@dataclass(frozen=True)
class Timing:
    """Seconds of one call; a sample is the mean of `calls` in a row.

    `disturbed`: samples during which other processes used the machine. `cold`: samples that took new memory.
    """

    samples: tuple[float, ...]
    disturbed: int = 0
    calls: int = 1
    cold: int = 0

    @property
    def median(self) -> float:
        return median(self.samples)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.samples) == 1:
            return self.samples[0], self.samples[0]
        first, _, third = quantiles(self.samples, n=4, method="inclusive")
        return first, third


def synchronize(device: Any) -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def time_alternating(
    candidates: Mapping[str, Callable[[], object]],
    *,
    device: Any,
    rounds: int | Mapping[str, int] = 5,
    min_sample_s: float = 0.05,
    retry_disturbed: bool = True,
    retry_cold: bool = False,
    pause_s: float = 0.0,
    worker_pids: Sequence[int] = (),
    warm: bool = True,
    seconds: Mapping[str, float] | None = None,
) -> dict[str, Timing]:
    """Timings of calls that alternate, `rounds` samples of each, or as many as it says for each. With `warm` the first
    call of each is not counted.

    `seconds`: what one call took, where that is known; a long call is then not made again to learn it.
    `retry_disturbed`: discard disturbed samples and take them again, at most MAX_RETRIES for each that counts.
    `retry_cold`: the same for samples that took new memory from the kernel. It asks for `keep_freed_memory`: without
    it every large tensor is new.
    `pause_s`: seconds of rest before each sample, followed by one uncounted call, for candidates whose threads would
    disturb the next one's. `worker_pids`: processes whose CPU time belongs to the candidates.
    """
    calls, samples = {}, {name: [] for name in candidates}
    for name, function in candidates.items():
        if warm:
            function()
        known = (seconds or {}).get(name, 0.0)
        calls[name] = 1 if known > min_sample_s else max(1, round(min_sample_s / timed_call(function, device)[0]))
    rounds_of = rounds if isinstance(rounds, Mapping) else dict.fromkeys(candidates, rounds)
    disturbed, retries = dict.fromkeys(candidates, 0), MAX_RETRIES * sum(rounds_of.values())
    cold, cold_retries = dict.fromkeys(candidates, 0), {name: max(COLD_RETRIES, rounds_of[name]) for name in candidates}
    for round_ in range(max(rounds_of.values(), default=0)):
        for name, function in ((name, candidates[name]) for name in candidates if round_ < rounds_of[name]):
            while True:
                if pause_s:
                    time.sleep(pause_s)
                    function()
                before = other_cpu_s(worker_pids)
                start = time.perf_counter()
                seconds, is_cold = timed_call(function, device, calls[name])
                used = other_cpu_s(worker_pids) - before
                undisturbed = used <= MAX_OTHER_LOAD * (time.perf_counter() - start) + CPU_TIME_RESOLUTION_S
                if retry_cold and is_cold and cold_retries[name]:
                    cold_retries[name] -= 1
                elif undisturbed or not retry_disturbed or retries == 0:
                    break
                else:
                    retries -= 1
            samples[name].append(seconds / calls[name])
            disturbed[name] += retry_disturbed and not undisturbed
            cold[name] += retry_cold and is_cold
    return {name: Timing(tuple(samples[name]), disturbed[name], calls[name], cold[name]) for name in candidates}


def timed_call(function: Callable[[], object], device: Any, times: int = 1) -> tuple[float, bool]:
    """Seconds of so many calls, and whether they were cold: new memory took more than MAX_NEW_MEMORY of them."""
    synchronize(device)
    new_before, start = new_memory_s(), time.perf_counter()
    for _ in range(times):
        function()
    synchronize(device)
    seconds = time.perf_counter() - start
    return seconds, new_memory_s() - new_before > MAX_NEW_MEMORY * seconds


def new_memory_s() -> float:
    """Seconds, at most, in which the kernel gave this process the memory that it has taken until now."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt / PAGES_PER_S


def peak_mb(function: Callable[[], object], device: Any, *, warm: bool = True) -> float:
    """Memory that a call takes in addition to what is allocated: resident set (CPU) or allocator (CUDA), in MiB.

    `warm`: measure a second call, because what the first one leaves (compiled kernels, pools) is no cost of the method.
    """
    if warm:
        function()
    gc.collect()
    if device.type == "cuda":
        import torch

        synchronize(device)
        before = torch.cuda.memory_allocated(device) / 2**20
    else:
        return_freed_memory()
        before = resident_mb()
    try:
        reset_peak_memory(device)
        result = function()
        synchronize(device)
        peak = peak_memory_mb(device)
        del result
    finally:
        keep_freed_memory()  # what is timed next is timed as it is trained
    return max(0.0, peak - before)
