"""C1 to C11: how many times faster than a peer in the same run, and how time grows with the length."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.attention.latte_worker import JaxLatte
from benchmarks.attention.workloads import (
    Measurement,
    Timer,
    Workload,
    latte_workload,
    lavo_workload,
    longnet,
    luna_workload,
    random_heads,
    softmax_workload,
    speedups,
)
from benchmarks.latte_scan import layer, loop, materialised
from benchmarks.luna_loop import luna_loop
from harness.report.stats.growth import exponent
from models.attention.lavo import past_memory, read
from models.ops.banded import banded_attention
from models.ops.packed_prefix import packed_prefix
from models.ops.running_softmax import running_softmax

LATTE_LAYERS = {"C1": (2, 4, 128, 128, 4.0, 10.0), "C2": (1, 8, 512, 128, 2.4, 5.5)}


def c1_c2(timer: Timer, id: str) -> Iterator[Measurement]:
    """Latte layers of Listing 1 at 65,536 tokens against the paper's scan in JAX at the better of two unrolls."""
    for batch, number, dim, latents, forward_goal, train_goal in [LATTE_LAYERS[id]]:
        generator = torch.Generator().manual_seed(0)
        x, q, k, v = (
            torch.randn(*shape, generator=generator) * gain
            for shape, gain in (((batch, 65536, dim), 1.0), *(((dim, n), dim**-0.5) for n in (latents, latents, dim)))
        )
        ours = Workload(partial(layer, running_softmax, number), x, q, k, v)
        for goal, what, call in (
            (forward_goal, "forward", ours.forward),
            (train_goal, "forward + backward", ours.train),
        ):
            # ten steps at once cost minutes of compiling in the backward pass, and are the slower ones there
            unrolls = (1, 10) if what == "forward" else (1,)
            peers = [JaxLatte(unroll, number, (x, q, k, v), what) for unroll in unrolls]
            try:
                names = {f"jax {peer.unroll}": peer.call for peer in peers}
                times = timer.seconds(
                    {"ours": call, **names}, pause_s=0.4, worker_pids=[peer.pid for peer in peers], min_sample_s=0.0
                )
            finally:
                for peer in peers:
                    peer.close()
            best = min(times[name] for name in names)
            size = f"layer B={batch} H={number} D={dim}, 65,536"
            yield Measurement(id, f"Latte {size} vs the paper's scan in JAX, {what}", best / times["ours"], goal)


def c3(timer: Timer) -> Iterator[Measurement]:
    """The same layer, in torch, token by token and with all prefix sums at once."""
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.randn(2, 4096, 128, generator=generator)]
    leaves += [torch.randn(128, n, generator=generator) * 128**-0.5 for n in (128, 128, 128)]
    ours = Workload(partial(layer, running_softmax, 4), *leaves)
    for name, core, goals in (("loop", loop, (15, 25)), ("materialised sums", materialised, (20, 17))):
        yield from speedups(
            "C3", f"Latte layer, 4,096, vs {name}", timer, ours, Workload(partial(layer, core, 4), *leaves), goals
        )


def c4(timer: Timer) -> Iterator[Measurement]:
    for length, goal in ((4096, 7.0), (16384, 24.0)):
        yield from speedups(
            "C4",
            f"Latte core (8 heads of 32, 32 latents), {length:,}, vs softmax",
            timer,
            latte_workload(8, length),
            softmax_workload(8, length, 32),
            (goal, goal),
        )


