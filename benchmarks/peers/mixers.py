"""Public CPU forms of the sequence mixers of `benchmarks.competitors`, each beside ours on the same numbers.

flash-linear-attention's kernels need a GPU: its rows are the torch forms that its own tests compare the kernels with.
A file of a clone is read alone, so that nothing of Triton is imported. For a comparison in float64 it computes in
float64 where it says float32.

    B batch, H heads, N length, K and V widths of a key and a value
"""

import ast
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.attention.workloads import Workload
from benchmarks.peers.base import Clone, Project, imported_from, package, projections
from benchmarks.side_by_side import Weights, copy, scatter
from models.attention.based import ConvBlock, LinearBlock
from models.attention.hyena import Hyena
from models.attention.mamba2 import Mamba2
from models.attention.moba import MoBA
from models.attention.nsa import NSA
from models.ops.delta_rule import delta_rule
from models.ops.forgetting import forgetting_attention
from models.ops.gated_linear import gated_linear_attention
from models.ops.kernel_attention import with_ones

FLA = Clone(
    "flash-linear-attention", "https://github.com/fla-org/flash-linear-attention",
    "bc3b101dcb713ddc5bd8924b66754eb68b5ccf89", source="fla",
)  # fmt: skip
MOBA = Clone("MoBA", "https://github.com/MoonshotAI/MoBA", "61e456bc956c5a25fd9c84e5496b661329cb1b72", source="moba")
SAFARI = Clone("safari", "https://github.com/HazyResearch/safari", "02220c69d247e5473616cd053a443ad99fd2559b")
BASED = Clone("based", "https://github.com/HazyResearch/based", "32c1bd4e09c8f7f718b0ed3f2e0a333908297879")

DIM, HEADS = 128, 4
HEAD = DIM // HEADS
CHOICE = 4096  # tokens of which published block sizes leave many out; shorter texts get smaller blocks


class MixerPair(NamedTuple):
    """Two functions of the same tensors, with outputs of one shape; `parameters` belong to the layers of both."""

    peer: str
    ours: Callable[..., Tensor]
    theirs: Callable[..., Tensor]
    inputs: Sequence[Tensor]
    parameters: tuple[Sequence[Tensor], Sequence[Tensor]] = ((), ())

    def workloads(self) -> tuple[Workload, Workload]:
        """Ours and theirs, to be timed or compared. The leaves are the inputs, followed by the side's parameters."""
        return tuple(
            LayerWorkload(function, self.inputs, parameters)
            for function, parameters in zip((self.ours, self.theirs), self.parameters, strict=True)
        )


class LayerWorkload(Workload):
    """A function of inputs that also reads parameters."""

    def __init__(self, function: Callable[..., Tensor], inputs: Sequence[Tensor], parameters: Sequence[Tensor]):
        count = len(inputs)
        super().__init__(lambda *leaves: function(*leaves[:count]), *inputs)
        self.leaves += parameters


class Widened(ast.NodeTransformer):
    """A source that computes in float64 where it says float32."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        of_torch = isinstance(node.value, ast.Name) and node.value.id == "torch"
        if of_torch and node.attr in ("float32", "float"):
            node.attr = "float64"
        elif node.attr == "float":
            node.attr = "double"
        return node


def names_of(file: Path, dtype: torch.dtype, within: str = "") -> dict[str, Any]:
    """The names that a file defines. `within`: the package that its relative imports start from."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    if dtype is torch.float64:
        tree = Widened().visit(tree)
    module = ModuleType(f"{within}.{file.stem}" if within else file.stem)
    module.__package__, module.__file__ = within, str(file)
    exec(compile(tree, str(file), "exec"), vars(module))
    return vars(module)


