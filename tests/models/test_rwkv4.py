"""RWKV-4's mean against published numbers, its gradients, its start, and its layer with the channel mix."""

import math
from itertools import pairwise

import pytest
import torch
from drawn import draw
from golden import golden, needs_golden
from same import assert_same
from zoo import in_chunks

from models.attention.rwkv4 import RWKV4
from models.backbones.config import LayerConfig
from models.backbones.layer import TransformerLayer
from models.ops import wkv as ops
from models.ops.running_softmax import HIDDEN
from models.ops.tiles import TileBudget
from models.ops.wkv import wkv


def stack(layers, dim=8, **hyper):
    models = [RWKV4(dim, 1, pattern="causal_self", max_length=8, **hyper) for _ in range(layers)]
    for previous, layer in pairwise(models):
        layer.set_previous(previous)
    return models


@needs_golden
@pytest.mark.parametrize("tile", [1, 2**18])
def test_published_numbers(tile, monkeypatch):
    monkeypatch.setattr(ops, "TILE", TileBudget(tile, tile))
    meta, a = golden("rwkv4_wkv_n63")
    y, (z, m) = wkv(a["k"], a["v"], a["time_decay"].exp(), a["time_first"])
    tolerance = {"atol": meta["tolerance_max_abs"], "rtol": 0}
    torch.testing.assert_close(y, a["y"], **tolerance)
    torch.testing.assert_close(m, a["state_num"] / a["state_den"], **tolerance)
    torch.testing.assert_close(z, a["state_den"].log() + a["state_max"], **tolerance)


def test_transformers_gives_the_same():
    theirs = pytest.importorskip("transformers.models.rwkv.modeling_rwkv").rwkv_linear_attention_cpu
    k, v, decay, bonus = (draw(*shape, seed=i).float() for i, shape in enumerate([(2, 70, 6), (2, 70, 6), (6,), (6,)]))
    torch.testing.assert_close(wkv(k, v, decay.exp(), bonus)[0], theirs(decay, bonus, k, v)[0], atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("tile", [1, 2**18])
@pytest.mark.parametrize("length", [1, 5, 101])
def test_gradients_of_the_mean_and_of_both_states(tile, length, monkeypatch):
    monkeypatch.setattr(ops, "TILE", TileBudget(tile, tile))
    leaves = [draw(2, length, 3), draw(2, length, 3, seed=1), draw(3).exp(), draw(3), draw(2, 3), draw(2, 3, seed=2)]

    def run(k, v, decay, bonus, log_sum, mean):
        y, state = wkv(k, v, decay, bonus, (log_sum, mean))
        return y, *state

    assert torch.autograd.gradcheck(run, [leaf.requires_grad_() for leaf in leaves], fast_mode=True)


@pytest.mark.parametrize("length", [63, 64, 200, 2100])  # one, two and several chunks, and chunks of chunks
def test_any_key_and_any_decay(length):
    k, v = 300 * draw(1, length, 4), draw(1, length, 4, seed=1)
    decay, bonus = torch.tensor([0.0, 1e-3, 30.0, math.inf], dtype=torch.float64), draw(4)
    y, _ = wkv(k, v, decay, bonus)
    steps = torch.arange(length)
    for t in (0, 1, 62, length - 1):
        age = (t - 1 - steps[:t]).clamp(min=0)[:, None]
        faded = torch.where(age == 0, 0.0, age * decay)
        logits = torch.cat([k[0, :t] - faded, (bonus + k[0, t])[None]])
        expected = (logits.softmax(0) * v[0, : t + 1]).sum(0)
        torch.testing.assert_close(y[0, t], expected, atol=1e-10, rtol=0)
    single, _ = wkv(k.float(), v.float(), decay.float(), bonus.float())
    torch.testing.assert_close(single.double(), y, atol=1e-3, rtol=0)  # keys of 1000 have 4 digits behind the point


def test_a_constant_stays_that_constant_over_a_long_text():
    """With no decay each token's share falls below float32's digits; the shares still sum to 1."""
    k, v = draw(1, 20_000, 2).float(), torch.full((1, 20_000, 2), 0.7)
    y, _ = wkv(k, v, torch.tensor([0.0, 1e-6]), torch.zeros(2))
    torch.testing.assert_close(y, v, atol=2e-6, rtol=0)


def test_hidden_tokens_leave_the_mean_alone_while_it_decays():
    k, v = draw(1, 6, 3), draw(1, 6, 3, seed=1)
    k[:, :2], k[:, 3:5] = HIDDEN, HIDDEN
    decay, bonus = torch.ones(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    y, (z, _) = wkv(k, v, decay, bonus)
    past = (k[0, 2] - 2 - k[0, 5]).sigmoid()
    torch.testing.assert_close(y[0, 2], v[0, 2])
    torch.testing.assert_close(y[0, 5], past * v[0, 2] + (1 - past) * v[0, 5])
    torch.testing.assert_close(z[0], torch.logaddexp(k[0, 2] - 3, k[0, 5]))


def test_starts_by_channel_and_by_place_in_the_stack():
    first, middle, last = stack(3, dim=5, channel_mix=True)
    channel = torch.arange(5) / 5
    for layer, left, depth in ((first, 1, 0), (middle, 2 / 3, 0.5), (last, 1 / 3, 1)):
        k, v, r = layer.shift.shares
        torch.testing.assert_close(k, channel**left)
        torch.testing.assert_close(v, channel**left + 0.3 * depth)
        torch.testing.assert_close(r, channel ** (left / 2))
        torch.testing.assert_close(layer.channel_mix.shift.shares, (channel**left).expand(2, 5))
        relative = torch.arange(5) / 4
        torch.testing.assert_close(layer.log_decay, -5 + 8 * relative ** (0.7 + 1.3 * depth))
        torch.testing.assert_close(layer.bonus, math.log(0.3) + torch.tensor([0.0, 0.5, -0.5, 0.0, 0.5]))


@pytest.mark.parametrize("steps", [False, True])
def test_layer_with_the_channel_mix_is_the_published_one(steps):
    """x <- x + time_mix(LN x), x <- x + channel_mix(LN x); the backbone's layer adds both as one sum."""
    torch.manual_seed(0)
    config = LayerConfig(dim=8, ffn_dim=0, dropout=0.0, ffn="none")
    (model,) = stack(1, channel_mix=True)
    layer = TransformerLayer(model, config).double().eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    x = draw(2, 7, 8)
    (plain,) = stack(1)
    plain.double().load_state_dict({k: w for k, w in model.state_dict().items() if "channel_mix" not in k})
    h = x + plain(layer.attention_norm(x))[0]
    expected = h + model.channel_mix(h, torch.zeros(2, 8, dtype=torch.float64))[0]
    if steps:
        y, _ = in_chunks(layer, x, model.init_state(2), (1,) * 7)
    else:
        y, _ = layer(x, None, None)
    torch.testing.assert_close(y, expected, atol=1e-12, rtol=0)


def test_channel_mix_in_slices_is_the_same(monkeypatch):
    torch.manual_seed(0)
    mix = stack(1, channel_mix=True)[0].channel_mix.double()
    torch.nn.init.normal_(mix.v_proj.weight)
    x, last = draw(2, 13, 8).requires_grad_(), draw(2, 8, seed=1)
    whole = mix(x, last)[0]
    monkeypatch.setattr("models.attention.rwkv4.SLICE", 6)
    assert_same(mix(x, last)[0], whole, [x])
    with torch.no_grad():
        torch.testing.assert_close(mix(x, last)[0], whole)
