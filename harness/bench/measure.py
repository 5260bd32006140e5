"""The points of do=bench: what is called forward, in training or in decoding, and its time and memory.

A point has a status: `ok`; `extrapolated: ...`, a call too long for `bench.limit_s` or too large for `bench.limit_gb`,
from the exponents of the model's shorter points; `skipped: ...`, where fewer than two of those were measured; `oom`;
or the reason of a refusal.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from harness.bench.timing import (
    Timing,
    peak_mb,
    synchronize,
    time_alternating,
    timed_call,
)
from harness.config import build
from harness.config.instantiate import instantiate, target
from harness.errors import UsageError
from harness.progress import Progress
from harness.records.machine import keep_freed_memory
from harness.report.stats.growth import exponent
from models.attention.base import Attention, Pattern

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
VOCABULARY = 256  # of the decoders
OK, SKIPPED, OOM, EXTRAPOLATED = "ok", "skipped", "oom", "extrapolated"
FITTED = 3  # measured points, the longest ones, that an exponent is fitted to
FIRST_CALLS = 8  # of a model, at most, before it is timed
LONG_CALL_S = 10.0  # after a call of so long there is no other first call
LONG_RUN_S = 60.0  # all samples of a length take about so long, those of one call a share of it, or there is one
LONG = 131072  # tokens; where a command has more, layers read their input in chunks
CHUNK = 32768
SHARE_OF_MEMORY = 0.7  # of what is free, that a call may take
KERNELS = 3  # operators that are named


class Timed(NamedTuple):
    """A call to be timed. `memory_mb`: known without a call, as of a state; else that of a call and what `resident`
    says is held between calls, in MiB."""

    call: Callable[[], object]
    memory_mb: float | None = None
    resident: Callable[[], float] = lambda: 0.0


Prepare = Callable[[str, int], Timed]  # (what, length) -> what is timed there


def build_bench_model(
    cfg: DictConfig, hyperparameters: dict[str, Any], device: torch.device, length: int, place: str | None = None
) -> nn.Module:
    """The model to be measured at `length`, with weights of seed 0: a layer, or a decoder of `bench.layers`.

    `place` is a device that replaces `device`. Raises UsageError for a model that cannot be built so.
    """
    torch.manual_seed(0)
    bench, trusted = cfg.bench, list(cfg.trusted_packages)
    constructor = target(hyperparameters, "model", trusted)
    if bench.layers is None:
        if not build.is_attention(constructor):
            raise UsageError("model: it is a whole decoder, not one layer: add bench.layers=2 to measure decoders")
        sizes = {"pattern": bench.pattern, "max_length": length}
        model = instantiate(hyperparameters, "model", trusted, bench.dim, bench.heads, **sizes)
    else:
        cfg = cfg.copy()
        sizes = {"dim": bench.dim, "heads": bench.heads, "layers": bench.layers, "ffn_dim": 4 * bench.dim}
        cfg.backbone = {**bench.decoder, **sizes}
        backbone_kwargs = {"vocab_size": VOCABULARY, "max_length": length, "pattern": bench.pattern}
        model = build.build_model(constructor, cfg, backbone_kwargs)
    return model.to(place or device, DTYPES[bench.precision]).eval()


def measure_points(
    cfg: DictConfig,
    what: str,
    lengths: Sequence[int],
    prepare: Mapping[str, Prepare],
    device: torch.device,
    progress: Progress,
    **series: Any,
) -> list[dict[str, Any]]:
    """Points of one measure, length by length: all models of a length take turns. `series` is part of each point."""
    points = {name: [] for name in prepare}
    keep_freed_memory()  # as training does
    for index, length in enumerate(lengths):
        progress.update(what, index, len(lengths), f"n = {length:,}")
        calls, status, seconds = {}, {}, {}
        for name, make in prepare.items():
            if too_much := over_limit(cfg, points[name], length, device):
                status[name] = f"{SKIPPED}: {too_much}"
                continue
            try:
                timed = make(what, length)
                seconds[name] = first_calls(timed, device)
                calls[name] = timed
            except NotImplementedError as error:
                status[name] = str(error)
            except (torch.cuda.OutOfMemoryError, MemoryError):
                status[name] = OOM
        timings = timings_of(cfg, {name: timed.call for name, timed in calls.items()}, device, seconds)
        memory = {name: memory_taken(timed, device) for name, timed in calls.items()}
        for name in prepare:
            point = {"model": name, "what": what, **series, "length": length, "status": status.get(name, OK)}
            if name in timings:
                low, high = timings[name].quartiles
                point |= {"ms": 1e3 * timings[name].median, "ms_quartiles": [1e3 * low, 1e3 * high]}
                point |= {"memory_mb": memory[name], **asdict(timings[name])}
            points[name].append(point)
    progress.update(what, len(lengths), len(lengths))
    for of_model in points.values():
        extrapolate_skipped(of_model)
    return [points[name][index] for index in range(len(lengths)) for name in prepare]


def first_calls(timed: Timed, device: torch.device) -> float:
    """Seconds of a call, which is not counted. A short one is made until it takes no new memory from the kernel.

    What a step frees is kept, but glibc before 2.38 can fit a large tensor into what an equal one left only after
    several steps. Until then a model with gigabytes of activations takes two to four times as long.
    """
    seconds = 0.0
    for _ in range(FIRST_CALLS):
        seconds, cold = timed_call(timed.call, device)
        if not cold or seconds > LONG_CALL_S:
            break
    return seconds


def memory_taken(timed: Timed, device: torch.device) -> float:
    """MiB, measured after all times: what is freed then is returned to the kernel, and a call after it pays for it."""
    if timed.memory_mb is not None:
        return timed.memory_mb
    return peak_mb(timed.call, device, warm=False) + timed.resident()


def timings_of(
    cfg: DictConfig, calls: Mapping[str, Callable], device: torch.device, seconds: Mapping[str, float]
) -> dict[str, Timing]:
    """Timings of calls. One call of each takes about `seconds`, and the longer it is, the fewer samples there are."""
    share = LONG_RUN_S / max(1, len(calls))
    rounds = {name: max(1, min(cfg.bench.rounds, int(share / max(seconds[name], 1e-9)))) for name in calls}
    retry = device.type == "cpu" and sum(seconds[name] * rounds[name] for name in calls) < LONG_RUN_S / 2
    once = {"warm": False, "seconds": seconds, "retry_cold": True}
    return time_alternating(calls, device=device, rounds=rounds, retry_disturbed=retry, **once)


def over_limit(cfg: DictConfig, points: Sequence[dict[str, Any]], length: int, device: torch.device) -> str:
    """Why a call is not made: what it is expected to take; empty for one that is made."""
    seconds = seconds_at(points, length, alone=2)  # softmax attention after one long call is known to be too long
    if seconds > cfg.bench.limit_s:
        return f"about {seconds:.0f} s a call, bench.limit_s={cfg.bench.limit_s:g}"
    # a GPU says itself that it is full; on a CPU the kernel would end the process
    gigabytes = expected([(p["length"], p["memory_mb"] / 1024) for p in points if p["status"] == OK], length)
    limit = cfg.bench.limit_gb or (SHARE_OF_MEMORY * free_gb() if device.type == "cpu" else float("inf"))
    return f"about {gigabytes:.0f} GiB, more than {limit:.0f}" if gigabytes > limit else ""


def seconds_at(points: Sequence[dict[str, Any]], length: int, alone: int = 1) -> float:
    """What a call is expected to take, from those that were measured; `alone` as in `expected`."""
    return expected([(p["length"], p["ms"] / 1e3) for p in points if p["status"] == OK], length, alone)


def free_gb() -> float:
    """GiB that processes of this machine can still be given; without Linux' word on it, all there are."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:")) / 2**20
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def expected(measured: Sequence[tuple[int, float]], length: int, alone: int = 1) -> float:
    """What is expected at `length`: quadratic if the last two values grew faster than n^1.5, else linear.

    A single value grows with the power `alone`.
    """
    if not measured:
        return 0.0
    last_length, value = measured[-1]
    if len(measured) == 1:
        return value * (length / last_length) ** alone
    growth = max([1.0, *(b[1] / a[1] / (b[0] / a[0]) for a, b in pairwise(measured[-2:]) if a[1] > 0)])
    return value * (length / last_length) * (length / last_length if growth > 1.5 else 1.0)


