"""Workloads that the goals time, their random inputs, and the measurement that a goal yields."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from harness.bench.timing import time_alternating
from models.attention.lavo import lavo
from models.ops.dilated import Branch, dilated_attention, grouped_offsets
from models.ops.packed_prefix import ACTIVATIONS
from models.ops.running_softmax import running_softmax

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Measurement:
    """One measured number: `value` must be at least, or at most, `goal`."""

    id: str
    what: str
    value: float
    goal: float
    at_least: bool = True
    unit: str = "×"

    @property
    def met(self) -> bool:
        return self.value >= self.goal if self.at_least else self.value <= self.goal


@dataclass(frozen=True)
class Timer:
    """Times calls on the CPU, `rounds` samples of each."""

    rounds: int = 5

    def seconds(self, candidates: dict[str, Callable[[], object]], **options) -> dict[str, float]:
        """Median seconds of calls that take turns."""
        timings = time_alternating(candidates, device=CPU, rounds=self.rounds, **options)
        return {name: timing.median for name, timing in timings.items()}

    def forward_and_train(self, workloads: dict[str, "Workload"]) -> dict[str, tuple[float, float]]:
        """{name: (forward, forward and backward)} in seconds."""
        forward = self.seconds({name: workload.forward for name, workload in workloads.items()})
        train = self.seconds({name: workload.train for name, workload in workloads.items()})
        return {name: (forward[name], train[name]) for name in workloads}


class Workload:
    """A function of tensors, timed forward and with its backward pass for a gradient of ones."""

    def __init__(self, function: Callable[..., Tensor], *leaves: Tensor):
        self.function, self.leaves = function, [leaf.detach().requires_grad_() for leaf in leaves]

    @torch.no_grad()
    def forward(self) -> Tensor:
        return self.function(*self.leaves)

    def train(self) -> tuple[Tensor, ...]:
        y = self.function(*self.leaves)
        return torch.autograd.grad(y, self.leaves, torch.ones_like(y))


def random_heads(number: int, length: int, *widths: int) -> list[Tensor]:
    """Random (1, H, N, width) tensors, laid out as split projections are: tokens before heads."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, length, number, width, generator=generator).transpose(1, 2) for width in widths]


def softmax_workload(number: int, length: int, width: int) -> Workload:
    attention = partial(F.scaled_dot_product_attention, is_causal=True)
    return Workload(attention, *random_heads(number, length, width, width, width))


def speedups(
    id: str, what: str, timer: Timer, ours: Workload, peer: Workload, goals: tuple[float | None, float | None]
) -> Iterator[Measurement]:
    """How many times faster `ours` is than the peer: forward, and with backward. A goal of None skips its line."""
    forward, train = ({"ours": getattr(ours, kind), "peer": getattr(peer, kind)} for kind in ("forward", "train"))
    for name, calls, goal in (("forward", forward, goals[0]), ("forward + backward", train, goals[1])):
        if goal is not None:
            times = timer.seconds(calls)
            yield Measurement(id, f"{what}, {name}", times["peer"] / times["ours"], goal)


def latte_workload(number: int, length: int, latents: int = 32, width: int = 32) -> Workload:
    q, logits, v = random_heads(number, length, latents, latents, width)
    return Workload(lambda q, logits, v: running_softmax(q.softmax(-1), logits, v), q, logits, v)


def lavo_workload(length: int, window: int = 256) -> Workload:
    q, k, v = random_heads(4, length, 64, 64, 64)
    generator = torch.Generator().manual_seed(0)
    bases = torch.linalg.qr(torch.randn(4, 64, 64, generator=generator))[0]
    bias = 0.1 * torch.randn(4, 2 * window - 1, generator=generator)
    return Workload(partial(lavo, window=window, causal=True), q, k, v, bases, bias)


def luna_workload(function: Callable[..., Tensor], length: int) -> Workload:
    q, memory, pack_k = random_heads(8, length, 32, 32, 32)
    (pack_q,) = random_heads(8, 32, 32)
    return Workload(partial(function, activation=ACTIVATIONS["softplus"]), q, memory, pack_k, pack_q)


def longnet(segments: tuple[int, ...], ratios: tuple[int, ...], *, number: int) -> Callable[..., Tensor]:
    """The mixture of these branches over `number` heads, with the exact gradient."""
    branches = [Branch(w, r, grouped_offsets(number, r)) for w, r in zip(segments, ratios, strict=True)]
    return lambda q, k, v: dilated_attention(q, k, v, branches, causal=True, detach_alpha=False)