def c5(timer: Timer) -> Iterator[Measurement]:
    """Logits that jump by hundreds, against logits that do not."""
    q, logits, v = random_heads(8, 16384, 32, 32, 32)
    stairs = logits + 100.0 * (torch.arange(16384) // 64)[:, None]  # every tile rises by more than the fast path bears
    calm, wild = (Workload(lambda q, k, v: running_softmax(q.softmax(-1), k, v), q, k, v) for k in (logits, stairs))
    times = timer.forward_and_train({"calm": calm, "wild": wild})
    for name, place in (("forward", 0), ("forward + backward", 1)):
        yield Measurement(
            "C5",
            f"always-stable path vs fast path, 16,384, {name}",
            times["wild"][place] / times["calm"][place],
            2.5,
            at_least=False,
        )
    finite = all(torch.isfinite(t).all() for t in (wild.forward(), *wild.train()))
    yield Measurement("C5", "share of finite numbers under jumps of hundreds", float(finite), 1.0, unit="")


def c6(timer: Timer) -> Iterator[Measurement]:
    goals = {1024: (1.0, 1.0), 8192: (6.5, 5.5), 16384: (12.5, 10.5), 32768: (22.0, None)}
    for length, goal in goals.items():
        yield from speedups(
            "C6",
            f"LAVO (4 heads of 64, r 64, w 256), {length:,}, vs softmax",
            timer,
            lavo_workload(length),
            softmax_workload(4, length, 64),
            goal,
        )


def global_only(q: Tensor, x: Tensor, bases: Tensor) -> Tensor:
    return read(q, past_memory(x, bases, window=None), bases, window=1)


def global_materialised(q: Tensor, x: Tensor, bases: Tensor) -> Tensor:
    """Equation 4 with every X~ made: (H, N, r, E)."""
    count = torch.arange(1, x.shape[2] + 1)[:, None]
    memory = (x @ bases.mT).cumsum(2) / count
    rows = memory[..., None] * bases[:, None]
    return ((rows @ q[..., None] / 8).softmax(-2) * rows).sum(-2)


def c7(timer: Timer) -> Iterator[Measurement]:
    def workload(function: Callable[..., Tensor], length: int) -> Workload:
        q, x = random_heads(4, length, 64, 64)
        return Workload(
            function, q, x, torch.linalg.qr(torch.randn(4, 64, 64, generator=torch.Generator().manual_seed(0)))[0]
        )

    yield from speedups(
        "C7",
        "LAVO, global half only, 16,384, vs softmax",
        timer,
        workload(global_only, 16384),
        softmax_workload(4, 16384, 64),
        (30, 30),
    )
    yield from speedups(
        "C7",
        "LAVO, global half only, 4,096, vs materialised",
        timer,
        workload(global_only, 4096),
        workload(global_materialised, 4096),
        (14, 14),
    )


def c8(timer: Timer) -> Iterator[Measurement]:
    yield from speedups(
        "C8",
        "Luna core (8 heads of 32, 32 slots), 16,384, vs softmax",
        timer,
        luna_workload(packed_prefix, 16384),
        softmax_workload(8, 16384, 32),
        (20, 20),
    )
    yield from speedups(
        "C8",
        "Luna core, 4,096, vs loop",
        timer,
        luna_workload(packed_prefix, 4096),
        luna_workload(luna_loop, 4096),
        (28, None),
    )


def c9(timer: Timer) -> Iterator[Measurement]:
    for length, goals in ((16384, (3.5, 3.0)), (32768, (6.0, None))):
        ours = Workload(longnet((2048, 4096, 8192), (1, 2, 4), number=4), *random_heads(4, length, 64, 64, 64))
        what = f"LongNet (2048,1)(4096,2)(8192,4), {length:,}, vs softmax"
        yield from speedups("C9", what, timer, ours, softmax_workload(4, length, 64), goals)


def c10(timer: Timer) -> Iterator[Measurement]:
    q, k, v = random_heads(4, 8192, 64, 64, 64)
    bias = torch.zeros(4, 256)
    window = Workload(lambda q, k, v, bias: banded_attention(q, k, v, left=255, right=0, bias=bias), q, k, v, bias)
    times = timer.forward_and_train({"window": window, "softmax": softmax_workload(4, 8192, 64)})
    yield Measurement(
        "C10",
        "window of 256 with learnable bias, 8,192, vs softmax, forward",
        times["window"][0] / times["softmax"][0],
        0.12,
        at_least=False,
    )
    yield Measurement(
        "C10",
        "the same, forward + backward vs its own forward",
        times["window"][1] / times["window"][0],
        4.0,
        at_least=False,
    )


def c11(timer: Timer) -> Iterator[Measurement]:
    """Slopes of time over length."""
    makers = {
        "Latte core": (partial(latte_workload, 8), 65536),
        "Luna core": (partial(luna_workload, packed_prefix), 65536),
        "LAVO": (lavo_workload, 131072),
        "LAVO, global half": (
            lambda n: Workload(global_only, *random_heads(4, n, 64, 64), torch.linalg.qr(torch.randn(4, 64, 64))[0]),
            131072,
        ),
        "window of 256": (
            lambda n: Workload(partial(banded_attention, left=255, right=0), *random_heads(4, n, 64, 64, 64)),
            65536,
        ),
    }
    for name, (make, longest) in makers.items():
        lengths = [4096 * 4**i for i in range(int(math.log(longest / 4096, 4)) + 1)]
        lengths += [longest] if lengths[-1] != longest else []
        workloads = {n: make(n) for n in lengths}
        for what, kind in (("forward", "forward"), ("forward + backward", "train")):
            times = timer.seconds({str(n): getattr(workload, kind) for n, workload in workloads.items()})
            slope = exponent(lengths, [times[str(n)] for n in lengths])
            yield Measurement(
                "C11", f"{name}, 4,096 to {longest:,}, time ~ n^a, {what}", slope, 1.05, at_least=False, unit=""
            )


GOALS = {
    "C3": c3,
    "C4": c4,
    "C5": c5,
    "C6": c6,
    "C7": c7,
    "C8": c8,
    "C9": c9,
    "C10": c10,
    "C11": c11,
    "C1": partial(c1_c2, id="C1"),
    "C2": partial(c1_c2, id="C2"),
}
