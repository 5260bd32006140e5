"""Public CPU forms of the sequence mixers of `table=frontier`, each beside ours on the same numbers.

flash-linear-attention's kernels need a GPU: its rows are the torch forms that its own tests compare the kernels with.
Only one file of a clone is read, so that nothing of Triton is imported. For a comparison in float64 it computes in
float64 where it says float32.

    B batch, H heads, N length, K and V widths of a key and a value
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.comparison import Comparison, Sides, Tensors
from benchmarks.peers.clones import Clone, Project, imported_from
from benchmarks.peers.layers import Weights, copy, scatter
from benchmarks.workloads import Sizes, Workload, random_heads
from models.attention.based import LinearBlock
from models.attention.mamba2 import Mamba2
from models.ops.delta_rule import delta_rule
from models.ops.forgetting import forgetting_attention
from models.ops.gated_linear import gated_linear_attention
from models.ops.kernel_attention import with_ones

FLA = Clone(
    "flash-linear-attention", "https://github.com/fla-org/flash-linear-attention",
    "bc3b101dcb713ddc5bd8924b66754eb68b5ccf89", source="fla",
)  # fmt: skip

DIM, HEADS = 128, 4
HEAD = DIM // HEADS
COMPARED, TIMED = 512, 4096  # tokens
TOLERANCE = 1e-9


class Pair(NamedTuple):
    """Two functions of the same inputs, with outputs of one shape; `parameters` belong to the layers of both."""

    ours: Callable[..., Tensor]
    theirs: Callable[..., Tensor]
    inputs: Sequence[Tensor]
    parameters: tuple[Iterable[Tensor], Iterable[Tensor]] = ((), ())

    def workloads(self) -> list[Workload]:
        functions = zip((self.ours, self.theirs), self.parameters, strict=True)
        return [Workload(function, *self.inputs, parameters=parameters) for function, parameters in functions]


Make = Callable[[Path | None, torch.dtype, int], Pair]


def sides(make: Make, peers: Path | None) -> Sides:
    """Compared in float64 at COMPARED tokens, timed forward and backward in float32 at TIMED tokens."""

    def values() -> list[Tensors]:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)  # of their new tensors that name no type
        try:
            pair = make(peers, torch.float64, COMPARED)
            return [(each.forward(), *each.train()[: len(pair.inputs)]) for each in pair.workloads()]
        finally:
            torch.set_default_dtype(before)

    ours, theirs = make(peers, torch.float32, TIMED).workloads()
    return Sides(ours.train, theirs.train, values, {"tokens": TIMED})


def names_of(file: Path, dtype: torch.dtype, within: str = "") -> dict[str, Any]:
    """The names that a file defines, which computes in float64, if that is `dtype`, where it says float32.

    `within`: the package that its relative imports start from.
    """
    source = file.read_text(encoding="utf-8")
    if dtype is torch.float64:
        source = re.sub(r"\btorch\.float(32)?\b", "torch.float64", source)
        source = re.sub(r"\.float\b", ".double", source)
    module = ModuleType(f"{within}.{file.stem}" if within else file.stem)
    module.__package__, module.__file__ = within, str(file)
    exec(compile(source, str(file), "exec"), vars(module))
    return vars(module)


def naive_of_fla(path: str, function: str, peers: Path | None, dtype: torch.dtype) -> Callable[..., Any]:
    """A function of a file below the clone's `ops`. Raises AbsentError."""
    folder = FLA.folder(peers)
    with imported_from(folder):
        return names_of(folder / "ops" / path / "naive.py", dtype)[function]


def heads(dtype: torch.dtype, length: int, *widths: int) -> list[Tensor]:
    return random_heads(Sizes(heads=HEADS, width=HEAD, slots=0, dtype=dtype), length, *widths)


def units(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1)


def swapped(x: Tensor) -> Tensor:
    """(B, H, N, ..) <-> (B, N, H, ..)."""
    return x.transpose(1, 2)


