"""C1 to C11: how many times faster than a peer in the same run, and how time grows with the length."""

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.attention.peers import JaxLatte, latte_layer, latte_loop, latte_materialised, layer_leaves, luna_loop
from benchmarks.attention.workloads import (
    PASSES,
    Measurement,
    Sizes,
    Timer,
    Workload,
    at_most,
    global_workload,
    latte,
    latte_workload,
    lavo_workload,
    longnet_workload,
    luna_workload,
    random_heads,
    random_qkv,
    softmax_workload,
    speedups,
    window_workload,
    without_unit,
)
from harness.report.stats.growth import exponent
from models.ops.banded import banded_attention
from models.ops.running_softmax import running_softmax

SMALL = Sizes(heads=8, width=32, slots=32)  # Latte and Luna
WIDE = Sizes(heads=4, width=64, slots=64)  # LAVO, LongNet, windows
# batch, heads, width, latents, goals forward and forward + backward
LATTE_LAYERS = {"C1": (2, 4, 128, 128, (4.0, 10.0)), "C2": (1, 8, 512, 128, (2.4, 5.5))}


def c1_c2(timer: Timer, id: str) -> Iterator[Measurement]:
    """Latte layers of Listing 1 at 65,536 tokens against the paper's scan in JAX at the better of two unrolls."""
    batch, heads, dim, latents, goals = LATTE_LAYERS[id]
    leaves = layer_leaves(batch, 65536, dim, latents)
    ours = Workload(partial(latte_layer, running_softmax, heads), *leaves)
    for (kind, name), goal in zip(PASSES.items(), goals, strict=True):
        # ten steps at once cost minutes of compiling in the backward pass, and are the slower ones there
        unrolls = (1, 10) if kind == "forward" else (1,)
        peers = [JaxLatte(unroll, heads, leaves, gradients=kind == "train") for unroll in unrolls]
        calls = {"ours": getattr(ours, kind)} | {f"jax {peer.unroll}": peer.call for peer in peers}
        try:
            options = {"pause_s": 0.4, "worker_pids": [peer.pid for peer in peers], "min_sample_s": 0.0}
            times = timer.seconds(calls, **options)
        finally:
            for peer in peers:
                peer.close()
        our_time = times.pop("ours")
        title = f"Latte layer B={batch} H={heads} D={dim}, 65,536 vs the paper's scan in JAX, {name}"
        yield Measurement(id, title, min(times.values()) / our_time, goal)


def c3(timer: Timer) -> Iterator[Measurement]:
    """The same layer, in torch, token by token and with all prefix sums at once."""
    leaves = layer_leaves(2, 4096, 128, 128)
    ours, *peers = (
        Workload(partial(latte_layer, core, 4), *leaves) for core in (running_softmax, latte_loop, latte_materialised)
    )
    for name, peer, goals in zip(("loop", "materialised sums"), peers, ((15, 25), (20, 17)), strict=True):
        yield from speedups("C3", f"Latte layer, 4,096, vs {name}", timer, ours, peer, goals)


def c4(timer: Timer) -> Iterator[Measurement]:
    for length, goal in ((4096, 7.0), (16384, 24.0)):
        ours, peer = latte_workload(SMALL, length), softmax_workload(SMALL, length)
        title = f"Latte core (8 heads of 32, 32 latents), {length:,}, vs softmax"
        yield from speedups("C4", title, timer, ours, peer, (goal, goal))