def of_clone(
    clone: Clone,
    path: str,
    peers: Path | None,
    dtype: torch.dtype,
    unused: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """The names of a file in a clone; `unused` as in `imported_from`. Raises AbsentError."""
    folder = clone.folder(peers)
    with imported_from(folder, unused=unused):
        return names_of(folder / path, dtype)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """The type of new tensors that name none."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def heads(dtype: torch.dtype, length: int, *widths: int, count: int = HEADS) -> list[Tensor]:
    """Random (1, H, N, width) tensors, with tokens before heads in memory, as projections have them."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, length, count, width, generator=generator).to(dtype).transpose(1, 2) for width in widths]


def units(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1)


def swapped(x: Tensor) -> Tensor:
    """(B, H, N, ..) <-> (B, N, H, ..)."""
    return x.transpose(1, 2)


def tokens_first(function: Callable[..., Any], *arguments: Tensor, **options: Any) -> Tensor:
    """The first output of a function with (B, N, H, ..), from and to (B, H, N, ..)."""
    y = function(*map(swapped, arguments), **options)
    return swapped(y[0] if isinstance(y, tuple) else y)


def gla(peers: Path | None, dtype: torch.dtype, length: int) -> MixerPair:
    naive = of_clone(FLA, "ops/gla/naive.py", peers, dtype)["naive_recurrent_gla"]
    q, k, v, gate = heads(dtype, length, HEAD // 2, HEAD // 2, HEAD, HEAD // 2)

    def ours(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
        return gated_linear_attention(q * q.shape[-1] ** -0.5, k, v, g)[0]

    inputs = q, k, v, F.logsigmoid(gate) / 16
    return MixerPair(f"{FLA.label} naive_recurrent_gla", ours, partial(tokens_first, naive), inputs)


def hgrn2(peers: Path | None, dtype: torch.dtype, length: int) -> MixerPair:
    naive = of_clone(FLA, "ops/gla/naive.py", peers, dtype)["naive_recurrent_gla"]

    def ours(q: Tensor, v: Tensor, f: Tensor) -> Tensor:
        return gated_linear_attention(q * HEAD**-0.5, torch.sigmoid(-f), v, F.logsigmoid(f))[0]

    def theirs(q: Tensor, v: Tensor, f: Tensor) -> Tensor:
        return tokens_first(naive, q, torch.sigmoid(-f), v, F.logsigmoid(f))

    return MixerPair(f"{FLA.label} naive_recurrent_gla", ours, theirs, heads(dtype, length, HEAD, HEAD, HEAD))


def mamba2(peers: Path | None, dtype: torch.dtype, length: int) -> MixerPair:
    """The whole layer. Raises ModuleNotFoundError without transformers."""
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
    return layer_pair(f"{package('transformers')} Mamba2Mixer", model, theirs, dtype, length)


def mamba2_core(peers: Path | None, dtype: torch.dtype, length: int) -> MixerPair:
    naive = of_clone(FLA, "ops/simple_gla/naive.py", peers, dtype)["naive_chunk_simple_gla"]
    q, k = heads(dtype, length, 128, 128, count=1)  # shared by all heads
    v, steps = heads(dtype, length, 2 * HEAD, 1)

    def ours(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
        return gated_linear_attention(q * 128**-0.5, k, v, g[..., None])[0]

    def theirs(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
        return tokens_first(naive, q.expand(-1, HEADS, -1, -1), k.expand(-1, HEADS, -1, -1), v, g)

    inputs = q, k, v, -F.softplus(steps[..., 0])
    return MixerPair(f"{FLA.label} naive_chunk_simple_gla", ours, theirs, inputs)


def deltanet(peers: Path | None, dtype: torch.dtype, length: int) -> MixerPair:
    naive = of_clone(FLA, "ops/delta_rule/naive.py", peers, dtype)["delta_rule_chunkwise"]
    q, k, v, beta = heads(dtype, length, HEAD, HEAD, HEAD, 1)

    def ours(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
        return delta_rule(q * HEAD**-0.5, k, beta[..., None] * v, beta[..., None] * k)[0]

    inputs = q, units(k), v, beta[..., 0].sigmoid()
    return MixerPair(f"{FLA.label} delta_rule_chunkwise", ours, lambda *tensors: naive(*tensors)[0], inputs)


def gated_deltanet(peers: Path | None, dtype: torch.dtype, length: int) -> MixerPair:
    naive = of_clone(FLA, "ops/gated_delta_rule/naive.py", peers, dtype)["naive_chunk_gated_delta_rule"]
    q, k, v, g, beta = heads(dtype, length, HEAD * 3 // 4, HEAD * 3 // 4, HEAD * 3 // 2, 1, 1)

    def ours(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
        rate = beta[..., None]
        return delta_rule(q * q.shape[-1] ** -0.5, k, rate * v, rate * k, g[..., None])[0]

    inputs = q, units(k), v, -F.softplus(g[..., 0]), beta[..., 0].sigmoid()
    return MixerPair(f"{FLA.label} {naive.__name__}", ours, partial(tokens_first, naive), inputs)


def kda(peers: Path | None, dtype: torch.dtype, length: int) -> MixerPair:
    naive = of_clone(FLA, "ops/kda/naive.py", peers, dtype)["naive_chunk_kda"]
    q, k, v, g, beta = heads(dtype, length, HEAD, HEAD, HEAD, HEAD, 1)

    def ours(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
        rate = beta[..., None]
        return delta_rule(q * HEAD**-0.5, k, rate * v, rate * k, g)[0]

    inputs = q, units(k), v, -F.softplus(g), beta[..., 0].sigmoid()
    return MixerPair(f"{FLA.label} naive_chunk_kda", ours, partial(tokens_first, naive), inputs)


def rwkv7(peers: Path | None, dtype: torch.dtype, length: int) -> MixerPair:
    naive = of_clone(FLA, "ops/generalized_delta_rule/dplr/naive.py", peers, dtype)["dplr_chunkwise"]
    q, k, v, z, rate, decay = heads(dtype, length, *[HEAD] * 6)

    def ours(q: Tensor, k: Tensor, v: Tensor, z: Tensor, rate: Tensor, g: Tensor) -> Tensor:
        return delta_rule(q * HEAD**-0.5, k, v, z * (-g).exp(), g, erase=rate * z)[0]

    def theirs(q: Tensor, k: Tensor, v: Tensor, z: Tensor, rate: Tensor, g: Tensor) -> Tensor:
        with default_dtype(dtype):  # of its zeros
            return naive(q, k, v, -z, rate * z, g)[0]

    inputs = q, k, v, units(z), rate.sigmoid(), -math.exp(-0.5) * decay.sigmoid()
    return MixerPair(f"{FLA.label} dplr_chunkwise", ours, theirs, inputs)


def based(peers: Path | None, dtype: torch.dtype, length: int) -> MixerPair:
    naive = of_clone(FLA, "ops/based/naive.py", peers, dtype)["naive_chunk_based"]
    block = LinearBlock(DIM, HEADS, 16).to(dtype)
    sums = block.empty_state(1)["sums"]

    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return block.attend(q, k, v, sums)[0]

    def theirs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        # theirs adds 1e-6 to the sum of weights, which a value of one measures
        y = naive(q, k, with_ones(v))
        return y[..., :-1] / y[..., -1:]

    return MixerPair(f"{FLA.label} naive_chunk_based", ours, theirs, heads(dtype, length, 16, 16, HEAD))


def based_conv(peers: Path | None, dtype: torch.dtype, length: int) -> MixerPair:
    unused = {"flash_attn.utils.generation": ("InferenceParams",)}
    names = of_clone(BASED, "based/models/mixers/convolution.py", peers, dtype, unused)
    theirs = names["BaseConv"](DIM, length, expand_proj=4).to(dtype)
    model = ConvBlock(DIM, 2 * DIM, 3).to(dtype)
    scatter(theirs)
    weights = projections(in_proj=theirs.in_proj, out_proj=theirs.out_proj)
    copy(model, weights | {"convolution.weight": theirs.conv.conv.weight.flip(-1)})
    return layer_pair(f"{BASED.label} BaseConv", model, theirs, dtype, length)


def hyena(peers: Path | None, dtype: torch.dtype, length: int) -> MixerPair:
    names = of_clone(SAFARI, "standalone_hyena.py", peers, dtype)
    with default_dtype(dtype):  # of the tables that it computes
        theirs = names["HyenaOperator"](DIM, length, emb_dim=33, w=14)
    model = Hyena(DIM, HEADS, pattern="causal_self", max_length=length).to(dtype)
    network = theirs.filter_fn.implicit_filter
    weights = projections(in_proj=theirs.in_proj, out_proj=theirs.out_proj)
    weights |= {"convolution.weight": theirs.short_filter.weight.flip(-1), "convolution_bias": theirs.short_filter.bias}
    weights |= {"filters.skip": theirs.filter_fn.bias, "filters.frequency": network[1].freq}
    weights |= projections(**{"filters.out": network[6]}, **{f"filters.hidden.{i}": network[2 * i] for i in range(3)})
    copy(model, weights)
    return layer_pair(f"{SAFARI.label} HyenaOperator", model, theirs, dtype, length)


def forgetting(peers: Path | None, dtype: torch.dtype, length: int) -> MixerPair:
    naive = of_clone(FLA, "ops/forgetting_attn/naive.py", peers, dtype)["naive_forgetting_attn"]
    q, k, v, gate = heads(dtype, length, HEAD, HEAD, HEAD, 1)

    def ours(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
        return forgetting_attention(q, k, v, g.double().cumsum(-1))

    inputs = q, k, v, F.logsigmoid(gate[..., 0])
    return MixerPair(f"{FLA.label} naive_forgetting_attn", ours, partial(tokens_first, naive), inputs)


def block_means(x: Tensor, block: int, *_: Any) -> Tensor:
    """(B, N, H, E) -> (B, C, H, E), as flash-linear-attention's kernel; N is a multiple of the block."""
    return x.unflatten(1, (-1, block)).mean(2)


def near(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, window_size: tuple[int, int]) -> Tensor:
    """flash-attn's function for a window, by torch."""
    distance = torch.arange(q.shape[1])[:, None] - torch.arange(k.shape[1])
    mask = (distance >= 0) & (distance <= window_size[0])
    return swapped(F.scaled_dot_product_attention(*map(swapped, (q, k, v)), attn_mask=mask, enable_gqa=True))


def nsa(peers: Path | None, dtype: torch.dtype, length: int) -> MixerPair:
    """16 heads that share keys and values, the fewest that its function takes."""
    sizes = {"block": 16, "selected": 6, "window": 64} if length < CHOICE else {}
    unused = {"fla.ops.utils": ("prepare_chunk_offsets",), "fla.ops.utils.pooling": ("mean_pooling",)}
    unused |= {"flash_attn": ("flash_attn_func", "flash_attn_varlen_func")}
    names = of_clone(FLA, "ops/nsa/naive.py", peers, dtype, unused)
    names.update(mean_pooling=block_means, flash_attn_func=near)
    model = NSA(DIM, 16, group=16, pattern="causal_self", max_length=length, **sizes).to(dtype)
    (q,), (k, v) = heads(dtype, length, 8, count=16), heads(dtype, length, 8, 8, count=1)
    (x,) = heads(dtype, length, DIM, count=1)  # (1, 1, N, D), what the gates read

    def ours(q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
        return model.look(x[:, 0], q, k, v, model.summaries(k, v, None), None)

    def theirs(q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
        gates = model.gate_proj(x[:, 0]).unflatten(-1, (-1, 3)).sigmoid().unbind(-1)  # (B, N, H) each
        options = {"block_counts": model.selected, "block_size": model.block, "window_size": model.window}
        return swapped(names["naive_nsa"](*map(swapped, (q, k, v)), *gates, **options))

    gates = list(model.gate_proj.parameters())
    return MixerPair(f"{FLA.label} naive_nsa", ours, theirs, (q, k, v, x), (gates, gates))


def moba(peers: Path | None, dtype: torch.dtype, length: int) -> MixerPair:
    naive = of_clone(MOBA, "moba_naive.py", peers, dtype)["moba_attn_varlen_naive"]
    sizes = {"block": 64} if length < CHOICE else {}
    model = MoBA(DIM, HEADS, pattern="causal_self", max_length=length, **sizes).to(dtype)

    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return model.look(q, q, k, v, model.summaries(k, v, None), None)

    def theirs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ends = torch.tensor([0, length], dtype=torch.int32)
        y = naive(*(swapped(x)[0] for x in (q, k, v)), ends, length, model.block, model.selected)
        return swapped(y[None])

    return MixerPair(f"{MOBA.label} moba_attn_varlen_naive", ours, theirs, heads(dtype, length, HEAD, HEAD, HEAD))


def layer_pair(peer: str, model: nn.Module, theirs: nn.Module, dtype: torch.dtype, length: int) -> MixerPair:
    """Two layers (B, N, D) -> (B, N, D) with the same weights."""
    x = torch.randn(1, length, DIM, generator=torch.Generator().manual_seed(0)).to(dtype)

    def ours(x: Tensor) -> Tensor:
        y = model(x)
        return y[0] if isinstance(y, tuple) else y

    return MixerPair(peer, ours, theirs, (x,), (list(model.parameters()), list(theirs.parameters())))


def project(clone: Clone, *makers: Callable[..., MixerPair]) -> Project:
    return Project(clone.name, tuple((maker.__name__, maker) for maker in makers), clone, ("einops==0.8.2",))


PROJECTS = (
    project(FLA, gla, mamba2_core, hgrn2, deltanet, gated_deltanet, kda, rwkv7, based, forgetting, nsa),
    Project("transformers", (("mamba2", mamba2),), packages=("transformers==5.24.0",)),
    project(BASED, based_conv),
    project(SAFARI, hyena),
    project(MOBA, moba),
)
