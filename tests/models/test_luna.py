"""The effect of Luna's options, and the path of the extra sequence P through a stack."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from golden import golden, needs_golden
from twins import trainable

from models.attention.luna import Luna
from models.attention.vanilla import Vanilla
from models.ops.positions import sinusoidal_positions


def luna(pattern="noncausal_self", dim=16, heads=2, **options):
    torch.manual_seed(0)
    return Luna(dim, heads, pattern=pattern, max_length=64, **{"slots": 4, **options}).double().eval()


def sequence(length=9, batch=2, dim=16, seed=0):
    return torch.randn(batch, length, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def stack(layers):
    for previous, layer in pairwise(layers):
        layer.set_previous(previous)
    return layers


@needs_golden
@pytest.mark.parametrize("case", ["luna_ns_n63", "luna_cross_n63_m41", "luna_ns_untied"])
def test_packed_is_the_references(case):
    meta, arrays = golden(case)
    size = meta["hyper"]
    model = luna(meta["pattern"], size["d"], size["heads"], tie_kv=size["tie_kv"])
    linears = {"pq": model.pack_q_proj, "pc": model.pack_v_proj, "pv": model.pack_v_proj, "pk": model.pack_k_proj}
    for role, linear in linears.items():
        if f"w_{role}" in arrays:
            linear.weight.data.copy_(arrays[f"w_{role}"])
            linear.bias.data.copy_(arrays[f"b_{role}"])
    packed = model.pack(arrays["p"], arrays.get("context", arrays["x"]), None)
    torch.testing.assert_close(packed, arrays["packed"], atol=meta["tolerance_max_abs"], rtol=0)


@pytest.mark.parametrize("pre_norm", [False, True])
def test_what_is_handed_over(pre_norm):
    model, x, p = luna(pre_norm=pre_norm), sequence(), sequence(4, seed=1)
    handed = model(x, carry=p)[1]
    packed = model.pack(p, x, None)
    norm = model.slots_norm
    expected = p + packed if pre_norm else F.layer_norm(p + packed, (16,), norm.weight, norm.bias)
    torch.testing.assert_close(handed, expected, atol=1e-12, rtol=0)
    assert not torch.allclose(model(x, carry=2 * p)[0], model(x, carry=p)[0])


@pytest.mark.parametrize("positions", [False, True])
def test_first_p_is_learned_vectors_plus_sinusoids(positions):
    first = luna(dim=64, slots=200, slot_positions=positions).first
    assert abs(first.table.std() - 64**-0.5) < 0.01
    expected = first.table * 8.0 + sinusoidal_positions(200, 64) if positions else first.table
    torch.testing.assert_close(first(), expected)
    normed = luna(dim=64, slots=200, slot_positions=positions, norm_slots=True).first
    torch.testing.assert_close(normed(), F.layer_norm(expected, (64,)))


@pytest.mark.parametrize("slots", [16, 32])
def test_the_translation_model_grows_to_the_printed_parameters(slots):
    """Table 5: 64.9 M with softmax attention, 69.6 M with Luna, in six encoder layers and six decoder layers."""
    with torch.device("meta"):
        places = ["noncausal_self"] * 6 + ["causal_self", "causal_cross"] * 6
        ours = stack([Luna(512, 8, pattern=p, max_length=64, slots=slots) for p in places])
        theirs = [Vanilla(512, 8, pattern=p, max_length=64) for p in places]
    assert [layer.first is not None for layer in ours] == [True] + [False] * 17
    grown = sum(map(trainable, ours)) - sum(map(trainable, theirs))
    assert grown == 18 * (512 * 512 + 512) + 12 * 2 * 512 + slots * 512
    assert round((64.9e6 + grown) / 1e5) in (696, 697)  # 64.9 is itself rounded


def test_p_goes_through_a_translation_stack():
    encoder, causal_self, cross = stack([luna(p) for p in ("noncausal_self", "causal_self", "causal_cross")])
    source, target = sequence(), sequence(5, seed=1)
    memory, p = encoder(source)
    y, passed = causal_self(target, carry=p)
    assert passed is p
    y, updated = cross(y, memory, carry=passed)
    assert updated.shape == p.shape
    assert not torch.allclose(updated, p)
    with pytest.raises(ValueError, match="requires its packed P"):
        causal_self(target)


def test_a_decoder_without_encoder_has_a_p_in_each_layer():
    first, second = stack([luna("causal_self"), luna("causal_self")])
    assert first.first is not None
    assert second.first is not None
    y, carry = first(sequence())
    assert carry is None
    assert second(y, carry=carry)[0].shape == y.shape


def test_p_is_learned_through_the_layers():
    layers, x, carry = stack([luna() for _ in range(3)]), sequence(), None
    for layer in layers:
        y, carry = layer(x, carry=carry)
        x = x + y
    x.sum().backward()
    assert layers[0].first.table.grad.abs().max() > 0
    assert all(layer.slots_norm.weight.grad.abs().max() > 0 for layer in layers[:-1])


@pytest.mark.parametrize("dynamic", [False, True])
def test_short_sequences_use_fewer_slots(dynamic):
    model, x = luna(dynamic=dynamic), sequence(9, batch=3)
    mask = torch.arange(9) >= torch.tensor([[2], [9], [0]])
    p = model(x, key_padding_mask=mask)[1]
    used = (p != 0).any(-1)
    expected = torch.arange(4) < torch.tensor(
        [[2], [4], [1]]
    )  # all padding: one slot remains, so that something is read
    assert torch.equal(used, expected if dynamic else torch.ones(3, 4, dtype=torch.bool))
    short = model(x[:1, :2])
    torch.testing.assert_close(model(x, key_padding_mask=mask)[0][:1, :2], short[0], atol=1e-12, rtol=0)
    torch.testing.assert_close(p[:1], short[1], atol=1e-12, rtol=0)


@pytest.mark.parametrize("tie_kv", [False, True])
def test_a_decoder_reads_the_slots_that_its_encoder_used(tie_kv):
    encoder, decoder = stack([luna(), luna("causal_self", tie_kv=tie_kv)])
    x, p = sequence(7, seed=1), encoder(sequence(2))[1]
    whole = decoder(x, carry=p)[0]
    torch.testing.assert_close(whole, decoder(x, carry=p[:, :2])[0], atol=1e-12, rtol=0)
    rows, state = [], decoder.init_state(2, carry=p)
    for x_t in x.unbind(1):
        y_t, state = decoder.step(x_t, state)
        rows.append(y_t)
    torch.testing.assert_close(torch.stack(rows, 1), whole, atol=1e-12, rtol=0)


def test_state_is_the_sum_and_the_projected_p():
    state = luna("causal_self", slots=6).init_state(3)
    assert state["total"].numel() == state["pack_q"].numel() == 3 * 6 * 16
    assert luna("causal_self", slots=6, tie_kv=False).init_state(3)["total"].numel() == 2 * 3 * 6 * 16


def test_slots_may_be_dropped_apart_from_weights(monkeypatch):
    shares = []
    monkeypatch.setattr("models.attention.luna.drop", lambda x, p: shares.append(p) or x)
    for options in ({}, {"slot_dropout": 0.25}):
        luna(dropout=0.5, **options).train()(sequence())
    assert shares == [0.5, 0.5, 0.25, 0.25]
    luna(dropout=0.5, slot_dropout=0.25)(sequence())
    assert shares[4:] == [0.0], "in evaluation nothing is dropped"


@pytest.mark.parametrize("pre_norm", [False, True])
def test_without_contextual_p_every_layer_has_its_own(pre_norm):
    """Table 6's ablation: no carry in the encoder, in the decoder, or between them."""
    places = ("noncausal_self", "noncausal_self", "causal_self", "causal_cross")
    layers = stack([luna(pattern, contextual=False, pre_norm=pre_norm) for pattern in places])
    assert all(layer.first is not None for layer in layers) and not any(layer.has_packed_carry for layer in layers)
    source, target, other = sequence(), sequence(5, seed=1), sequence(4, seed=2)
    encoder, second, causal_self, cross = layers
    for layer, inputs in (
        (encoder, (source,)),
        (second, (source,)),
        (causal_self, (target,)),
        (cross, (target, source)),
    ):
        y, carry = layer(*inputs)
        assert carry is None
        handed, passed = layer(*inputs, carry=other)
        assert torch.equal(handed, y) and passed is other
        with torch.no_grad():
            layer.first.table.add_(torch.randn(layer.first.table.shape, generator=torch.Generator().manual_seed(3)))
        assert not torch.allclose(layer(*inputs)[0], y)
        trained = layer(*inputs)[0].square().sum()
        trained.backward()
        assert all(weight.grad is not None and weight.grad.abs().max() > 0 for weight in (layer.first.table,))
        assert [name for name, weight in layer.named_parameters() if weight.grad is None] == []


def test_without_contextual_p_steps_are_the_forward():
    x, source = sequence(7), sequence(5, seed=1)
    causal_self, cross = luna("causal_self", contextual=False), luna("causal_cross", contextual=False)
    state = causal_self.init_state(2, carry=sequence(4, seed=2))
    steps = []
    for token in x.unbind(1):
        y, state = causal_self.step(token, state)
        steps.append(y)
    torch.testing.assert_close(torch.stack(steps, 1), causal_self(x)[0])
    state = cross.init_state(2, context=source)
    assert state["carry"] is None
    torch.testing.assert_close(cross.step(x[:, 3], state)[0], cross(x, source)[0][:, 3])
