"""G1 to G8: the core algorithms on a GPU beside their peers, in one run.

One sequence of 16,384 tokens, 12 heads of 64, bfloat16; the goals are for an NVIDIA H200, and other devices have the
same lines. Peers: every backend of torch's softmax attention, flex attention with the same band, and `chunk_lightnet`
of flash-linear-attention, which is causal Latte, where they are installed. On CUDA a sample is the time between two
events around a call, whose inputs are no longer in the cache; numbers are medians.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.attention import workloads
from benchmarks.attention.workloads import (
    PASSES,
    SOFTPLUS,
    Measurement,
    Workload,
    at_most,
    random_heads,
    random_qkv,
    without_unit,
)
from benchmarks.gpu.part import MEASURED, SKIPPED, Item, PartRun, Row, row, rows_in_time
from harness.bench.timing import CudaEvents, peak_mb, time_alternating
from harness.errors import one_line
from harness.report.stats.growth import crossover, exponent
from models.attention.llp import paired_attention
from models.ops.packed_prefix import packed_prefix_step
from models.ops.running_softmax import empty_running_softmax, running_softmax_step

FEWEST, MOST = 3, 100  # calls that are counted
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
BACKENDS |= {"memory-efficient": SDPBackend.EFFICIENT_ATTENTION, "unfused": SDPBackend.MATH}
AGREE = 0.05  # a peer's largest difference from ours, as a share of the largest entry, in bfloat16
WORKLOADS = {
    "latte": workloads.latte_workload,
    "luna": workloads.luna_workload,
    "lavo": workloads.lavo_workload,
    "LAVO, global half": workloads.global_workload,
    "band": workloads.window_workload,
    "longnet": workloads.longnet_workload,
} | dict.fromkeys(BACKENDS, workloads.softmax_workload)


@dataclass(frozen=True, kw_only=True)
class GpuSizes(workloads.Sizes):
    """`crossing` are the lengths at which Latte may begin to win, `growing` those of its exponent."""

    heads: int = 12
    width: int = 64
    slots: int = 64
    segments: tuple[int, ...] = (2048, 4096, 8192, 16384)
    ratios: tuple[int, ...] = (1, 2, 4, 6)
    dtype: torch.dtype = torch.bfloat16
    length: int = 16384
    crossing: tuple[int, ...] = (512, 1024, 2048, 4096)
    growing: tuple[int, ...] = (8192, 32768, 131072)
    batches: tuple[int, int] = (16, 1)  # of decoding
    sample_s: float = 1.0  # per number, about


TINY = GpuSizes(
    **{"heads": 2, "width": 8, "slots": 8, "window": 16, "segments": (16, 32), "ratios": (1, 2)},
    **{"length": 64, "crossing": (16, 32), "growing": (32, 64), "batches": (2, 1)},
    **{"sample_s": 0.0, "dtype": torch.float32},
)


class Bench:
    """Microseconds of named workloads; each is measured once."""

    def __init__(self, device: torch.device, sizes: GpuSizes):
        self.device, self.sizes = device, replace(sizes, device=device)
        self.notes: list[str] = []  # peers that could not be measured, and why
        self.absent: set[str] = set()  # their names
        self.stopwatch = CudaEvents(device)
        self.flex = cache(partial(flex_band, self.sizes))  # compiled once
        self.forward, self.train = cache(partial(self._time, "forward")), cache(partial(self._time, "train"))

    def workload(self, name: str, length: int) -> Workload:
        """The workload of a core algorithm, of a backend of softmax attention, or of a peer."""
        s = self.sizes
        if name in WORKLOADS:
            return WORKLOADS[name](s, length)
        if name == "fla":
            return Workload(lightnet(), *random_heads(s, length, s.slots, s.slots, s.width))
        q, k, v = random_qkv(s, length)
        if name == "flex":
            return Workload(self.flex(length), q, k, v)
        if name == "llp":
            return Workload(partial(paired_attention, half=s.window, causal=True), q[:, :, s.window :], k, v)
        raise KeyError(name)

    def _time(self, kind: str, name: str, length: int) -> float:
        workload = self.workload(name, length)
        with sdpa_kernel(BACKENDS[name]) if name in BACKENDS else contextlib.nullcontext():
            return self.microseconds(getattr(workload, kind))

    def microseconds(self, call: Callable[[], object]) -> float:
        """The median of single calls."""
        limits = {"rounds": MOST, "least_rounds": FEWEST, "budget_s": self.sizes.sample_s, "min_sample_s": 0.0}
        options = {"stopwatch": self.stopwatch, "retry_disturbed": False}
        return 1e6 * time_alternating({"call": call}, device=self.device, **limits, **options)["call"].median

    def softmax(self, kind: str, length: int) -> float:
        """Microseconds of the fastest backend that takes these inputs. Raises RuntimeError if none does."""
        times = [time for backend in self.backends if (time := self.peer(backend, kind, length)) is not None]
        if not times:
            raise RuntimeError("no backend of softmax attention takes these inputs")
        return min(times)

    @cached_property
    def backends(self) -> list[str]:
        """All backends; on a GPU without the unfused one, whose N x N scores take gigabytes."""
        return list(BACKENDS)[:3] if self.device.type == "cuda" else ["flash", "unfused"]

    def peer(self, name: str, kind: str, length: int) -> float | None:
        """Microseconds of a peer. None, with a note, if it fails; a failed peer is not tried again."""
        if name in self.absent:
            return None
        try:
            return getattr(self, kind)(name, length)
        except Exception as error:  # foreign code may fail in any way
            self.absent.add(name)
            torch.cuda.empty_cache()
            self.notes.append(f"{name}, {length:,} tokens, {PASSES[kind]}: {reason(error)}")
            return None


def reason(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(error)[:160]}"


def lightnet() -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Causal Latte by flash-linear-attention, which has tokens before heads. Raises ImportError without it."""
    from fla.ops.lightnet import chunk_lightnet

    def call(q: Tensor, logits: Tensor, v: Tensor) -> Tensor:
        tensors = (x.transpose(1, 2) for x in (q.softmax(-1), logits, v))
        return chunk_lightnet(*tensors, scale=1.0)[0].transpose(1, 2)

    return call