def extrapolate_skipped(points: Sequence[dict[str, Any]]) -> None:
    """Give the skipped points of a model the values that the exponents of its longest measured points lead to."""
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
            why = point["status"].removeprefix(f"{SKIPPED}: ")
            ratio = point["length"] / last["length"]
            point |= {key: last[key] * ratio**slope for key, slope in slopes.items()}
            point["status"] = f"{EXTRAPOLATED}: n^{slopes['ms']:z.2f} from {last['length']:,}; {why}"


def kernels(call: Callable[[], object], device: torch.device) -> list[str]:
    """The operators that take most of a call's time, the first one most, by torch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    on_gpu = device.type == "cuda"
    with (
        no_messages(),
        profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]) as found,
    ):
        call()
        synchronize(device)
    key = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    return [each.key for each in sorted(found.key_averages(), key=lambda one: -getattr(one, key))[:KERNELS]]


@contextlib.contextmanager
def no_messages() -> Iterator[None]:
    """Drop what libraries write to standard error by themselves: the profiler says when it starts and stops."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def random_inputs(model: nn.Module, cfg: DictConfig, device: torch.device, length: int) -> tuple[Tensor, ...]:
    """Inputs of `model`: x (B, N, D), a context of the same shape in the cross patterns; tokens (B, N) of a decoder."""
    generator = torch.Generator().manual_seed(1)
    shape = (cfg.bench.batch, length)
    if not isinstance(model, Attention):
        return (torch.randint(VOCABULARY, shape, generator=generator).to(device),)
    number = 2 if model.pattern.cross else 1
    tensors = (torch.randn(*shape, cfg.bench.dim, generator=generator) for _ in range(number))
    return tuple(x.to(device, DTYPES[cfg.bench.precision]) for x in tensors)


