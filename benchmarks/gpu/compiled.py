"""Layers under torch.compile (inductor) beside the same layers as they are: equal, and where it is faster.

Longhaul compiles nothing by itself: what this part finds says whether a model of one's own recipe would gain.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from benchmarks.gpu.models import Case, build, deviations
from benchmarks.gpu.part import FAILED, OK, SKIPPED, UNFINISHED, OutOfTimeError, Place, Row, row
from harness.bench.timing import time_alternating
from harness.errors import one_line
from models.attention.base import Pattern

MODELS = ("vanilla", "lavo", "latte", "luna", "longnet")
TOLERANCE = {"output": 1e-4, "gradient": 1e-3}
ROUNDS = 5


def step(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """Output and gradients of one forward and backward pass."""
    leaf = x.clone().requires_grad_()
    model.zero_grad(set_to_none=True)
    y = model(leaf)[0]
    y.sum().backward()
    found = {"output": y, "input": leaf.grad} | {name: p.grad for name, p in model.named_parameters()}
    return {name.removeprefix("_orig_mod."): tensor for name, tensor in found.items() if tensor is not None}


def compare(name: str, device: torch.device, length: int, rounds: int = ROUNDS) -> Row:
    """Float32, one sequence. The ratio is the time of the layer as it is over that of the compiled one."""
    torch._dynamo.reset()
    model = build(Case(name, Pattern.CAUSAL_SELF), length).to(device)
    x = torch.randn(1, length, model.dim, generator=torch.Generator().manual_seed(1)).to(device)
    compiled = torch.compile(model)
    ours, theirs = ({k: v.detach().cpu().double() for k, v in step(each, x).items()} for each in (compiled, model))
    found = deviations(ours, theirs)
    calls = {"as it is": lambda: step(model, x), "compiled": lambda: step(compiled, x)}
    times = time_alternating(calls, device=device, rounds=rounds, retry_disturbed=False)
    plain, fast = (times[key].median for key in calls)
    numbers = {"length": length, "deviation": found, "ratio": plain / fast, "ms": 1000 * plain}
    if all(found[kind] <= limit for kind, limit in TOLERANCE.items()):
        return row(name, OK, f"{plain / fast:.2f} times as fast compiled, equal", **numbers)
    return row(name, FAILED, f"compiled it deviates by {max(found.values()):.1e}", **numbers)


def part(place: Place) -> Iterator[Row]:
    if place.device.type == "cuda":
        try:
            import triton  # noqa: F401  (inductor writes its kernels with it)
        except ImportError:
            yield row("torch.compile", SKIPPED, "triton, which makes kernels for GPUs, is not installed")
            return
    names, done = MODELS[:1] if place.tiny else MODELS, 0
    try:
        with place.limited():
            for name in names:
                yield compared(name, place)
                done += 1
    except OutOfTimeError:
        yield row("torch.compile", UNFINISHED, f"no time for {', '.join(names[done:])}")


def compared(name: str, place: Place) -> Row:
    """As `compare`; an error is a row, too."""
    try:
        return compare(name, place.device, 64 if place.tiny else 4096)
    except Exception as error:
        return row(name, FAILED, f"{type(error).__name__}: {one_line(error)[:300]}")
