"""Transformer-XL against published numbers, its memory, and attention by distance."""

import pytest
import torch
import torch.nn.functional as F
from golden import check, fill, golden, leaves_of, needs_golden
from same import assert_same
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
ROLES |= {f"w_{name}": f"{name}_proj.weight" for name in "qkv"}


@needs_golden
@pytest.mark.parametrize("case", ["txl_q32_m31", "txl_q63_m0"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_published_layer(case, dtype):
    """One segment, in one case after a memory; the published layer is post-LN."""
    meta, a = golden(case)
    n, size = meta["hyper"]["n"], meta["hyper"]
    sizes = {"max_length": n, "segment": n, "memory_length": size["mem_len"]}
    model = TransformerXL(size["d"], size["heads"], pattern=CAUSAL, **sizes).to(dtype)
    assert set(dict(model.named_parameters())) == set(ROLES.values())
    for number, role in enumerate(("w_q", "w_k", "w_v")):
        a[role], a[f"d{role}"] = (a[name].chunk(3)[number] for name in ("w_qkv", "dw_qkv"))
    leaves = leaves_of(a, ("x", "mem", "ln_w", "ln_b"), dtype) | fill(model, a, ROLES)
    assert {f"d{name}" for name in leaves} == {name for name in a if name[0] == "d"} - {"dw_qkv"}
    y = leaves["x"] + model.read(leaves["x"], leaves.get("mem"))
    check(meta, a, F.layer_norm(y, (size["d"],), leaves["ln_w"], leaves["ln_b"]), leaves)


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
    assert_same(h, theirs, [x, *layers.parameters()])


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