def c5(timer: Timer) -> Iterator[Measurement]:
    """Logits that jump by hundreds, against logits that do not."""
    q, logits, v = random_heads(SMALL, 16384, 32, 32, 32)
    stairs = logits + 100.0 * (torch.arange(16384) // 64)[:, None]  # every tile rises by more than the fast path bears
    calm, wild = (Workload(latte, q, k, v) for k in (logits, stairs))
    for kind, name in PASSES.items():
        title = f"always-stable path vs fast path, 16,384, {name}"
        yield at_most("C5", title, timer.ratio(calm, wild, kind), 2.5)
    finite = all(torch.isfinite(t).all() for t in (wild.forward(), *wild.train()))
    yield Measurement("C5", "share of finite numbers under jumps of hundreds", float(finite), 1.0, unit="")


def c6(timer: Timer) -> Iterator[Measurement]:
    all_goals = {1024: (1.0, 1.0), 8192: (6.5, 5.5), 16384: (12.5, 10.5), 32768: (22.0, None)}
    for length, goals in all_goals.items():
        title = f"LAVO (4 heads of 64, r 64, w 256), {length:,}, vs softmax"
        yield from speedups("C6", title, timer, lavo_workload(WIDE, length), softmax_workload(WIDE, length), goals)


def global_materialised(q: Tensor, x: Tensor, bases: Tensor) -> Tensor:
    """Equation 4 with every X~ made: (H, N, r, E)."""
    count = torch.arange(1, x.shape[2] + 1)[:, None]
    memory = (x @ bases.mT).cumsum(2) / count
    rows = memory[..., None] * bases[:, None]
    return ((rows @ q[..., None] / 8).softmax(-2) * rows).sum(-2)


def c7(timer: Timer) -> Iterator[Measurement]:
    title = "LAVO, global half only"
    ours, peer = global_workload(WIDE, 16384), softmax_workload(WIDE, 16384)
    yield from speedups("C7", f"{title}, 16,384, vs softmax", timer, ours, peer, (30, 30))
    ours, peer = global_workload(WIDE, 4096), global_workload(WIDE, 4096, global_materialised)
    yield from speedups("C7", f"{title}, 4,096, vs materialised", timer, ours, peer, (14, 14))


def c8(timer: Timer) -> Iterator[Measurement]:
    title = "Luna core (8 heads of 32, 32 slots), 16,384, vs softmax"
    yield from speedups("C8", title, timer, luna_workload(SMALL, 16384), softmax_workload(SMALL, 16384), (20, 20))
    ours, peer = luna_workload(SMALL, 4096), luna_workload(SMALL, 4096, luna_loop)
    yield from speedups("C8", "Luna core, 4,096, vs loop", timer, ours, peer, (28, None))


def c9(timer: Timer) -> Iterator[Measurement]:
    for length, goals in ((16384, (3.5, 3.0)), (32768, (6.0, None))):
        title = f"LongNet (2048,1)(4096,2)(8192,4), {length:,}, vs softmax"
        yield from speedups("C9", title, timer, longnet_workload(WIDE, length), softmax_workload(WIDE, length), goals)


def c10(timer: Timer) -> Iterator[Measurement]:
    window, softmax = window_workload(WIDE, 8192), softmax_workload(WIDE, 8192)
    title = "window of 256 with learnable bias, 8,192, vs softmax, forward"
    yield at_most("C10", title, timer.ratio(softmax, window, "forward"), 0.12)
    times = timer.seconds({"forward": window.forward, "train": window.train})
    yield at_most("C10", "the same, forward + backward vs its own forward", times["train"] / times["forward"], 4.0)


def c11(timer: Timer) -> Iterator[Measurement]:
    """Slopes of time over length."""

    def plain_window(sizes: Sizes, length: int) -> Workload:
        return Workload(partial(banded_attention, left=255, right=0), *random_qkv(sizes, length))

    makers = {
        "Latte core": (partial(latte_workload, SMALL), 65536),
        "Luna core": (partial(luna_workload, SMALL), 65536),
        "LAVO": (partial(lavo_workload, WIDE), 131072),
        "LAVO, global half": (partial(global_workload, WIDE), 131072),
        "window of 256": (partial(plain_window, WIDE), 65536),
    }
    for name, (make, longest) in makers.items():
        lengths = [4096 * 4**i for i in range(int(math.log(longest / 4096, 4)) + 1)]
        if lengths[-1] != longest:
            lengths.append(longest)
        workloads = {length: make(length) for length in lengths}
        for kind, spoken in PASSES.items():
            times = timer.seconds({str(length): getattr(workload, kind) for length, workload in workloads.items()})
            slope = exponent(lengths, [times[str(length)] for length in lengths])
            yield without_unit("C11", f"{name}, 4,096 to {longest:,}, time ~ n^a, {spoken}", slope, 1.05)


GOALS = {"C3": c3, "C4": c4, "C5": c5, "C6": c6, "C7": c7, "C8": c8, "C9": c9, "C10": c10, "C11": c11}
GOALS |= {id: partial(c1_c2, id=id) for id in LATTE_LAYERS}  # they compile for minutes
