"""Goals of the core algorithms for one sequence: ratios to softmax attention, and microseconds on a GPU.

C4 to C10 are for a CPU (float32) and comparisons like the others. G1 to G6 are for one H200 (bfloat16): a ratio is the
time of the fastest backend of softmax attention that takes these inputs, or of flash-linear-attention's
`chunk_lightnet`, over ours. The latter is compared before it is timed. On CUDA a sample is the time between two events
around a call, whose inputs are no longer in the cache; numbers are medians of calls that take turns.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks import workloads
from benchmarks.comparison import Call, Comparison, Sides, difference
from benchmarks.gpu.part import MEASURED, SKIPPED, Item, PartRun, Row, row, rows_in_time
from benchmarks.workloads import PASSES, Sizes, Workload, random_heads, random_qkv
from harness.bench.timing import CudaEvents, time_alternating
from harness.errors import one_line
from models.attention.llp import paired_attention

FEWEST, MOST = 3, 100  # calls that are counted
BACKENDS = (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)
AGREE = 0.05  # a peer's largest difference from ours, as a share of the largest entry, in bfloat16


SMALL = Sizes(heads=8, width=32, slots=32)  # Latte and Luna on a CPU
WIDE = Sizes(heads=4, width=64, slots=64)
H200 = Sizes(
    heads=12, width=64, slots=64, segments=(2048, 4096, 8192, 16384), ratios=(1, 2, 4, 6), dtype=torch.bfloat16
)
TINY = Sizes(heads=2, width=8, slots=8, window=16, segments=(16, 32), ratios=(1, 2))
LENGTH, SAMPLE_S = 16384, 1.0  # of an H200; seconds per goal, about

LIGHTNET, SOFTMAX = "chunk_lightnet of flash-linear-attention", "softmax attention"
# id, workload, the other side: (forward, forward + backward)
GPU = {
    ("G1", "Latte", ""): (90, 330),
    ("G1", "Latte", LIGHTNET): (2.0, 2.0),
    ("G2", "Latte", SOFTMAX): (8.0, 8.0),
    ("G3", "LAVO, global half", ""): (45, None),
    ("G3", "LAVO", ""): (120, 420),
    ("G3", "LAVO", SOFTMAX): (6.0, None),
    ("G4", "window with a bias", ""): (75, None),
    ("G4", "window with a bias", SOFTMAX): (10.0, None),
    ("G4", "LLP, half segments", SOFTMAX): (10.0, None),
    ("G5", "LongNet", ""): (320, None),
    ("G5", "LongNet", SOFTMAX): (2.5, None),
    ("G6", "Luna", ""): (100, 350),
}
# id, workload, length: the same beside softmax attention
CPU = {
    ("C4", "Latte", 4096): (7.0, 7.0),
    ("C4", "Latte", 16384): (24.0, 24.0),
    ("C6", "LAVO", 1024): (1.0, 1.0),
    ("C6", "LAVO", 8192): (6.5, 5.5),
    ("C6", "LAVO", 16384): (12.5, 10.5),
    ("C6", "LAVO", 32768): (22.0, None),
    ("C7", "LAVO, global half", 16384): (30.0, 30.0),
    ("C8", "Luna", 16384): (20.0, 20.0),
    ("C9", "LongNet", 16384): (3.5, 3.0),
    ("C9", "LongNet", 32768): (6.0, None),
    ("C10", "window with a bias", 8192): (1 / 0.12, None),
}


def llp_workload(sizes: Sizes, length: int) -> Workload:
    q, k, v = random_qkv(sizes, length)
    return Workload(partial(paired_attention, half=sizes.window, causal=True), q[:, :, sizes.window :], k, v)


def lightnet_workload(sizes: Sizes, length: int) -> Workload:
    """Causal Latte by flash-linear-attention, which has tokens before heads. Raises ImportError without it."""
    from fla.ops.lightnet import chunk_lightnet

    def call(q: Tensor, logits: Tensor, v: Tensor) -> Tensor:
        tensors = (x.transpose(1, 2) for x in (q.softmax(-1), logits, v))
        return chunk_lightnet(*tensors, scale=1.0)[0].transpose(1, 2)

    return Workload(call, *random_heads(sizes, length, sizes.slots, sizes.slots, sizes.width))


Make = Callable[[Sizes, int], Workload]
WORKLOADS: dict[str, Make] = {
    "Latte": workloads.latte_workload, "Luna": workloads.luna_workload, "LAVO": workloads.lavo_workload,
    "LAVO, global half": workloads.global_workload, "window with a bias": workloads.window_workload,
    "LLP, half segments": llp_workload, "LongNet": workloads.longnet_workload,
    LIGHTNET: lightnet_workload, SOFTMAX: workloads.softmax_workload,
}  # fmt: skip


def peers_of(name: str, kind: str, ours: Workload, sizes: Sizes, length: int) -> dict[str, Call]:
    """The calls of the other side: one, or one per backend of softmax attention that takes these inputs.

    Raises ValueError for a peer whose output differs.
    """
    theirs = WORKLOADS[name](sizes, length)
    call = getattr(theirs, kind)
    if name != SOFTMAX:
        if not (gap := difference(theirs.forward().float(), ours.forward().float())) <= AGREE:
            raise ValueError(f"its output differs by {gap:.1e} of the largest: not timed")
        return {name: call}
    calls = {}
    for backend in BACKENDS if sizes.device.type == "cuda" else ():
        wrapped = sdpa_kernel(backend)(call)
        with contextlib.suppress(Exception):  # a backend that does not take them may fail in any way
            wrapped()
            calls[backend.name] = wrapped
    return calls or {SOFTMAX: call}


def goal_row(id: str, name: str, theirs: str, kind: str, goal: float, sizes: Sizes, length: int, seconds: float) -> Row:
    title, ours = f"{name}, {length:,}, {PASSES[kind]}", WORKLOADS[name](sizes, length)
    calls: dict[str, Call] = {"ours": getattr(ours, kind)}
    if theirs:
        title += f", vs {'the fastest ' if theirs == SOFTMAX else ''}{theirs}"
        try:
            calls |= peers_of(theirs, kind, ours, sizes, length)
        except Exception as error:  # foreign code may fail in any way
            return row(title, SKIPPED, f"{type(error).__name__}: {one_line(error)[:160]}", id=id)
    limits = {"rounds": MOST, "least_rounds": FEWEST, "budget_s": seconds, "min_sample_s": 0.0}
    options = {"stopwatch": CudaEvents(sizes.device), "retry_disturbed": False}
    times = time_alternating(calls, device=sizes.device, **limits, **options)
    microseconds = {each: 1e6 * timing.median for each, timing in times.items()}
    value, unit = microseconds.pop("ours"), "µs"
    if theirs:
        value, unit = min(microseconds.values()) / value, "×"
    met = value >= goal if theirs else value <= goal
    return row(title, MEASURED, id=id, value=value, unit=unit, goal=goal, at_least=bool(theirs), met=met)


def speed_rows(part_run: PartRun) -> Iterator[Row]:
    """One row per goal of a GPU. A missed goal is a measurement and no failure."""
    sizes, length = (TINY, 64) if part_run.tiny else (H200, LENGTH)
    sizes, seconds = replace(sizes, device=part_run.device), 0.0 if part_run.tiny else SAMPLE_S
    goals = [(*key, kind, goal) for key, pair in GPU.items() for kind, goal in zip(PASSES, pair, strict=True) if goal]
    items = [
        Item(f"{each[0]} {each[1]}", lambda each=each: [goal_row(*each, sizes, length, seconds)], {"name": each[1]})
        for each in goals
    ]
    yield from rows_in_time("goals", items, part_run)


def beside_softmax(name: str, length: int, kind: str, _: Path | None) -> Sides:
    sizes = SMALL if name in ("Latte", "Luna") else WIDE
    return Sides(*(getattr(WORKLOADS[each](sizes, length), kind) for each in (name, SOFTMAX)))


COMPARISONS = tuple(
    Comparison(f"{id} {name}, {n:,}, {PASSES[kind]}", SOFTMAX, partial(beside_softmax, name, n, kind), goal=goal)
    for (id, name, n), pair in CPU.items()
    for kind, goal in zip(PASSES, pair, strict=True)
    if goal
)
