"""xLSTM beyond the contract: kinds of layers, published blocks and start, its two recurrences."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from same import assert_same, gradients
from zoo import DIM, HEADS, build, inputs, padding, run

from models.attention import xlstm
from models.attention.base import Pattern
from models.attention.xlstm import XLSTM
from models.backbones.decoder import DecoderLM
from models.ops import gated_linear
from models.ops import mlstm as matrix
from models.ops import slstm as scalar
from models.ops.running_softmax import HIDDEN
from models.ops.tiles import TileBudget

SCALAR = {"slstm_every": 1}
OWN = SCALAR | {"ffn": True}
KINDS = pytest.mark.parametrize("hyper", [{}, SCALAR, OWN], ids=["mlstm", "slstm", "slstm and its network"])


def language_model(layers, *, dim=DIM, heads=HEADS, **hyper):
    torch.manual_seed(0)
    config = DecoderLM.Config(
        vocab_size=11, max_length=40, dim=dim, heads=heads, layers=layers, ffn_dim=8, ffn="none", norm="pre",
        positions="none", dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    return DecoderLM(lambda *args, **options: XLSTM(*args, **hyper, **options), config)


def blocks(model):
    return [layer.attention.block for layer in model.layers]


@KINDS
def test_long_texts_are_read_in_slices(hyper, monkeypatch):
    model = build("xlstm", Pattern.CAUSAL_SELF, **hyper).double()
    x, _ = inputs(Pattern.CAUSAL_SELF, 43, dtype=torch.float64)
    mask = padding(2, 43, 30)
    options = {"key_padding_mask": mask, "residual": 2 * x}
    whole = run(model, x, **options)
    monkeypatch.setattr(xlstm, "SLICE", 10)
    with torch.no_grad():
        torch.testing.assert_close(run(model, x, **options), whole, atol=1e-10, rtol=0)


def scalar_step(gates, c, n, m):
    """h, c, n, m after a token; h does not depend on m, which is a constant."""
    i, f, z, o = gates.unbind(-2)
    after = torch.maximum(torch.nn.functional.logsigmoid(f) + m, i).detach()
    keep, enter = torch.sigmoid(f) * torch.exp(m - after), torch.exp(i - after)
    c, n = keep * c + enter * torch.tanh(z), keep * n + enter
    return torch.sigmoid(o) * c / n, c, n, after


@settings(max_examples=20)
@given(length=st.integers(1, 40), tile=st.sampled_from([1, 1000, 2**20]), padded=st.booleans())
def test_gradients_of_the_scalar_recurrence(length, tile, padded):
    """Against autograd through the same steps, from one state to the next, in tiles of any size."""
    generator = torch.Generator().manual_seed(length)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    batch, heads, width = 2, 3, 2
    gates, weight = normal(batch, length, 4, heads, width), normal(heads, width, 4, width)
    h, c, n, m = (normal(batch, heads, width) for _ in range(4))
    n, m = n.detach().exp().requires_grad_(), m.detach()
    mask = torch.rand(batch, length, generator=generator) < 0.4 if padded else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scalar, "TILE", TileBudget(tile, tile))
        ours, (*after, last) = scalar.slstm(gates, weight, (h, c, n, m), mask)
        rows, cells = [], (h, c, n, m)
        for t in range(length):
            read = gates[:, t].transpose(1, 2) + torch.einsum("bhi,higo->bhgo", cells[0], weight)
            new = scalar_step(read, *cells[1:])
            hidden = torch.zeros(batch, dtype=torch.bool) if mask is None else mask[:, t]
            cells = tuple(torch.where(hidden[:, None, None], a, b) for a, b in zip(cells, new, strict=True))
            rows.append(cells[0])
        theirs = torch.stack(rows, 1)
        torch.testing.assert_close(last, cells[3], atol=1e-12, rtol=0)
        assert_same((ours, *after), (theirs, *cells[:3]), (gates, weight, h, c, n), atol=1e-11, rtol=1e-11)


def read_memory(forget, dtype, length=150):
    """h, the memory after it, and all gradients, of random tokens of which some are padding."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape, shift=0.0):
        return (shift + torch.randn(*shape, generator=generator, dtype=torch.float64)).to(dtype).requires_grad_()

    q, k, v, first = (normal(2, 2, rows, width) for rows, width in ((length, 4), (length, 4), (length, 4), (4, 5)))
    enter, gate = normal(2, 2, length), normal(2, 2, length, shift=forget)
    mask = torch.rand(2, length, generator=generator) < 0.2
    results = matrix.mlstm(q, k, v, enter, gate, (first, torch.zeros(2, 2, dtype=dtype)), mask)
    h, (memory, _) = results
    return h, memory, *gradients((h, memory), (q, k, v, enter, gate, first))


@pytest.mark.parametrize("forget", [4.0, 0.0, -6.0, -700.0])
def test_a_memory_read_in_several_chunks_is_that_of_one_chunk(forget, monkeypatch):
    several = read_memory(forget, torch.float64)
    monkeypatch.setattr(gated_linear._CutTokens, "size_of", staticmethod(lambda q: 256))
    for chunks, chunk in zip(several, read_memory(forget, torch.float64), strict=True):
        torch.testing.assert_close(chunks, chunk, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1e6])