def output(model: nn.Module, *inputs: Tensor) -> Tensor:
    y = model(*inputs)
    return y[0] if isinstance(model, Attention) else y


def chunk_of(cfg: DictConfig) -> int | None:
    """Tokens that a layer reads at once; None: all of them."""
    return cfg.bench.chunk or (CHUNK if max(cfg.bench.lengths) > LONG else None)


def forward(model: nn.Module, cfg: DictConfig, device: torch.device, length: int) -> Timed:
    chunk = chunk_of(cfg)
    # a chunk of softmax attention needs a mask of all that came before, which is larger than anything of the whole
    if chunk is None or length <= chunk or not getattr(model, "linear", True):
        return Timed(torch.no_grad()(partial(output, model, *random_inputs(model, cfg, device, length))))
    if not isinstance(model, Attention) or model.pattern is not Pattern.CAUSAL_SELF:
        raise NotImplementedError(f"only causal layers read {length:,} tokens in chunks")
    # every chunk is this one: inputs of all would be most of the memory
    (x,) = random_inputs(model, cfg, device, chunk)

    @torch.no_grad()
    def call() -> None:
        state = model.init_state(cfg.bench.batch)
        for start in range(0, length, chunk):
            _, state = model.chunk(x[:, : length - start], state)

    return Timed(call)


def train(model: nn.Module, cfg: DictConfig, device: torch.device, length: int) -> Timed:
    inputs = random_inputs(model.train(), cfg, device, length)
    leaves = [x.requires_grad_() for x in inputs if x.is_floating_point()]

    def call() -> None:
        for leaf in (*leaves, *model.parameters()):
            leaf.grad = None
        output(model, *inputs).sum().backward()

    return Timed(call)


@torch.no_grad()
def decode(model: nn.Module, cfg: DictConfig, device: torch.device, length: int) -> Timed:
    """One token after `length` others. The memory is that of the state."""
    if cfg.bench.pattern != Pattern.CAUSAL_SELF:
        raise NotImplementedError(f"only causal_self decodes, this is {cfg.bench.pattern}")
    (x,) = random_inputs(model, cfg, device, length)
    if isinstance(model, Attention):
        state = model.chunk(x, model.init_state(cfg.bench.batch))[1]
    else:
        state = model.prefill(x)[1]

    @torch.no_grad()
    def call() -> Tensor:
        return model.step(x[:, 0], dict(state))[0]

    return Timed(call, memory_of(state))


def memory_of(tree: Any) -> float:
    """MiB of the tensors in a tree."""
    return sum(leaf.nbytes for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)) / 2**20


# what -> (model, cfg, device, length) -> what is timed
MEASURES = {"forward": forward, "train": train, "decode": decode}
