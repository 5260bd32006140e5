"""The one timer of do=bench and of `benchmarks/`: time and memory of calls on a machine that is shared.

Candidates alternate within one run, so whatever slows the machine slows all of them; every other round goes backwards,
so that none always follows the same neighbour. A sample lasts at least `min_sample_s`. A sample during which other
processes took more than a tenth of a core is discarded and taken again. So may be a sample of which the kernel took
more than a tenth to give the process new memory: training reuses what it has. Devices are synchronised. Results are
medians and quartiles.

A stopwatch times one sample: `timed_call` by the clock on the wall, `processor_call` by the processor time of this
process, which other processes disturb less, `CudaEvents` between two events on a GPU.
"""

import gc
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

import torch

from harness.records.machine import CPU_TIME_RESOLUTION_S, keep_freed_memory, other_cpu_s, return_freed_memory
from harness.records.provenance import peak_memory_mb, reset_peak_memory, resident_mb

MAX_OTHER_LOAD = 0.1  # fraction of a core that other processes may use during a sample
MAX_RETRIES = 4  # discarded samples per sample that counts
MAX_NEW_MEMORY = 0.1  # fraction of a sample that the kernel may take to give the process new memory
PAGES_PER_S = 100_000  # that a kernel gives at least; on a virtual machine 100,000 to 1,000,000
COLD_RETRIES = 3  # cold samples of a candidate that are taken again; more where it has more rounds
CACHE_BYTES = 256 * 2**20  # more than the last cache of any GPU

Call = Callable[[], object]
Stopwatch = Callable[[Call, torch.device, int], tuple[float, bool]]  # seconds of so many calls, whether they were cold


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


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed_call(
    function: Call, device: torch.device, times: int = 1, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, bool]:
    """Seconds of so many calls, and whether they were cold: new memory took more than MAX_NEW_MEMORY of them."""
    synchronize(device)
    new_before, start = new_memory_s(), clock()
    for _ in range(times):
        function()
    synchronize(device)
    seconds = clock() - start
    return seconds, new_memory_s() - new_before > MAX_NEW_MEMORY * seconds


def processor_call(function: Call, device: torch.device, times: int = 1) -> tuple[float, bool]:
    """As `timed_call`, in processor seconds of this process."""
    return timed_call(function, device, times, time.process_time)


class CudaEvents:
    """Seconds between two CUDA events around the calls, the first of which finds its inputs outside the cache.

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
    pause_s: float = 0.0,
    worker_pids: Sequence[int] = (),
    warm: bool = True,
    seconds: Mapping[str, float] | None = None,
) -> dict[str, Timing]:
    """Timings of calls that alternate, with `rounds` samples each, or the number that it holds per candidate.

    `budget_s`: no round begins after so many seconds, except for the first `least_rounds`; where single calls take
    longer than the budget, there is one round.
    `warm`: the first call of each candidate is not counted.
    `seconds`: duration of a call, where it is known; a long call is then not made again to learn it.
    `retry_disturbed`: discard disturbed samples and take them again, at most MAX_RETRIES per sample that counts.
    `retry_cold`: the same for samples that took new memory from the kernel. It asks for `keep_freed_memory`: without
    it every large tensor is new.
    `pause_s`: seconds of rest before each sample, followed by one uncounted call, for candidates whose threads would
    disturb the next candidate's. `worker_pids`: processes whose CPU time belongs to the candidates.
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
                if pause_s:
                    time.sleep(pause_s)
                    candidates[name]()
                before, start = other_cpu_s(worker_pids), time.perf_counter()
                spent, is_cold = stopwatch(candidates[name], device, calls[name])
                used = other_cpu_s(worker_pids) - before
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
    """Seconds, at most, in which the kernel gave this process the memory that it has taken until now."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt / PAGES_PER_S


def peak_mb(function: Call, device: torch.device, *, warm: bool = True) -> float:
    """Memory that a call takes in addition to what is allocated: resident set (CPU) or allocator (CUDA), in MiB.

    `warm`: measure a second call, because what the first one leaves (compiled kernels, pools) is no cost of the method.
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
        keep_freed_memory()  # what is timed next is timed as it is trained
    return max(0.0, peak - before)
