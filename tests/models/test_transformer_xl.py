"""Transformer-XL against published numbers, its memory, and attention by distance."""

import weakref

import pytest
import torch
import torch.nn.functional as F
from golden import golden, needs_golden
from memory import LargestStorage
from zoo import build, inputs, run

from models.attention.base import Pattern
from models.attention.transformer_xl import TransformerXL
from models.backbones.config import TransformerConfig
from models.backbones.layer import layer_stack
from models.ops import relative
from models.ops.relative import by_distance, by_key, distance_sinusoids
from models.ops.tiles import TileBudget

CAUSAL = Pattern.CAUSAL_SELF
ROLES = {"w_r": "position_proj.weight", "w_o": "out_proj.weight", "u": "content_bias", "v": "position_bias"}
QKV = ("q_proj", "k_proj", "v_proj")


@needs_golden
@pytest.mark.parametrize("case", ["txl_q32_m31", "txl_q63_m0"])
@pytest.mark.parametrize(("dtype", "share"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_published_layer(case, dtype, share):
    """One segment, in one case after a memory; the published layer is post-LN."""
    meta, a = golden(case)
    size = meta["hyper"]
    model = TransformerXL(
        size["d"],
        size["heads"],
        pattern=CAUSAL,
        max_length=size["n"],
        segment=size["n"],
        memory_length=size["mem_len"],
    ).to(dtype)
    parameters = dict(model.named_parameters())
    assert set(parameters) == {*ROLES.values(), *(f"{name}.weight" for name in QKV)}
    with torch.no_grad():
        for role, name in ROLES.items():
            parameters[name].copy_(a[role])
        for name, weight in zip(QKV, a["w_qkv"].chunk(3), strict=True):
            parameters[f"{name}.weight"].copy_(weight)
    leaves = {name: a[name].to(dtype).requires_grad_() for name in ("x", "mem", "ln_w", "ln_b") if name in a}
    x = leaves["x"]
    y = F.layer_norm(x + model.read(x, leaves.get("mem")), (size["d"],), leaves["ln_w"], leaves["ln_b"])
    y.backward(a["g"].to(dtype))
    assert (y - a["y"]).abs().max() <= share * a["y"].abs().max()
    grads = {name: leaf.grad for name, leaf in leaves.items()} | {r: parameters[name].grad for r, name in ROLES.items()}
    grads["w_qkv"] = torch.cat([parameters[f"{name}.weight"].grad for name in QKV])
    assert {f"d{name}" for name in grads} == {name for name in a if name[0] == "d"}
    largest = max(a[f"d{name}"].abs().max() for name in grads)
    for name, gradient in grads.items():
        assert (gradient - a[f"d{name}"]).abs().max() <= 10 * share * largest, name


@needs_golden
def test_published_sinusoids():
    a = golden("txl_q32_m31")[1]
    torch.testing.assert_close(distance_sinusoids(63, 32, a["r"]).flip(0), a["r"], atol=1e-13, rtol=0)


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 4), (3, 3), (3, 7)])
def test_shift(queries, keys):
    """Column j of row i is at distance `before` + i - j, and entry L - 1 - distance of the row."""
    x, before = torch.randn(2, queries, keys), keys - queries
    shifted = by_key(x)
    back = torch.zeros_like(x)
    for i in range(queries):
        for j in range(before + i + 1):
            assert torch.equal(shifted[:, i, j], x[:, i, keys - 1 - (before + i - j)])
            back[:, i, keys - 1 - (before + i - j)] = x[:, i, j]
    seen = torch.ones(queries, keys).tril(before)
    torch.testing.assert_close(by_distance(x * seen), back)


def walk(layers, x, segment, memory):
    """A stack that reads segment by segment, as published: each layer's last inputs are kept, detached."""
    kept, rows = [x[:, :0]] * len(layers), []
    for h in x.split(segment, 1):
        for number, layer in enumerate(layers):
            before = kept[number]
            kept[number] = torch.cat([before, h], 1)[:, -memory:].detach() if memory else before
            h = layer.feed_forward(layer.after(layer.attention_norm, h, layer.attention.read(h, before)))
        rows.append(h)
    return torch.cat(rows, 1)


