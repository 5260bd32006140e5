"""The effect of Luna's options, and the path of the extra sequence P through a stack."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from golden import golden, needs_golden
from zoo import in_chunks

from models.attention.luna import Luna
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


def test_p_goes_through_a_translation_stack():
    encoder, causal_self, cross = stack([luna(p) for p in ("noncausal_self", "causal_self", "causal_cross")])
    source, target = sequence(), sequence(5, seed=1)
    memory, p = encoder(source)
    y, passed = causal_self(target, carry=p)
    assert passed is p and encoder.first is not None and causal_self.first is cross.first is None
    y, updated = cross(y, memory, carry=passed)
    assert updated.shape == p.shape
    assert not torch.allclose(updated, p)
    with pytest.raises(ValueError, match="requires its packed P"):
        causal_self(target)


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
    rows, _ = in_chunks(decoder, x, decoder.init_state(2, carry=p), (1,) * 7)
    torch.testing.assert_close(rows, whole, atol=1e-12, rtol=0)


def test_slots_may_be_dropped_apart_from_weights(monkeypatch):
    shares = []
    monkeypatch.setattr("models.attention.luna.drop", lambda x, p: shares.append(p) or x)
    for options in ({}, {"slot_dropout": 0.25}):
        luna(dropout=0.5, **options).train()(sequence())
    luna(dropout=0.5, slot_dropout=0.25)(sequence())  # in evaluation nothing is dropped
    assert shares == [0.5, 0.5, 0.25, 0.25, 0.0]


@pytest.mark.parametrize("pattern", ["noncausal_self", "causal_self", "causal_cross"])
def test_without_contextual_p_every_layer_has_its_own(pattern):
    """Table 6's ablation: no carry in the encoder, in the decoder, or between them."""
    layers = stack([luna(pattern, contextual=False) for _ in range(2)])
    assert all(layer.first is not None for layer in layers) and not any(layer.has_packed_carry for layer in layers)
    layer, given, other = layers[1], [sequence(), *([sequence(5, seed=1)] if "cross" in pattern else [])], sequence(4)
    y, carry = layer(*given)
    handed, passed = layer(*given, carry=other)
    assert carry is None and torch.equal(handed, y) and passed is other
    y.square().sum().backward()
    assert [name for name, weight in layer.named_parameters() if weight.grad is None] == []
    if pattern != "noncausal_self":
        options = {"context": given[1]} if "cross" in pattern else {"carry": other}
        rows, _ = in_chunks(layer, given[0], layer.init_state(2, **options), (1,) * 9)
        torch.testing.assert_close(rows, y)
