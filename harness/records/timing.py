"""Time and memory of calls, honest on a machine that others use too.

Candidates take turns within one run, so that whatever slows the machine slows all of them. A sample lasts at least
`least_s`; one during which other processes took more than a tenth of a core is thrown away and taken again. Devices are
synchronised. Medians and quartiles, no means.
"""

import contextlib
import ctypes
import gc
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from harness.records.provenance import peak_memory_mb, reset_peak_memory, resident_mb

FOREIGN = 0.1  # share of a core that others may use during a sample
PATIENCE = 4  # samples that may be thrown away for each that counts


@dataclass(frozen=True)
class Timing:
    """Seconds of one call. `disturbed`: so many of the samples were taken although others used the machine."""

    samples: tuple[float, ...]
    disturbed: int = 0

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
    rounds: int = 5,
    least_s: float = 0.05,
    gate: bool = True,
    rest_s: float = 0.0,
    helpers: Sequence[int] = (),
) -> dict[str, Timing]:
    """Timings of calls that alternate, `rounds` samples of each. A first call of each is not counted.

    `gate` throws disturbed samples away. `rest_s`: pause before each sample, and one uncounted call after it, for
    candidates whose threads would disturb the next one's. `helpers`: process ids whose work is ours.
    """
    calls, samples = {}, {name: [] for name in candidates}
    for name, function in candidates.items():
        function()
        calls[name] = max(1, round(least_s / _seconds(function, 1, device)))
    disturbed, spare = dict.fromkeys(candidates, 0), PATIENCE * rounds * len(candidates)
    for _ in range(rounds):
        for name, function in candidates.items():
            while True:
                if rest_s:
                    time.sleep(rest_s)
                    function()
                before = _foreign_s(helpers)
                start = time.perf_counter()
                seconds = _seconds(function, calls[name], device)
                quiet = _foreign_s(helpers) - before <= FOREIGN * (time.perf_counter() - start) + _TICK
                if quiet or not gate or spare == 0:
                    break
                spare -= 1
            samples[name].append(seconds / calls[name])
            disturbed[name] += gate and not quiet
    return {name: Timing(tuple(samples[name]), disturbed[name]) for name in candidates}


def _seconds(function: Callable[[], object], calls: int, device: Any) -> float:
    synchronize(device)
    start = time.perf_counter()
    for _ in range(calls):
        function()
    synchronize(device)
    return time.perf_counter() - start


_TICK = 2 / os.sysconf("SC_CLK_TCK")  # what the counters below cannot tell from nothing


def _foreign_s(helpers: Sequence[int]) -> float:
    """CPU seconds that this machine has given to other processes; 0 where nobody tells."""
    ticks = os.sysconf("SC_CLK_TCK")
    try:
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, file.readline().split()[1:9])
        ours = 0
        for pid in helpers:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                ours += sum(map(int, file.read().rpartition(")")[2].split()[11:13]))  # user and system ticks
    except (OSError, ValueError):
        return 0.0
    own = os.times()
    busy = (user + nice + system + irq + softirq + steal - ours) / ticks
    return busy - own.user - own.system - own.children_user - own.children_system


def peak_mb(function: Callable[[], object], device: Any, *, warm: bool = True) -> float:
    """Memory that a call takes on top of what is there: resident set (CPU) or allocator (CUDA), in MiB.

    `warm`: of a second call, because what a first one leaves behind (compiled kernels, pools) is no cost of the method.
    """
    if warm:
        function()
    gc.collect()
    if device.type == "cuda":
        import torch

        synchronize(device)
        before = torch.cuda.memory_allocated(device) / 2**20
    else:
        give_back_freed_memory()
        before = resident_mb()
    reset_peak_memory(device)
    result = function()
    synchronize(device)
    peak = peak_memory_mb(device)
    del result
    return max(0.0, peak - before)


def give_back_freed_memory() -> None:
    """Have glibc return what is freed, now and from now on: it must not pass for what is there (`train` keeps it)."""
    trim_threshold, mmap_threshold, mmap_max = -1, -3, -4  # malloc.h
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_max, 65536)
        libc.mallopt(mmap_threshold, 128 * 1024)
        libc.mallopt(trim_threshold, 128 * 1024)
        libc.malloc_trim(0)


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float | None:
    """Slope of log(value) over log(size): 1 is linear, 2 quadratic. None for fewer than two points."""
    import numpy as np

    if len(sizes) < 2:
        return None
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def crossover(sizes: Sequence[int], ours: Sequence[float], peer: Sequence[float]) -> float | None:
    """Size from which `ours` stays below `peer`, interpolated in logarithms; sizes[0] if always, None if never."""
    import math

    gaps = [math.log(a / b) for a, b in zip(ours, peer, strict=True)]
    if not gaps or gaps[-1] >= 0:
        return None
    place = max((i for i, gap in enumerate(gaps) if gap >= 0), default=None)
    if place is None:
        return float(sizes[0])
    share = gaps[place] / (gaps[place] - gaps[place + 1])
    low, high = math.log(sizes[place]), math.log(sizes[place + 1])
    return math.exp(low + share * (high - low))
