"""C13 and C14: memory per token, and errors against float64."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.attention.peers import jax_latte_layer, latte_layer, latte_materialised, layer_leaves
from benchmarks.attention.speed import SMALL, WIDE
from benchmarks.attention.workloads import (
    CPU,
    Measurement,
    Sizes,
    Timer,
    Workload,
    at_most,
    global_workload,
    latte,
    lavo_workload,
    longnet_workload,
    luna_workload,
    random_heads,
    random_qkv,
    without_unit,
)
from harness.bench.timing import peak_mb
from models.ops.banded import banded_attention
from models.ops.running_softmax import running_softmax


def layer_workload(core: Callable[..., Tensor], length: int) -> Workload:
    return Workload(partial(latte_layer, core, 4), *layer_leaves(2, length, 128, 128))


def kib_per_position(make: Callable[[int], Workload], short: int, long: int) -> float:
    """KiB of a forward and backward pass per additional position."""
    sizes = [peak_mb(make(length).train, CPU) for length in (short, long)]
    return (sizes[1] - sizes[0]) * 1024 / (long - short)


def jax_kib_per_position(short: int, long: int) -> float:
    """The same for the scan in JAX, as its compiler reports it."""
    import jax

    _, gradient = jax_latte_layer(4)
    sizes = []
    for length in (short, long):
        x = jax.ShapeDtypeStruct((2, length, 128), "float32")
        weights = [jax.ShapeDtypeStruct((128, 128), "float32")] * 3
        sizes.append(jax.jit(gradient).lower(x, x, *weights).compile().memory_analysis().temp_size_in_bytes)
    return (sizes[1] - sizes[0]) / 1024 / (long - short)


def c13(timer: Timer) -> Iterator[Measurement]:
    ours = kib_per_position(partial(layer_workload, running_softmax), 8192, 32768)
    peer = kib_per_position(partial(layer_workload, latte_materialised), 1024, 4096)
    title = "Latte layer (B=2, H=4, D=128), forward + backward, memory a position"
    yield at_most("C13", title, ours, 12.0, unit="KiB")
    yield Measurement("C13", "materialised sums take so many times that", peer / ours, 10.0)
    yield Measurement(
        "C13", "and the gradient of the paper's scan in JAX", jax_kib_per_position(4096, 8192) / ours, 6.0
    )
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        workload = global_workload(WIDE, 4096)
        workload.function(*workload.leaves)
    title = "LAVO: largest tensor kept for backward, in numbers of q"
    yield at_most("C13", title, max(kept) / workload.leaves[0].numel(), 1.0)


def errors(function: Callable[..., Tensor], leaves: list[Tensor], dtype: torch.dtype) -> tuple[float, float]:
    """Largest error of the output and of any gradient, each relative to the largest entry of the float64 run."""
    results = []
    for kind in (dtype, torch.float64):
        inputs = [leaf.to(dtype).to(kind).requires_grad_() for leaf in leaves]  # float64 gets the rounded numbers
        y = function(*inputs)
        cotangent = torch.arange(y.numel(), dtype=torch.float64).cos().view(y.shape).to(dtype)
        results.append([y.detach(), *torch.autograd.grad(y, inputs, cotangent.to(kind))])
    relative = [float((a.double() - b).abs().max() / b.abs().max()) for a, b in zip(*results, strict=True)]
    return relative[0], max(relative[1:])


def c14(timer: Timer) -> Iterator[Measurement]:
    generator = torch.Generator().manual_seed(0)
    q, logits, v = random_heads(SMALL, 256, 32, 32, 32)
    scales = torch.tensor([1.0, 10.0, 1000.0]).repeat(11)[:32]
    jumps = (torch.rand(8, 256, 32, generator=generator) < 0.05) * 300 * torch.rand(8, 256, 32, generator=generator)
    long = random_qkv(Sizes(heads=2, width=16, slots=16), 65536)
    ramp = torch.linspace(0, 3000, 65536)[:, None]
    cases = {
        "Latte, 256, logits times 1, 10, 1000, jumps of 300": [q, logits * scales + jumps.cumsum(1), v],
        "Latte, 65,536, logits N(0, 1)": long,
        "Latte, 65,536, ramp to 3,000": [long[0], long[1] + ramp, long[2]],
    }
    for name, leaves in cases.items():
        for dtype, goal in ((torch.float32, 2e-6), (torch.bfloat16, 1.5e-2)):
            worst = max(errors(latte, leaves, dtype))
            yield without_unit("C14", f"{name}, {str(dtype)[6:]}, output and gradients", worst, goal)
    sizes = Sizes(heads=4, width=64, slots=32, segments=(512, 1024, 2048))
    workloads = {
        "LAVO": lavo_workload(WIDE, 4096),
        "window": Workload(partial(banded_attention, left=255, right=0), *random_qkv(WIDE, 4096)),
        "Luna": luna_workload(sizes, 4096),
        "LongNet": longnet_workload(sizes, 4096),
    }
    for name, workload in workloads.items():
        worst = max(errors(workload.function, workload.leaves, torch.float32))
        yield without_unit("C14", f"{name}, 4,096, float32, output and gradients", worst, 1e-6)


GOALS = {"C13": c13, "C14": c14}