def flex_band(sizes: GpuSizes, length: int) -> Callable[..., Tensor]:
    """Attention inside a causal band with a bias per distance, by torch's flex attention, compiled.

    The forward pass alone.
    """
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    window, bias = sizes.window, torch.zeros(sizes.heads, sizes.window, device=sizes.device, dtype=sizes.dtype)

    def near(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (j <= i) & (j > i - window)

    def scored(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + bias[h, (j - i + window - 1).clamp(0, window - 1)]

    mask = create_block_mask(near, None, None, length, length, device=str(sizes.device))
    compiled = torch.compile(flex_attention, dynamic=False)
    options = {"score_mod": scored, "block_mask": mask}
    # on a CPU it refuses inputs that require gradients, even without a backward pass
    return lambda q, k, v: compiled(q.detach(), k.detach(), v.detach(), **options)


def agrees(bench: Bench, ours: str, theirs: str) -> bool:
    """Whether two workloads give the same output; a note if they do not."""
    n = bench.sizes.length
    a, b = (bench.workload(name, n).forward().float() for name in (ours, theirs))
    difference = float((a - b).abs().max() / a.abs().max())
    if not difference <= AGREE:
        bench.notes.append(f"{theirs}: its output differs from ours by {difference:.1e} of the largest: not compared")
    return difference <= AGREE


def against_peer(
    bench: Bench, id: str, ours: str, theirs: str, kind: str, label: str, goal: float
) -> Iterator[Measurement]:
    """How many times faster than a peer that may be absent."""
    try:
        comparable = agrees(bench, ours, theirs)
    except Exception as error:
        bench.notes.append(f"{theirs}: {reason(error)}")
        return
    n = bench.sizes.length
    if comparable and (peer := bench.peer(theirs, kind, n)) is not None:
        yield Measurement(id, f"{label}, {PASSES[kind]}", peer / getattr(bench, kind)(ours, n), goal)


def g2(bench: Bench) -> Iterator[Measurement]:
    yield from measure_speed(bench, "G2")
    s = bench.sizes
    lengths = [*s.crossing, s.length]
    ours = [bench.forward("latte", n) for n in lengths]
    crossing = crossover(lengths, ours, [bench.softmax("forward", n) for n in lengths])
    title = f"Latte is faster than softmax attention from, forward, {lengths[0]:,} to {lengths[-1]:,}"
    yield at_most("G2", title, float("inf") if crossing is None else crossing, 2048, unit="tokens")
    slope = exponent(s.growing, [bench.forward("latte", n) for n in s.growing])
    title = f"Latte, {s.growing[0]:,} to {s.growing[-1]:,}, time ~ n^a, forward"
    yield without_unit("G2", title, slope, 1.05)


class SpeedGoals(NamedTuple):
    """Goals of a workload, by pass. `label` may name the window.

    `times` are in microseconds, `softmax_ratios` over the fastest softmax attention, `peer_ratios` over a peer on CUDA.
    """

    workload: str
    label: str
    times: Mapping[str, float] = {}
    softmax_ratios: Mapping[str, float] = {}
    peer: str = ""
    peer_label: str = ""
    peer_ratios: Mapping[str, float] = {}


LIGHTNET = ("fla", "chunk_lightnet of flash-linear-attention", {"forward": 2.0, "train": 2.0})
FLEX = ("flex", "flex attention, compiled", {"forward": 1.0})
BAND = "window of {window} with a bias"
SPEED_GOALS = {
    "G1": [SpeedGoals("latte", "Latte", {"forward": 90, "train": 330}, {}, *LIGHTNET)],
    "G2": [SpeedGoals("latte", "Latte", {}, {"forward": 8.0, "train": 8.0})],
    "G3": [
        SpeedGoals("LAVO, global half", "LAVO, global half", {"forward": 45}),
        SpeedGoals("lavo", "LAVO, window {window}", {"forward": 120, "train": 420}, {"forward": 6.0}),
    ],
    "G4": [
        SpeedGoals("band", BAND, {"forward": 75}, {"forward": 10.0}),
        SpeedGoals("llp", "LLP, half segment {window}", {}, {"forward": 10.0}),
        SpeedGoals("band", BAND, {}, {}, *FLEX),
    ],
    "G5": [SpeedGoals("longnet", "LongNet", {"forward": 320}, {"forward": 2.5})],
    "G6": [SpeedGoals("luna", "Luna", {"forward": 100, "train": 350})],
}


def measure_speed(bench: Bench, id: str) -> Iterator[Measurement]:
    n = bench.sizes.length
    for goals in SPEED_GOALS[id]:
        label = f"{goals.label.format(window=bench.sizes.window)}, {n:,}"
        for kind, goal in goals.times.items():
            time = getattr(bench, kind)(goals.workload, n)
            yield at_most(id, f"{label}, {PASSES[kind]}", time, goal, unit="µs")
        for kind, goal in goals.softmax_ratios.items():
            ratio = bench.softmax(kind, n) / getattr(bench, kind)(goals.workload, n)
            yield Measurement(id, f"{label}, {PASSES[kind]}, vs the fastest softmax attention", ratio, goal)
        if bench.device.type == "cuda":
            for kind, goal in goals.peer_ratios.items():
                title = f"{label}, vs {goals.peer_label}"
                yield from against_peer(bench, id, goals.workload, goals.peer, kind, title, goal)


@torch.no_grad()
def g7(bench: Bench) -> Iterator[Measurement]:
    """One more token, each a CUDA graph: Latte's and Luna's state beside softmax attention to all keys."""
    s = bench.sizes
    for batch, goal in zip(s.batches, (8.0, 1.0), strict=True):

        def token(*widths: int, batch: int = batch) -> list[Tensor]:
            return [torch.randn(batch, s.heads, width).to(bench.device, s.dtype) for width in widths]

        q, logits, v, k = token(s.slots, s.slots, s.width, s.width)
        state = empty_running_softmax(batch, s.heads, s.slots, s.width, v)
        weights, pack_q = q.softmax(-1), random_heads(s, s.slots, s.width)[0]
        total = torch.zeros(batch, s.heads, s.width, s.slots, device=bench.device)
        keys, values = (random_heads(s, s.length, s.width)[0].repeat(batch, 1, 1, 1).contiguous() for _ in range(2))
        calls = {
            "softmax": partial(F.scaled_dot_product_attention, v[:, :, None], keys, values),
            "Latte": partial(running_softmax_step, weights, logits, v, state),
            "Luna": partial(packed_prefix_step, v, k, k, pack_q, total, s.length, activation=SOFTPLUS),
        }
        times = {name: bench.microseconds(graphed(call, bench.device)) for name, call in calls.items()}
        for name in ("Latte", "Luna"):
            title = f"{name}, one token at {s.length:,}, batch {batch}, vs softmax attention to a cache"
            yield Measurement("G7", title, times["softmax"] / times[name], goal)


def graphed(call: Callable[[], object], device: torch.device) -> Callable[[], object]:
    """The call as a CUDA graph, without launch costs per kernel; on a CPU the call itself."""
    if device.type != "cuda":
        return call
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # warm up: a graph cannot capture the allocations of first calls
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def g8(bench: Bench) -> Iterator[Measurement]:
    n = bench.sizes.length
    workload = bench.workload("latte", n)
    sizes = [leaf.nbytes for leaf in workload.leaves]
    kept = (2 * sum(sizes) + 2 * workload.leaves[-1].nbytes) / 2**20  # with gradients; the output and its gradient
    used = sum(sizes) / 2**20 + peak_mb(workload.train, bench.device)
    title = f"Latte, {n:,}, forward + backward: peak memory over inputs, output and gradients"
    yield at_most("G8", title, used / kept, 1.3, unit="×")


GOALS = {id: partial(measure_speed, id=id) for id in SPEED_GOALS} | {"G2": g2, "G7": g7, "G8": g8}


def speed_rows(part_run: PartRun) -> Iterator[Row]:
    """One row per measurement. A missed goal is a measurement and no failure."""
    bench = Bench(part_run.device, TINY if part_run.tiny else GpuSizes())
    items = [Item(id, partial(goal_rows, bench, id), {"name": id, "id": id}) for id in GOALS]
    yield from rows_in_time("goals", items, part_run)
    yield from (row("a peer", SKIPPED, note) for note in bench.notes)


def goal_rows(bench: Bench, id: str) -> Iterator[Row]:
    for line in GOALS[id](bench):
        value = line.value if math.isfinite(line.value) else None
        numbers = {"id": line.id, "value": value, "unit": line.unit, "goal": line.goal}
        yield row(line.what, MEASURED, at_least=line.at_least, met=line.met, **numbers)
