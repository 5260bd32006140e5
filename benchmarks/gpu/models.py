"""Every model of `conf/model/` on a device beside the CPU: the same weights, outputs and all gradients.

Float32 is compared with the CPU's float32, bfloat16 (autocast, as in `train.precision=bf16-mixed`) with the CPU's
float64. A deviation is the largest difference of a tensor as a share of its largest entry, or of a hundredth of the
largest gradient if that is more: a gradient that is zero except for rounding has no digits to compare. The limit grows
with the CPU's deviation from float64, because some models round much or select by comparisons.
"""

import contextlib
import copy
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from benchmarks.gpu.part import FAILED, OK, Item, PartRun, Row, row, rows_in_time
from harness.config import yaml_files
from harness.config.build import is_attention
from harness.config.compose import OWN_CLASS, default_arguments, file_of, options
from harness.config.instantiate import instantiate, target
from models.attention.base import Pattern

BATCH, DIM, HEADS, LENGTH = 2, 128, 2, 200  # wide enough for the 64 bases of LAVO
LAYERS, DECODER_LENGTH, VOCABULARY = 2, 1280, 64  # of a model that is a whole decoder
FLOAT32, BFLOAT16 = {"output": 1e-4, "gradient": 1e-3}, {"output": 0.05, "gradient": 0.2}
SLACK32, SLACK16 = 10.0, 3.0  # times the CPU's own deviation
SMALL = 0.01

Tensors = dict[str, Tensor]


class Case(NamedTuple):
    """A model in one pattern; None: a whole decoder."""

    model: str
    pattern: Pattern | None


def cases(names: list[str] | None = None) -> Iterator[Case]:
    """All cases, or those of some models, in the order of their names."""
    for name in names or [name for name, _ in options("model")]:
        if name in OWN_CLASS or OmegaConf.is_missing(yaml_files.load_config(file_of("model", name)), "_target_"):
            continue  # a user's model, which has no class here
        constructor = target(default_arguments(name), "model")
        patterns = sorted(constructor.func.patterns) if is_attention(constructor) else [None]
        yield from (Case(name, pattern) for pattern in patterns)


def build(case: Case, length: int = LENGTH) -> nn.Module:
    """A layer for `length` tokens, or a decoder, in evaluation mode. Raises UsageError.

    Noise is added to every parameter, so that a zero hides no error.
    """
    torch.manual_seed(0)
    hyper = default_arguments(case.model)
    if case.pattern is None:
        sizes = {"vocab_size": VOCABULARY, "dim": DIM, "heads": HEADS, "ffn_dim": 2 * DIM, "layers": LAYERS}
        model = instantiate(hyper, "model", (), max_length=DECODER_LENGTH, dropout=0.0, **sizes)
    else:
        model = instantiate(hyper, "model", (), DIM, HEADS, pattern=case.pattern.value, max_length=length)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    return model.eval()


def inputs(case: Case) -> tuple[Tensor, ...]:
    """x (B, N, D), of a cross pattern with its context, in float64; tokens (B, N) of a decoder."""
    generator = torch.Generator().manual_seed(1)
    if case.pattern is None:
        return (torch.randint(VOCABULARY, (BATCH, DECODER_LENGTH), generator=generator),)
    number = 2 if case.pattern.cross else 1
    return torch.randn(number, BATCH, LENGTH, DIM, generator=generator, dtype=torch.float64).unbind(0)


def run(model: nn.Module, tensors: tuple[Tensor, ...], device: torch.device, dtype: torch.dtype) -> Tensors:
    """`one_pass` of a copy of the model on `device`."""
    wide = torch.float32 if dtype is torch.bfloat16 else dtype
    model = copy.deepcopy(model).to(device)
    if wide is torch.float64:
        model.double()  # complex parameters stay as they are
    tensors = tuple(x.to(device, wide) if x.is_floating_point() else x.to(device) for x in tensors)
    return one_pass(model, *tensors, autocast=dtype is torch.bfloat16)


