"""The core algorithms on random inputs, for the goals C4 to C10 (a CPU) and G1 to G6 of `benchmarks.gpu`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from models.attention.lavo import lavo, past_memory, read
from models.ops.banded import banded_attention
from models.ops.dilated import Branch, dilated_attention, grouped_offsets
from models.ops.packed_prefix import ACTIVATIONS, packed_prefix
from models.ops.running_softmax import running_softmax

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of workloads; `slots` are the latents of Latte, the bases of LAVO and the slots of Luna."""

    heads: int
    width: int
    slots: int
    window: int = 256
    segments: tuple[int, ...] = (2048, 4096, 8192)
    ratios: tuple[int, ...] = (1, 2, 4)
    dtype: torch.dtype = torch.float32
    device: torch.device = CPU


class Workload:
    """A function of tensors, forward and with its backward pass for a gradient of ones.

    `parameters`: what the function reads besides; the gradients follow those of the tensors.
    """

    def __init__(self, function: Callable[..., Tensor], *leaves: Tensor, parameters: Iterable[Tensor] = ()):
        self.function, self.inputs = function, [leaf.detach().requires_grad_() for leaf in leaves]
        self.leaves = [*self.inputs, *(parameter for parameter in parameters if parameter.requires_grad)]

    @torch.no_grad()
    def forward(self) -> Tensor:
        return self.function(*self.inputs)

    def train(self) -> tuple[Tensor | None, ...]:
        y = self.function(*self.inputs)
        return torch.autograd.grad(y, self.leaves, torch.ones_like(y), allow_unused=True)


PASSES = {"forward": "forward", "train": "forward + backward"}  # a method of Workload: how a page calls it


def random_heads(sizes: Sizes, length: int, *widths: int) -> list[Tensor]:
    """Random (1, H, N, width) tensors, laid out as split projections are: tokens before heads."""
    generator = torch.Generator().manual_seed(0)
    tensors = (torch.randn(1, length, sizes.heads, width, generator=generator) for width in widths)
    return [x.to(sizes.device, sizes.dtype).transpose(1, 2) for x in tensors]


def random_qkv(sizes: Sizes, length: int) -> list[Tensor]:
    return random_heads(sizes, length, sizes.width, sizes.width, sizes.width)


def random_bases(sizes: Sizes) -> Tensor:
    """Orthonormal bases (H, slots, width)."""
    matrix = torch.randn(sizes.heads, sizes.width, sizes.width, generator=torch.Generator().manual_seed(1))
    return torch.linalg.qr(matrix)[0][:, : sizes.slots].to(sizes.device, sizes.dtype)


def softmax_workload(sizes: Sizes, length: int) -> Workload:
    return Workload(partial(F.scaled_dot_product_attention, is_causal=True), *random_qkv(sizes, length))


def latte_workload(sizes: Sizes, length: int) -> Workload:
    def call(q: Tensor, logits: Tensor, v: Tensor) -> Tensor:
        return running_softmax(q.softmax(-1), logits, v)

    return Workload(call, *random_heads(sizes, length, sizes.slots, sizes.slots, sizes.width))


def luna_workload(sizes: Sizes, length: int) -> Workload:
    (pack_q,) = random_heads(sizes, sizes.slots, sizes.width)
    function = partial(packed_prefix, activation=ACTIVATIONS["softplus"])
    return Workload(function, *random_qkv(sizes, length), pack_q)


def lavo_workload(sizes: Sizes, length: int) -> Workload:
    bias = 0.1 * torch.randn(sizes.heads, 2 * sizes.window - 1, generator=torch.Generator().manual_seed(2))
    function = partial(lavo, window=sizes.window, causal=True)
    return Workload(function, *random_qkv(sizes, length), random_bases(sizes), bias.to(sizes.device, sizes.dtype))


def global_workload(sizes: Sizes, length: int) -> Workload:
    """LAVO without its window."""

    def call(q: Tensor, x: Tensor, bases: Tensor) -> Tensor:
        return read(q, past_memory(x, bases, window=None), bases, window=1)

    return Workload(call, *random_heads(sizes, length, sizes.width, sizes.width), random_bases(sizes))


def window_workload(sizes: Sizes, length: int) -> Workload:
    """Attention to the last `window` tokens, with a learnable bias per distance."""

    def call(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return banded_attention(q, k, v, left=sizes.window - 1, right=0, bias=bias)

    bias = torch.zeros(sizes.heads, sizes.window, device=sizes.device, dtype=sizes.dtype)
    return Workload(call, *random_qkv(sizes, length), bias)


def longnet_workload(sizes: Sizes, length: int) -> Workload:
    """The mixture of dilated branches, with the exact gradient."""
    pairs = zip(sizes.segments, sizes.ratios, strict=True)
    branches = [Branch(segment, ratio, grouped_offsets(sizes.heads, ratio)) for segment, ratio in pairs]
    function = partial(dilated_attention, branches=branches, causal=True, detach_alpha=False)
    return Workload(function, *random_qkv(sizes, length))