@pytest.mark.parametrize("first", [HIDDEN, 3.0])
def test_the_running_maximum_and_its_gradient(scale, first):
    generator = torch.Generator().manual_seed(0)
    x = (scale * torch.randn(2, 3, 150, generator=generator, dtype=torch.float64)).requires_grad_()
    decay = (-scale * torch.rand(2, 3, 150, generator=generator, dtype=torch.float64)).requires_grad_()
    start = torch.full((2, 3), first, dtype=torch.float64)
    rows, m = [], start
    for t in range(150):
        m = torch.maximum(decay[..., t] + m, x[..., t])
        rows.append(m)
    pair = matrix._RunningMaximum.apply(x, decay, start)[0], torch.stack(rows, -1)
    assert_same(*pair, [x, decay], atol=1e-9, rtol=1e-8)


def test_exponential_gates_of_any_size():
    """float32 is as accurate as float64 with gates beyond e^88 and with gates that stay closed for long."""
    model = build("xlstm", Pattern.CAUSAL_SELF)
    x, _ = inputs(Pattern.CAUSAL_SELF, 41, dtype=torch.float64)
    for shift in (-300.0, 0.0, 300.0):
        with torch.no_grad():
            model.block.gate_proj.weight.mul_(10)
            model.block.gate_proj.bias[:HEADS] = shift
            y = run(model.float(), x.float())
            exact = run(model.double(), x)
        torch.testing.assert_close(y.double(), exact, atol=1e-3 * exact.abs().max().item(), rtol=0)


def package_stack(dim, heads, layers, scalar_layers, length):
    """The package's stack with weights that are not zero, in float64."""
    package = pytest.importorskip("xlstm", minversion="2.0")
    config = package.xLSTMBlockStackConfig(
        mlstm_block=package.mLSTMBlockConfig(mlstm=package.mLSTMLayerConfig(num_heads=heads)),
        slstm_block=package.sLSTMBlockConfig(
            slstm=package.sLSTMLayerConfig(backend="vanilla", num_heads=heads, dtype="float32"),
            feedforward=package.FeedForwardConfig(proj_factor=1.3, act_fn="gelu"),
        ),
        context_length=length,
        num_blocks=layers,
        embedding_dim=dim,
        slstm_at=scalar_layers,
    )
    return package.xLSTMBlockStack(config).double()


def our_names(block):
    """{name in our layer: its value} of a block of the package."""
    values, layer = dict(block.named_parameters()), block.xlstm
    named = {
        "attention_norm.weight": 1 + values["xlstm_norm.weight"],
        "attention.block.convolution.weight": layer.conv1d.conv.weight[:, 0].flip(1),
        "attention.block.convolution.bias": layer.conv1d.conv.bias,
    }
    if hasattr(layer, "mlstm_cell"):
        cell = layer.mlstm_cell
        named |= {
            f"attention.block.{key}.weight": getattr(layer, key).weight.mT for key in ("q_proj", "k_proj", "v_proj")
        }
        return named | {
            "attention.block.up_proj.weight": layer.proj_up.weight,
            "attention.block.out_proj.weight": layer.proj_down.weight,
            "attention.block.skip": layer.learnable_skip,
            "attention.block.gate_proj.weight": torch.cat([cell.igate.weight, cell.fgate.weight]),
            "attention.block.gate_proj.bias": torch.cat([cell.igate.bias, cell.fgate.bias]),
            "attention.block.norm.weight": 1 + cell.outnorm.weight,
        }
    cell, heads = layer.slstm_cell, layer.config.num_heads
    width = layer.config.embedding_dim // heads
    biases = cell._bias_.view(4, heads * width)
    # the names of the first two are exchanged there
    for index, (ours, theirs) in enumerate(zip("ifzo", ("fgate", "igate", "zgate", "ogate"), strict=True)):
        named[f"attention.block.{ours}_proj.weight"] = getattr(layer, theirs).weight.mT
        named[f"attention.block.{ours}_proj.bias"] = biases[index]
    gate, value = block.ffn.proj_up.weight.chunk(2)
    return named | {
        "attention.block.recurrent": cell._recurrent_kernel_.view(heads, 4, width, width).permute(0, 3, 1, 2),
        "attention.block.norm.weight": 1 + layer.group_norm.weight,
        "attention.block.ffn_norm.weight": 1 + values["ffn_norm.weight"],
        "attention.block.ffn.gate.weight": gate,
        "attention.block.ffn.value.weight": value,
        "attention.block.ffn.out.weight": block.ffn.proj_down.weight,
    }


# parameters with deterministic initial values
FIXED = ("recurrent", "f_proj.bias", "gate_proj.weight", "norm.weight", "skip")


def test_published_stack():
    """The package `xlstm`, if installed: sizes, initial values, outputs and gradients of a stack of both kinds."""
    dim, heads, length = 64, 4, 37
    torch.manual_seed(0)
    theirs = package_stack(dim, heads, 4, [1, 3], length)
    model = language_model(4, dim=dim, heads=heads, slstm_at=[1, 3], ffn=True).double()
    for block, layer in zip(theirs.blocks, model.layers, strict=True):
        parameters, values = dict(layer.named_parameters()), our_names(block)
        assert sorted(values) == sorted(set(parameters) - {"attention_norm.bias"})
        for name in (name for name in values if name.endswith(FIXED)):
            torch.testing.assert_close(parameters[name], values[name], atol=1e-6, rtol=0)
        with torch.no_grad():
            for parameter in block.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
            for name, value in our_names(block).items():
                parameters[name].copy_(value)
    x = torch.randn(2, length, dim, dtype=torch.float64, requires_grad=True)
    y = x
    for layer in model.layers:
        y, _ = layer(y, None, None)
    assert_same(model.final_norm(y), theirs(x), [x], atol=1e-10, rtol=1e-10)