def one_pass(model: nn.Module, *tensors: Tensor, autocast: bool = False) -> Tensors:
    """Output, gradients of the inputs and of every parameter, in float64 on the CPU. `autocast`: to bfloat16."""
    leaves = [x.clone().requires_grad_() if x.is_floating_point() else x for x in tensors]
    model.zero_grad(set_to_none=True)
    torch.manual_seed(2)
    with torch.autocast(leaves[0].device.type, torch.bfloat16, enabled=autocast):
        y = model(*leaves)
    y = y[0] if isinstance(y, tuple) else y
    cotangent = torch.randn(y.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    y.backward(cotangent.to(y.device, y.dtype))
    results = {"output": y} | {f"input {i}": x.grad for i, x in enumerate(leaves)}
    results |= {name.removeprefix("_orig_mod."): parameter.grad for name, parameter in model.named_parameters()}
    return {name: tensor.detach().cpu().double() for name, tensor in results.items() if tensor is not None}


def deviations(ours: Tensors, theirs: Tensors) -> dict[str, float]:
    """{output, gradient: the largest deviation}; infinite where other tensors have gradients, or one is not finite."""
    if set(ours) != set(theirs):
        return dict.fromkeys(FLOAT32, float("inf"))
    largest = {name: float(tensor.abs().max()) if tensor.numel() else 0.0 for name, tensor in theirs.items()}
    floor = SMALL * max((size for name, size in largest.items() if name != "output"), default=0.0)
    deviations = dict.fromkeys(FLOAT32, 0.0)
    for name, tensor in ours.items():
        kind = name if name == "output" else "gradient"
        scale = largest[name] if kind == "output" else max(largest[name], floor)
        difference = float((tensor - theirs[name]).abs().max()) if tensor.numel() else 0.0
        deviation = difference / scale if scale else difference
        # the comparison is false for nan as well
        deviations[kind] = max(deviations[kind], deviation) if deviation < float("inf") else float("inf")
    return deviations


def compare_devices(case: Case, device: torch.device) -> Row:
    """A row. `repeats`: whether a second pass in float32 gave every bit again."""
    model, tensors, cpu = build(case), inputs(case), torch.device("cpu")
    exact = run(model, tensors, cpu, torch.float64)
    float32, cpu32 = run(model, tensors, device, torch.float32), run(model, tensors, cpu, torch.float32)
    again = run(model, tensors, device, torch.float32)
    deviations32, noise32 = deviations(float32, cpu32), deviations(cpu32, exact)
    deviations16 = deviations(run(model, tensors, device, torch.bfloat16), exact)
    noise16 = deviations(run(model, tensors, cpu, torch.bfloat16), exact)
    faults = [
        *beyond("float32", deviations32, noise32, FLOAT32, SLACK32),
        *beyond("bfloat16", deviations16, noise16, BFLOAT16, SLACK16),
    ]
    numbers: dict[str, Any] = {"float32": deviations32, "bfloat16": deviations16}
    numbers["repeats"] = all(torch.equal(float32[name], tensor) for name, tensor in again.items())
    return row(case.model, FAILED if faults else OK, "; ".join(faults), pattern=label(case), **numbers)


def beyond(
    dtype: str, deviations: dict[str, float], noise: dict[str, float], least: dict[str, float], slack: float
) -> Iterator[str]:
    """Deviations above `least` and above `slack` times `noise`, the CPU's own deviation, if that is finite."""
    for kind, deviation in deviations.items():
        if math.isinf(deviation):
            yield f"{kind} in {dtype}: not finite, or other tensors have gradients"
            continue
        limit = max(least[kind], slack * noise[kind] if math.isfinite(noise[kind]) else 0.0)
        if deviation > limit:
            yield f"{kind} in {dtype} deviates by {deviation:.1e}, {limit:.1e} is allowed"


def label(case: Case) -> str:
    return "decoder" if case.pattern is None else str(case.pattern)


def model_rows(part_run: PartRun, names: list[str] | None = None) -> Iterator[Row]:
    """A row per case."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

    def item(case: Case) -> Item:
        error_row = {"name": case.model, "pattern": label(case)}
        return Item(f"{case.model} ({label(case)})", lambda: [compare_devices(case, part_run.device)], error_row)

    with deterministic_kernels():
        yield from rows_in_time("models", [item(case) for case in cases(names)], part_run)


@contextlib.contextmanager
def deterministic_kernels() -> Iterator[None]:
    """Context in which torch takes deterministic kernels where it has them, as in training (`trainer.deterministic`).

    Without them, the gradient of a gather is summed in any order.
    """
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)
