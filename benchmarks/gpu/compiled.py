"""Layers under torch.compile (inductor) beside the same layers uncompiled: equal, and how much faster.

This part shows whether a recipe would gain by `resources.compile=true`.
"""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.gpu.models import Case, build, deviations, one_pass
from benchmarks.gpu.part import FAILED, OK, SKIPPED, Item, PartRun, Row, row, rows_in_time
from harness.bench.timing import time_alternating
from models.attention.base import Pattern

MODELS = ("vanilla", "lavo", "latte", "luna", "longnet")
TOLERANCE = {"output": 1e-4, "gradient": 1e-3}
ROUNDS = 5


def step(model: nn.Module, x: Tensor) -> None:
    """A forward and backward pass."""
    model.zero_grad(set_to_none=True)
    model(x.clone().requires_grad_())[0].sum().backward()


def compare_compiled(name: str, device: torch.device, length: int, rounds: int = ROUNDS) -> Row:
    """Float32, one sequence. The ratio is the time of the layer as it is over that of the compiled one."""
    torch._dynamo.reset()
    model = build(Case(name, Pattern.CAUSAL_SELF), length).to(device)
    x = torch.randn(1, length, model.dim, generator=torch.Generator().manual_seed(1)).to(device)
    compiled = torch.compile(model)
    deviation = deviations(one_pass(compiled, x), one_pass(model, x))
    calls = {"plain": partial(step, model, x), "compiled": partial(step, compiled, x)}
    times = time_alternating(calls, device=device, rounds=rounds, retry_disturbed=False)
    plain, ratio = times["plain"].median, times["plain"].median / times["compiled"].median
    numbers = {"length": length, "deviation": deviation, "ratio": ratio, "ms": 1000 * plain}
    if all(deviation[kind] <= limit for kind, limit in TOLERANCE.items()):
        return row(name, OK, f"{ratio:.2f} times as fast compiled, equal", **numbers)
    return row(name, FAILED, f"compiled it deviates by {max(deviation.values()):.1e}", **numbers)


def compiled_rows(part_run: PartRun) -> Iterator[Row]:
    if part_run.device.type == "cuda":
        try:
            import triton  # noqa: F401  (inductor writes its kernels with it)
        except ImportError:
            yield row("torch.compile", SKIPPED, "triton, which makes kernels for GPUs, is not installed")
            return
    length = 64 if part_run.tiny else 4096
    items = [
        Item(name, lambda name=name: [compare_compiled(name, part_run.device, length)], {"name": name})
        for name in (MODELS[:1] if part_run.tiny else MODELS)
    ]
    yield from rows_in_time("torch.compile", items, part_run)
