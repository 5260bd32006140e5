"""Layers in two forms on a device: compiled with inductor or as they are, with kernels of a library or without.

Both forms are compared first: the output and all gradients. The ratio is the time of the plain form over the other's,
forward and backward, one causal sequence. It shows whether a recipe gains by `resources.compile=true` or
`resources.kernels`.
"""

import os
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from benchmarks.gpu.models import BFLOAT16, FLOAT32, Case, build, deviations, one_pass
from benchmarks.gpu.part import FAILED, OK, SKIPPED, Item, PartRun, Row, row, rows_in_time
from harness.bench.timing import time_alternating
from models.attention.base import Pattern
from models.ops import fla_kernels, flex

COMPILED = ("vanilla", "lavo", "latte", "luna", "longnet")
FLA = ("gla", "mamba2", "hgrn2", "retnet", "deltanet", "gated_deltanet", "kda", "rwkv7", "forgetting", "latte", "luna")
FLEX = ("lavo", "llp", "local", "latte_swa")
SWITCHES = dict.fromkeys(FLA, fla_kernels.SWITCH) | dict.fromkeys(FLEX, flex.SWITCH)
ROUNDS = 5


def kernels(switch: str) -> Any:
    """Context in which layers use only the kernels of `switch`, or torch's forms if it is empty."""
    return mock.patch.dict(os.environ, {name: str(int(name == switch)) for name in SWITCHES.values()})


def step(model: nn.Module, x: Tensor, switch: str, autocast: bool) -> None:
    """A forward and backward pass with the kernels of `switch`. `autocast`: forward, to bfloat16."""
    model.zero_grad(set_to_none=True)
    with kernels(switch):
        with torch.autocast(x.device.type, torch.bfloat16, enabled=autocast):
            y = model(x.clone().requires_grad_())[0]
        y.sum().backward()


def compare_forms(form: str, name: str, device: torch.device, length: int, rounds: int = ROUNDS) -> Row:
    """`form`: compile (float32) or kernels (bfloat16, autocast, as in `train.precision=bf16-mixed`)."""
    torch._dynamo.reset()
    autocast = form == "kernels"
    switch = SWITCHES[name] if autocast else ""
    model = build(Case(name, Pattern.CAUSAL_SELF), length).to(device)
    x = torch.randn(1, length, model.dim, generator=torch.Generator().manual_seed(1)).to(device)
    other = model if autocast else torch.compile(model)
    with kernels(switch):
        ours = one_pass(other, x, autocast=autocast)
    deviation = deviations(ours, one_pass(model, x, autocast=autocast))
    calls = {"plain": partial(step, model, x, "", autocast), form: partial(step, other, x, switch, autocast)}
    times = time_alternating(calls, device=device, rounds=rounds, retry_disturbed=False)
    plain, ratio = times["plain"].median, times["plain"].median / times[form].median
    numbers = {"length": length, "deviation": deviation, "ratio": ratio, "ms": 1000 * plain}
    if all(deviation[kind] <= limit for kind, limit in (BFLOAT16 if autocast else FLOAT32).items()):
        return row(name, OK, f"equal, {ratio:.2f} times as fast", **numbers)
    return row(name, FAILED, f"deviates by {max(deviation.values()):.1e}", **numbers)


def form_rows(form: str, title: str, names: tuple[str, ...], part_run: PartRun) -> Iterator[Row]:
    length = 64 if part_run.tiny else 4096
    items = [
        Item(name, lambda name=name: [compare_forms(form, name, part_run.device, length)], {"name": name})
        for name in (names[:1] if part_run.tiny else names)
    ]
    yield from rows_in_time(title, items, part_run)


def compiled_rows(part_run: PartRun) -> Iterator[Row]:
    if part_run.device.type == "cuda" and find_spec("triton") is None:
        yield row("torch.compile", SKIPPED, "triton, which makes kernels for GPUs, is not installed")
        return
    yield from form_rows("compile", "torch.compile", COMPILED, part_run)


def kernel_rows(part_run: PartRun) -> Iterator[Row]:
    name = "kernels of libraries"
    if part_run.device.type != "cuda":
        yield row(name, SKIPPED, "its kernels are for GPUs")
    elif find_spec("fla") is None:
        yield row(name, SKIPPED, "fla is not installed: pip install fla-core")
    else:
        yield from form_rows("kernels", name, tuple(SWITCHES), part_run)
