"""Times calls and measures their memory on a shared machine, for do=bench and `benchmarks/`.

Candidates alternate within a run, so a slow machine slows all of them equally. Every other round runs in reverse order,
so that no candidate always follows the same neighbour. A sample lasts at least `min_sample_s`. It is discarded and
repeated if other processes used more than a tenth of a core meanwhile. It may also be repeated if the kernel spent more
than a tenth of it on new memory for the process, because training reuses its memory. Devices are synchronised. Results
are medians and quartiles.

A stopwatch times one sample: `timed_call` in wall-clock time, `processor_call` in processor time of this process, which
other processes disturb less, `CudaEvents` between two events on a GPU.
"""

import gc
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median, quantiles

import torch

from harness.records.machine import CPU_TIME_RESOLUTION_S, keep_freed_memory, other_cpu_s, return_freed_memory
from harness.records.provenance import peak_memory_mb, reset_peak_memory, resident_mb

MAX_OTHER_LOAD = 0.1  # fraction of a core that other processes may use during a sample
MAX_RETRIES = 4  # discarded samples per counted sample
MAX_NEW_MEMORY = 0.1  # fraction of a sample that the kernel may spend on new memory for the process
PAGES_PER_S = 100_000  # slowest rate at which a kernel provides pages; on virtual machines 100,000 to 1,000,000
COLD_RETRIES = 3  # cold samples that are repeated per candidate, or as many as it has rounds
CACHE_BYTES = 256 * 2**20  # more than the last-level cache of any GPU

Call = Callable[[], object]
Stopwatch = Callable[[Call, torch.device, int], tuple[float, bool]]  # (seconds of the calls, whether they were cold)


@dataclass(frozen=True)
class Timing:
    """Seconds of one call; a sample is the mean of `calls` in a row.

    `disturbed`: samples during which other processes used the machine. `cold`: samples that needed new memory.
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


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed_call(
    function: Call, device: torch.device, times: int = 1, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, bool]:
    """(seconds of `times` calls, whether they were cold: new memory took more than MAX_NEW_MEMORY of the time)."""
    synchronize(device)
    new_before, start = new_memory_s(), clock()
    for _ in range(times):
        function()
    synchronize(device)
    seconds = clock() - start
    return seconds, new_memory_s() - new_before > MAX_NEW_MEMORY * seconds


processor_call = partial(timed_call, clock=time.process_time)  # in processor seconds of this process


class CudaEvents:
    """Seconds between two CUDA events around the calls; the cache is overwritten before the first call.

    On a CPU it is `timed_call`.
    """

    def __init__(self, device: torch.device):
        size = CACHE_BYTES if device.type == "cuda" else 0
        self.filler = torch.empty(size, dtype=torch.int8, device=device)

    def __call__(self, function: Call, device: torch.device, times: int = 1) -> tuple[float, bool]:
        if device.type != "cuda":
            return timed_call(function, device, times)
        self.filler.zero_()
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        for _ in range(times):
            function()
        ended.record()
        torch.cuda.synchronize(device)
        return began.elapsed_time(ended) / 1e3, False


def time_alternating(
    candidates: Mapping[str, Call],
    *,
    device: torch.device,
    rounds: int | Mapping[str, int] = 5,
    least_rounds: int = 3,
    budget_s: float | None = None,
    min_sample_s: float = 0.05,
    stopwatch: Stopwatch = timed_call,
    retry_disturbed: bool = True,
    retry_cold: bool = False,
    warm: bool = True,
    seconds: Mapping[str, float] | None = None,
) -> dict[str, Timing]:
    """Timings of alternating calls. `rounds`: samples per candidate, as one number or per name.

    `budget_s`: no round begins after this many seconds, except for the first `least_rounds`; if single calls take
    longer than the budget, there is only one round.
    `warm`: the first call of each candidate is not counted.
    `seconds`: known durations; a long call with a known duration is not repeated to measure it.
    `retry_disturbed`: discard and repeat disturbed samples, at most MAX_RETRIES per counted sample.
    `retry_cold`: the same for samples that took new memory from the kernel. Call `keep_freed_memory` first: without it
    every large tensor is new memory.
    """
    durations = dict(seconds or {})
    for name, function in candidates.items():
        if warm:
            function()
        if durations.get(name, 0.0) <= min_sample_s:
            durations[name] = stopwatch(function, device, 1)[0]
    calls = {name: max(1, round(min_sample_s / max(durations[name], 1e-9))) for name in candidates}
    rounds_of = rounds if isinstance(rounds, Mapping) else dict.fromkeys(candidates, rounds)
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    disturbed, retries = dict.fromkeys(candidates, 0), MAX_RETRIES * sum(rounds_of.values())
    cold, cold_retries = dict.fromkeys(candidates, 0), {name: max(COLD_RETRIES, rounds_of[name]) for name in candidates}
    if budget_s is not None and sum(durations.values()) > budget_s:
        least_rounds = 1
    began = time.perf_counter()
    for round_ in range(max(rounds_of.values(), default=0)):
        if budget_s is not None and round_ >= least_rounds and time.perf_counter() - began >= budget_s:
            break
        names = [name for name in candidates if round_ < rounds_of[name]]
        for name in reversed(names) if round_ % 2 else names:
            while True:
                before, start = other_cpu_s(), time.perf_counter()
                spent, is_cold = stopwatch(candidates[name], device, calls[name])
                used = other_cpu_s() - before
                undisturbed = used <= MAX_OTHER_LOAD * (time.perf_counter() - start) + CPU_TIME_RESOLUTION_S
                if retry_cold and is_cold and cold_retries[name]:
                    cold_retries[name] -= 1
                elif undisturbed or not retry_disturbed or retries == 0:
                    break
                else:
                    retries -= 1
            samples[name].append(spent / calls[name])
            disturbed[name] += retry_disturbed and not undisturbed
            cold[name] += retry_cold and is_cold
    return {name: Timing(tuple(samples[name]), disturbed[name], calls[name], cold[name]) for name in candidates}


def new_memory_s() -> float:
    """Upper bound of the seconds that the kernel has spent on new memory for this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt / PAGES_PER_S


def peak_mb(function: Call, device: torch.device, *, warm: bool = True) -> float:
    """Peak memory of a call beyond what is already allocated, in MiB: resident set (CPU) or allocator (CUDA).

    `warm`: measure the second call, because what the first leaves behind (compiled kernels, pools) is not the method's.
    """
    if warm:
        function()
    gc.collect()
    if device.type == "cuda":
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
        keep_freed_memory()  # the next timing runs with the same allocator as training
    return max(0.0, peak - before)