@pytest.mark.parametrize(("segment", "memory"), [(5, 5), (5, 12), (6, 4), (7, 0)])
def test_a_stack_equals_the_walk_from_segment_to_segment(segment, memory):
    torch.manual_seed(0)
    sizes = {"vocab_size": 1, "max_length": 32, "dim": 16, "heads": 2, "layers": 3, "ffn_dim": 32, "norm": "post"}

    def attention(*args, **options):
        return TransformerXL(*args, **options, segment=segment, memory_length=memory)

    layers = layer_stack(attention, TransformerConfig(**sizes), CAUSAL, 32).double().eval()
    x, _ = inputs(CAUSAL, 23, dtype=torch.float64)
    x.requires_grad_()
    h = x
    for layer in layers:
        h, _ = layer(h, None, None)
    theirs = walk(layers, x, segment, memory)
    torch.testing.assert_close(h, theirs, atol=1e-12, rtol=0)
    leaves = [x, *layers.parameters()]
    pairs = zip(*(torch.autograd.grad(y.sin().sum(), leaves) for y in (h, theirs)), strict=True)
    for ours, reference in pairs:
        torch.testing.assert_close(ours, reference, atol=1e-12, rtol=0)


@pytest.mark.parametrize("shared", [True, False])
def test_layers_share_their_biases(shared):
    lower, upper = (build("transformer_xl", CAUSAL, shared_biases=shared, seed=seed) for seed in (0, 1))
    upper.set_previous(lower)
    assert (upper.content_bias is lower.content_bias) is shared
    assert (upper.position_bias is lower.position_bias) is shared
    count = sum(p.numel() for p in torch.nn.ModuleList([lower, upper]).parameters())
    assert count == 2 * 5 * lower.dim**2 + (1 if shared else 2) * 2 * lower.dim


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_kept_weights_change_nothing(monkeypatch, dropout):
    """Also in a second backward pass, which computes them again."""
    monkeypatch.setattr(relative, "TILE", TileBudget(3 * 2 * 24, 3 * 2 * 24))
    model = build("transformer_xl", CAUSAL, segment=7, memory_length=17, dropout=dropout).train()
    x, _ = inputs(CAUSAL, 41)
    x.requires_grad_()

    def both_passes():
        torch.manual_seed(5)
        loss = run(model, x).square().sum()
        return [torch.autograd.grad(loss, [x, *model.parameters()], retain_graph=True) for _ in range(2)]

    first, second = both_passes()
    monkeypatch.setattr(relative, "KEPT", 0)
    for ours, again, reference in zip(first, second, both_passes()[0], strict=True):
        assert torch.equal(ours, reference) and torch.equal(again, reference)


@pytest.mark.parametrize("trains", [True, False])
def test_only_training_keeps_weights(monkeypatch, trains):
    monkeypatch.setattr(relative, "TILE", TileBudget(3 * 2 * 24, 3 * 2 * 24))
    model, (x, _) = build("transformer_xl", CAUSAL, segment=7, memory_length=17), inputs(CAUSAL, 41)
    compute, made, alive = relative._Segments.weights, [], []

    def weights(self, tile):
        made.append(weakref.ref(tensor := compute(self, tile)))
        alive.append(sum(reference() is not None for reference in made))
        return tensor

    monkeypatch.setattr(relative._Segments, "weights", weights)
    with torch.set_grad_enabled(trains):
        run(model, x)
    assert len(made) > 3 and (alive[-1] == len(made) if trains else max(alive) <= 2)


def test_a_long_segment_is_read_in_tiles(monkeypatch):
    monkeypatch.setattr(relative, "TILE", TileBudget(2**12, 2**12))
    model = build("transformer_xl", CAUSAL, dim=32, segment=256, memory_length=256)
    x = torch.randn(1, 512, 32, requires_grad=True)
    with LargestStorage() as largest:
        run(model, x).sum().backward()
    assert largest.numbers <= 512 * 32 * 3


def test_starts_as_published():
    torch.manual_seed(0)
    model = TransformerXL(256, 4, pattern=CAUSAL, max_length=8)
    for name, parameter in model.named_parameters():
        assert parameter.std().item() == pytest.approx(0.02, rel=0.2), name
