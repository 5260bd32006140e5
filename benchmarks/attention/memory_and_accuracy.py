"""C13 and C14: memory per token, and errors against float64."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.attention.speed import global_only
from benchmarks.attention.workloads import CPU, Measurement, Timer, Workload, longnet, random_heads
from benchmarks.latte_scan import layer, materialised
from harness.bench.timing import peak_mb
from models.attention.lavo import lavo
from models.ops.banded import banded_attention
from models.ops.packed_prefix import ACTIVATIONS, packed_prefix
from models.ops.running_softmax import running_softmax


def latte_layer(core: Callable[..., Tensor], length: int) -> Workload:
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.randn(2, length, 128, generator=generator)]
    leaves += [torch.randn(128, 128, generator=generator) * 128**-0.5 for _ in range(3)]
    return Workload(partial(layer, core, 4), *leaves)


def growth(make: Callable[[int], Workload], short: int, long: int) -> float:
    """KiB of a forward and backward pass for each additional position."""
    sizes = [peak_mb(make(length).train, CPU) for length in (short, long)]
    return (sizes[1] - sizes[0]) * 1024 / (long - short)


def jax_growth(short: int, long: int) -> float:
    """The same for the scan in JAX, as its compiler reports it."""
    import jax

    from benchmarks.latte_scan import jax_scan_layer

    _, gradient = jax_scan_layer(4)
    sizes = []
    for length in (short, long):
        x = jax.ShapeDtypeStruct((2, length, 128), "float32")
        weights = [jax.ShapeDtypeStruct((128, 128), "float32")] * 3
        sizes.append(jax.jit(gradient).lower(x, x, *weights).compile().memory_analysis().temp_size_in_bytes)
    return (sizes[1] - sizes[0]) / 1024 / (long - short)


def c13(timer: Timer) -> Iterator[Measurement]:
    ours = growth(partial(latte_layer, running_softmax), 8192, 32768)
    peer = growth(partial(latte_layer, materialised), 1024, 4096)
    yield Measurement(
        "C13", "Latte layer (B=2, H=4, D=128), forward + backward, memory a position", ours, 12.0, False, "KiB"
    )
    yield Measurement("C13", "materialised sums take so many times that", peer / ours, 10.0)
    yield Measurement("C13", "and the gradient of the paper's scan in JAX", jax_growth(4096, 8192) / ours, 6.0)

    def workload(length: int) -> Workload:
        q, x = random_heads(4, length, 64, 64)
        return Workload(global_only, q, x, torch.linalg.qr(torch.randn(4, 64, 64))[0])

    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        workload(4096).function(*workload(4096).leaves)
    yield Measurement(
        "C13", "LAVO: largest tensor kept for backward, in numbers of q", max(kept) / (4 * 4096 * 64), 1.0, False
    )


def errors(function: Callable[..., Tensor], leaves: list[Tensor], dtype: torch.dtype) -> tuple[float, float]:
    """Largest error of the output and of any gradient, each relative to the largest entry of the float64 run."""
    results = []
    for kind in (dtype, torch.float64):
        inputs = [leaf.to(dtype).to(kind).requires_grad_() for leaf in leaves]  # float64 sees the rounded numbers
        y = function(*inputs)
        cotangent = torch.arange(y.numel(), dtype=torch.float64).cos().view(y.shape).to(dtype)
        results.append([y.detach(), *torch.autograd.grad(y, inputs, cotangent.to(kind))])
    relative = [float((a.double() - b).abs().max() / b.abs().max()) for a, b in zip(*results, strict=True)]
    return relative[0], max(relative[1:])


def c14(timer: Timer) -> Iterator[Measurement]:
    def latte(q: Tensor, logits: Tensor, v: Tensor) -> Tensor:
        return running_softmax(q.softmax(-1), logits, v)

    generator = torch.Generator().manual_seed(0)
    q, logits, v = random_heads(8, 256, 32, 32, 32)
    scales = torch.tensor([1.0, 10.0, 1000.0]).repeat(11)[:32]
    jumps = (torch.rand(8, 256, 32, generator=generator) < 0.05) * 300 * torch.rand(8, 256, 32, generator=generator)
    long = random_heads(2, 65536, 16, 16, 16)
    ramp = torch.linspace(0, 3000, 65536)[:, None]
    cases = {
        "Latte, 256, logits times 1, 10, 1000, jumps of 300": (latte, [q, logits * scales + jumps.cumsum(1), v]),
        "Latte, 65,536, logits N(0, 1)": (latte, long),
        "Latte, 65,536, ramp to 3,000": (latte, [long[0], long[1] + ramp, long[2]]),
    }
    for name, (function, leaves) in cases.items():
        for dtype, goal in ((torch.float32, 2e-6), (torch.bfloat16, 1.5e-2)):
            worst = max(errors(function, leaves, dtype))
            yield Measurement("C14", f"{name}, {str(dtype)[6:]}, output and gradients", worst, goal, False, "")
    four = random_heads(4, 4096, 64, 64, 64)
    bases = torch.linalg.qr(torch.randn(4, 64, 64, generator=generator))[0]
    bias = 0.1 * torch.randn(4, 511, generator=generator)
    slots = torch.randn(1, 4, 32, 64, generator=generator)
    luna = partial(packed_prefix, activation=ACTIVATIONS["softplus"])
    dilated = longnet((512, 1024, 2048), (1, 2, 4), number=4)
    others = {
        "LAVO": (partial(lavo, window=256, causal=True), [*four, bases, bias]),
        "window": (partial(banded_attention, left=255, right=0), four),
        "Luna": (luna, [*four, slots]),
        "LongNet": (dilated, four),
    }
    for name, (function, leaves) in others.items():
        worst = max(errors(function, leaves, torch.float32))
        yield Measurement("C14", f"{name}, 4,096, float32, output and gradients", worst, 1e-6, False, "")


GOALS = {"C13": c13, "C14": c14}