def tokens_first(function: Callable[..., Any], *arguments: Tensor, **options: Any) -> Tensor:
    """The first output of a function with (B, N, H, ..), from and to (B, H, N, ..). All heads may share a tensor."""
    y = function(*(swapped(x.expand(-1, HEADS, *x.shape[2:])) for x in arguments), **options)
    return swapped(y[0] if isinstance(y, tuple) else y)


class Operator(NamedTuple):
    """An operator of flash-linear-attention in torch, of tensors (B, N, H, ..) or (B, H, N, ..), beside ours.

    `widths` are those of random heads, of which `inputs` makes queries, keys, values and gates.
    """

    file: str
    function: str
    widths: tuple[int, ...]
    inputs: Callable[..., Sequence[Tensor]]
    ours: Callable[..., Tensor]
    tokens_first: bool = True

    def __call__(self, peers: Path | None, dtype: torch.dtype, length: int) -> Pair:
        naive = naive_of_fla(self.file, self.function, peers, dtype)
        theirs = partial(tokens_first, naive) if self.tokens_first else lambda *tensors: naive(*tensors)[0]
        return Pair(self.ours, theirs, self.inputs(*heads(dtype, length, *self.widths)))


def gated_linear(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
    return gated_linear_attention(q * q.shape[-1] ** -0.5, k, v, g if g.ndim == q.ndim else g[..., None])[0]


def delta(q: Tensor, k: Tensor, v: Tensor, *gates: Tensor) -> Tensor:
    """`gates`: the log decay (B, H, N) or (B, H, N, K), if there is one, and the rate (B, H, N)."""
    *decay, rate = gates
    decay = [g if g.ndim == k.ndim else g[..., None] for g in decay]
    return delta_rule(q * q.shape[-1] ** -0.5, k, rate[..., None] * v, rate[..., None] * k, *decay)[0]


def two_vectors(q: Tensor, k: Tensor, v: Tensor, minus_z: Tensor, erase: Tensor, g: Tensor) -> Tensor:
    """The state times exp(g) - erase z^T in place of the delta rule's I - rate k k^T."""
    return delta_rule(q * HEAD**-0.5, k, v, -minus_z * (-g).exp(), g, erase=erase)[0]


def forgetting(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
    return forgetting_attention(q, k, v, g.double().cumsum(-1))


OPERATORS = {
    "gla": Operator(
        "gla", "naive_recurrent_gla", (HEAD // 2, HEAD // 2, HEAD, HEAD // 2),
        lambda q, k, v, g: (q, k, v, F.logsigmoid(g) / 16), gated_linear,
    ),
    "hgrn2": Operator(
        "gla", "naive_recurrent_gla", (HEAD, HEAD, HEAD),
        lambda q, v, f: (q, torch.sigmoid(-f), v, F.logsigmoid(f)), gated_linear,
    ),
    "mamba2_core": Operator(
        "simple_gla", "naive_chunk_simple_gla", (128, 128, 2 * HEAD, 1),
        lambda q, k, v, g: (q[:, :1], k[:, :1], v, -F.softplus(g[..., 0])),
        gated_linear,
    ),
    "deltanet": Operator(
        "delta_rule", "delta_rule_chunkwise", (HEAD, HEAD, HEAD, 1),
        lambda q, k, v, rate: (q, units(k), v, rate[..., 0].sigmoid()), delta, tokens_first=False,
    ),
    "gated_deltanet": Operator(
        "gated_delta_rule", "naive_chunk_gated_delta_rule", (HEAD * 3 // 4, HEAD * 3 // 4, HEAD * 3 // 2, 1, 1),
        lambda q, k, v, g, rate: (q, units(k), v, -F.softplus(g[..., 0]), rate[..., 0].sigmoid()), delta,
    ),
    "kda": Operator(
        "kda", "naive_chunk_kda", (HEAD, HEAD, HEAD, HEAD, 1),
        lambda q, k, v, g, rate: (q, units(k), v, -F.softplus(g), rate[..., 0].sigmoid()), delta,
    ),
    "rwkv7": Operator(
        "generalized_delta_rule/dplr", "dplr_chunkwise", (HEAD,) * 6,
        lambda q, k, v, z, rate, g: (
            q, k, v, -units(z), rate.sigmoid() * units(z), -math.exp(-0.5) * g.sigmoid()
        ),
        two_vectors, tokens_first=False,
    ),
    "forgetting": Operator(
        "forgetting_attn", "naive_forgetting_attn", (HEAD, HEAD, HEAD, 1),
        lambda q, k, v, g: (q, k, v, F.logsigmoid(g[..., 0])), forgetting,
    ),
}  # fmt: skip


def mamba2(peers: Path | None, dtype: torch.dtype, length: int) -> Pair:
    """The whole layer, (B, N, D) -> (B, N, D). Raises ModuleNotFoundError without transformers."""
    from transformers import Mamba2Config

    module = import_module("transformers.models.mamba2.modeling_mamba2")
    names = names_of(Path(module.__file__), dtype, module.__package__)
    sizes = {"num_heads": HEADS, "head_dim": 2 * HEAD, "state_size": 128, "n_groups": 1}
    theirs = names["Mamba2Mixer"](Mamba2Config(hidden_size=DIM, num_hidden_layers=1, **sizes), 0).to(dtype)
    model = Mamba2(DIM, HEADS, pattern="causal_self", max_length=length).to(dtype)
    scatter(theirs)
    gate, mixed = theirs.in_proj.weight.split([2 * DIM, len(theirs.in_proj.weight) - 2 * DIM])
    weights: Weights = {"gate_proj.weight": gate, "in_proj.weight": mixed, "out_proj.weight": theirs.out_proj.weight}
    weights |= {"convolution.weight": theirs.conv1d.weight.flip(-1), "convolution_bias": theirs.conv1d.bias}
    weights |= {"step_bias": theirs.dt_bias, "log_decay": theirs.A_log, "skip": theirs.D}
    copy(model, weights | {"norm.weight": theirs.norm.weight})
    x = torch.randn(1, length, DIM, generator=torch.Generator().manual_seed(0)).to(dtype)
    return Pair(lambda x: model(x)[0], theirs, (x,), (model.parameters(), theirs.parameters()))


def based(peers: Path | None, dtype: torch.dtype, length: int) -> Pair:
    naive = naive_of_fla("based", "naive_chunk_based", peers, dtype)
    block = LinearBlock(DIM, HEADS, 16).to(dtype)
    sums = block.empty_state(1)["sums"]

    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return block.attend(q, k, v, sums)[0]

    def theirs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        # theirs adds 1e-6 to the sum of weights, which a value of one measures
        y = naive(q, k, with_ones(v))
        return y[..., :-1] / y[..., -1:]

    return Pair(ours, theirs, heads(dtype, length, 16, 16, HEAD))


LOOP = "theirs is a loop over tokens: flash-linear-attention has no chunked form of it in torch"
FLA_PROJECT = Project(FLA.name, FLA, ("einops==0.8.2",))
TRANSFORMERS = Project("transformers", packages=("transformers==5.24.0",))


def comparison(name: str, make: Make, theirs: str, project: Project = FLA_PROJECT, note: str = "") -> Comparison:
    return Comparison(name, f"{project.name} {theirs}", partial(sides, make), project, TOLERANCE, note=note)


NOTES = {
    "gla": LOOP,
    "hgrn2": LOOP,
    "mamba2_core": "its recurrence: one decay per head; all heads have the same queries and keys",
    "forgetting": "softmax attention: its time is quadratic by design",
}
COMPARISONS = (
    *(comparison(name, each, each.function, note=NOTES.get(name, "")) for name, each in OPERATORS.items()),
    comparison("mamba2", mamba2, "Mamba2Mixer", TRANSFORMERS, "the whole layer"),
    comparison("based", based, "naive_chunk_based", note="the linear layer"),
)
