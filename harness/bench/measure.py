"""The points of do=bench: time and memory of a call at each length.

The status of a point is `ok`; `extrapolated: ...` for a call that exceeds `bench.limit_s` or `bench.limit_gb` and is
extrapolated from the model's shorter points; `skipped: ...` where fewer than two shorter points were measured; `oom`;
or the reason why the model has no such call.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig
from torch import Tensor
from torch.utils._pytree import tree_leaves

from harness.bench.timing import Call, Timing, peak_mb, time_alternating, timed_call
from harness.progress import Progress
from harness.records.machine import keep_freed_memory
from harness.report.stats.growth import exponent

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
OK, SKIPPED, OOM, EXTRAPOLATED = "ok", "skipped", "oom", "extrapolated"
FITTED = 3  # longest measured points that an exponent is fitted to
FIRST_CALLS = 8  # uncounted calls, at most, before a model is timed
LONGEST_BLIND = 65_536  # tokens of a first point that is measured without an estimate
PROBED = 2_048  # tokens of the call that gives it
LONG_CALL_S = 10.0  # a first call that takes longer is not repeated
LONG_RUN_S = 60.0  # for all samples at one length; models share it equally, at least one sample each
SHARE_OF_MEMORY = 0.7  # share of the free memory that a call may take


class Timed(NamedTuple):
    """A call to time. `memory_mb`: MiB that are known without a call, such as those of a state; without it, the memory
    is the peak of a call plus `resident`, the MiB held between calls."""

    call: Call
    memory_mb: float | None = None
    resident: Callable[[], float] = lambda: 0.0


Prepare = Callable[[str, int], Timed]  # (measure, length) -> the call to time


def measure_points(
    cfg: DictConfig,
    measure: str,
    lengths: Sequence[int],
    prepare: Mapping[str, Prepare],
    device: torch.device,
    progress: Progress,
    **series: Any,
) -> list[dict[str, Any]]:
    """Points of one measure, length by length; at each length the models alternate. `series` is part of every point."""
    points = {name: [] for name in prepare}
    keep_freed_memory()  # as training does
    for index, length in enumerate(lengths):
        progress.update(measure, index, len(lengths), f"n = {length:,}")
        calls, status, seconds = {}, {}, {}
        for name, make in prepare.items():
            if reason := over_limit(cfg, points[name], length, device):
                status[name] = f"{SKIPPED}: {reason}"
                continue
            try:
                if reason := over_limit_by_probe(cfg, make, measure, length, device, points[name]):
                    status[name] = f"{SKIPPED}: {reason}"
                    continue
                timed = make(measure, length)
                seconds[name] = first_calls(timed, device)
                calls[name] = timed
            except NotImplementedError as error:
                status[name] = str(error)
            except (torch.cuda.OutOfMemoryError, MemoryError):
                status[name] = OOM
        timings = timings_of(cfg, {name: timed.call for name, timed in calls.items()}, device, seconds)
        memory = {name: memory_taken(timed, device) for name, timed in calls.items()}
        for name in prepare:
            point = {"model": name, "what": measure, **series, "length": length, "status": status.get(name, OK)}
            if name in timings:
                point |= {"memory_mb": memory[name], **times_of(timings[name])}
            points[name].append(point)
    progress.update(measure, len(lengths), len(lengths))
    for points_of_model in points.values():
        extrapolate_skipped(points_of_model)
    return [points[name][index] for index in range(len(lengths)) for name in prepare]


def first_calls(timed: Timed, device: torch.device) -> float:
    """Seconds of an uncounted call. A short call is repeated until it takes no new memory from the kernel.

    Freed memory is kept, but glibc before 2.38 reuses a large tensor's memory for an equal tensor only after several
    steps. Until then a model with gigabytes of activations takes two to four times as long.
    """
    seconds = 0.0
    for _ in range(FIRST_CALLS):
        seconds, cold = timed_call(timed.call, device)
        if not cold or seconds > LONG_CALL_S:
            break
    return seconds


def memory_taken(timed: Timed, device: torch.device) -> float:
    """MiB of a call. Measured after all times: it returns freed memory to the kernel, which slows the next call."""
    if timed.memory_mb is not None:
        return timed.memory_mb
    return peak_mb(timed.call, device, warm=False) + timed.resident()


def timings_of(
    cfg: DictConfig, calls: Mapping[str, Call], device: torch.device, seconds: Mapping[str, float]
) -> dict[str, Timing]:
    """Timings of calls that take about `seconds` each: the longer a call, the fewer its samples."""
    share = LONG_RUN_S / max(1, len(calls))
    rounds = {name: max(1, min(cfg.bench.rounds, int(share / max(seconds[name], 1e-9)))) for name in calls}
    retry = device.type == "cpu" and sum(seconds[name] * rounds[name] for name in calls) < LONG_RUN_S / 2
    first = {"warm": False, "seconds": seconds}  # `first_calls` made them
    return time_alternating(calls, device=device, rounds=rounds, retry_disturbed=retry, retry_cold=True, **first)


def times_of(timing: Timing) -> dict[str, Any]:
    """Milliseconds and samples of a point."""
    return {"ms": 1e3 * timing.median, "ms_quartiles": [1e3 * s for s in timing.quartiles], **asdict(timing)}


def over_limit(cfg: DictConfig, points: Sequence[dict[str, Any]], length: int, device: torch.device) -> str:
    """The expected duration or memory, if it exceeds a limit; empty if the call may be made."""
    measured = [point for point in points if point["status"] == OK]
    # a single point may belong to softmax attention, so its time is taken to be quadratic
    seconds = expected([(point["length"], point["ms"] / 1e3) for point in measured], length, alone=2)
    if seconds > cfg.bench.limit_s:
        return f"about {seconds:.0f} s a call, bench.limit_s={cfg.bench.limit_s:g}"
    # a full GPU raises an error; on a CPU the kernel kills the process
    gigabytes = expected([(point["length"], point["memory_mb"] / 1024) for point in measured], length)
    limit = cfg.bench.limit_gb or (SHARE_OF_MEMORY * free_gb() if device.type == "cpu" else float("inf"))
    return f"about {gigabytes:.0f} GiB, more than {limit:.0f}" if gigabytes > limit else ""


def over_limit_by_probe(
    cfg: DictConfig, make: Prepare, measure: str, length: int, device: torch.device, points: Sequence[dict[str, Any]]
) -> str:
    """As `over_limit`, for a long length without a shorter point: a call at PROBED tokens tells what it would need."""
    if length <= LONGEST_BLIND or any(point["status"] == OK for point in points):
        return ""
    timed = make(measure, PROBED)
    seconds = min(timed_call(timed.call, device)[0] for _ in range(2))
    by_tokens = length / PROBED  # at least: softmax attention grows faster
    if seconds * by_tokens > cfg.bench.limit_s:
        return f"about {seconds * by_tokens:.0f} s a call or more, bench.limit_s={cfg.bench.limit_s:g}"
    probe = {"status": OK, "length": PROBED, "ms": 0.0, "memory_mb": memory_taken(timed, device)}
    return over_limit(cfg, [probe], length, device)


def free_gb() -> float:
    """GiB available to new processes; the whole memory where Linux does not report it."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:")) / 2**20
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def expected(measured: Sequence[tuple[int, float]], length: int, alone: int = 1) -> float:
    """The value expected at `length`: quadratic growth if the last two values grew faster than n^1.5, else linear.

    From a single value it grows with the power `alone`.
    """
    if not measured:
        return 0.0
    last_length, value = measured[-1]
    if len(measured) == 1:
        return value * (length / last_length) ** alone
    growth = max([1.0, *(b[1] / a[1] / (b[0] / a[0]) for a, b in pairwise(measured[-2:]) if a[1] > 0)])
    return value * (length / last_length) * (length / last_length if growth > 1.5 else 1.0)


def extrapolate_skipped(points: Sequence[dict[str, Any]]) -> None:
    """Extrapolate the skipped points of a model by the exponents of its longest measured points."""
    measured = [point for point in points if point["status"] == OK][-FITTED:]
    if len(measured) < 2:
        return
    lengths, last = [point["length"] for point in measured], measured[-1]
    slopes = {}
    for key in ("ms", "memory_mb"):
        values = [point[key] for point in measured]
        slopes[key] = exponent(lengths, values) if min(values) > 0 else 0.0
    for point in points:
        if point["status"].split(":")[0] == SKIPPED:
            reason = point["status"].removeprefix(f"{SKIPPED}: ")
            ratio = point["length"] / last["length"]
            point |= {key: last[key] * ratio**slope for key, slope in slopes.items()}
            point["status"] = f"{EXTRAPOLATED}: n^{slopes['ms']:z.2f} from {last['length']:,}; {reason}"


def memory_of(tree: Any) -> float:
    """MiB of the tensors in a tree."""
    return sum(leaf.nbytes for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)) / 2**20
