"""Layers with flash-linear-attention's kernels (`resources.kernels=fla`) beside the same layers in torch.

Under autocast to bfloat16, as in `train.precision=bf16-mixed`: outputs and all gradients, and how much faster.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from benchmarks.gpu.models import BFLOAT16, Case, build, deviations, one_pass
from benchmarks.gpu.part import FAILED, OK, SKIPPED, Item, PartRun, Row, row, rows_in_time
from harness.bench.timing import time_alternating
from models.attention.base import Pattern
from models.ops.fla_kernels import SWITCH

MODELS = ("gla", "mamba2", "hgrn2", "retnet", "deltanet", "gated_deltanet", "kda", "rwkv7", "forgetting")
NAME = "flash-linear-attention"
ROUNDS = 5


@contextlib.contextmanager
def kernels(chosen: bool) -> Iterator[None]:
    """Context in which layers use the kernels, or do not."""
    before = os.environ.get(SWITCH, "0")
    os.environ[SWITCH] = str(int(chosen))
    try:
        yield
    finally:
        os.environ[SWITCH] = before


def step(model: nn.Module, x: Tensor, chosen: bool) -> None:
    """A forward and backward pass."""
    model.zero_grad(set_to_none=True)
    with kernels(chosen):
        with torch.autocast(x.device.type, torch.bfloat16):
            y = model(x.clone().requires_grad_())[0]
        y.sum().backward()


def compare_kernels(name: str, device: torch.device, length: int, rounds: int = ROUNDS) -> Row:
    """One sequence. The ratio is the time in torch over the time with the kernels."""
    model = build(Case(name, Pattern.CAUSAL_SELF), length).to(device)
    x = torch.randn(1, length, model.dim, generator=torch.Generator().manual_seed(1)).to(device)
    results = []
    for chosen in (True, False):
        with kernels(chosen):
            results.append(one_pass(model, x, autocast=True))
    deviation = deviations(*results)
    calls: dict[str, Callable[[], None]] = {
        "torch": partial(step, model, x, False), "kernels": partial(step, model, x, True)
    }  # fmt: skip
    times = time_alternating(calls, device=device, rounds=rounds, retry_disturbed=False)
    plain, ratio = times["torch"].median, times["torch"].median / times["kernels"].median
    numbers = {"length": length, "deviation": deviation, "ratio": ratio, "ms": 1000 * plain}
    if all(deviation[kind] <= limit for kind, limit in BFLOAT16.items()):
        return row(name, OK, f"{ratio:.2f} times as fast with the kernels, equal in bfloat16", **numbers)
    return row(name, FAILED, f"with the kernels it deviates by {max(deviation.values()):.1e}", **numbers)


def kernel_rows(part_run: PartRun) -> Iterator[Row]:
    if part_run.device.type != "cuda":
        yield row(NAME, SKIPPED, "its kernels are for GPUs")
        return
    if find_spec("fla") is None:
        yield row(NAME, SKIPPED, "not installed: pip install flash-linear-attention")
        return
    length = 64 if part_run.tiny else 4096
    items = [
        Item(name, lambda name=name: [compare_kernels(name, part_run.device, length)], {"name": name})
        for name in (MODELS[:1] if part_run.tiny else MODELS)
    ]
    yield from rows_in_time(NAME, items, part_run)
