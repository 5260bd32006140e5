"""Perceiver AR and its variants: against public numbers, what latents see, scoring and generation."""

import pytest
import torch
from golden import check, fill, golden, leaves_of, needs_golden
from zoo import DECODERS, load

from models.backbones.perceiver_ar import PerceiverAR, PerceiverARV1, PerceiverARV2, PerceiverARV3
from models.generation.generate import generate

SIZES = {"vocab_size": 11, "max_length": 20, "dim": 16, "heads": 2, "layers": 3, "ffn_dim": 24}
VARIANTS = {
    PerceiverAR: {},
    PerceiverARV1: {},
    PerceiverARV2: {"segment": 5},
    PerceiverARV3: {"compressed": 4},
}
LATENTS, HISTORY = 8, 12


def perceiver(cls=PerceiverAR, stir=True, **options):
    torch.manual_seed(0)
    model = cls(cls.Config(**{**SIZES, "latents": LATENTS, **VARIANTS.get(cls, {}), **options})).double().eval()
    with torch.no_grad():
        for parameter in model.parameters() if stir else ():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def tokens(length, batch=2, seed=0):
    return torch.randint(11, (batch, length), generator=torch.Generator().manual_seed(seed))


variants = pytest.mark.parametrize("cls", VARIANTS)
PACKAGE = {  # the choices of perceiver-ar-pytorch
    "ffn": "gelu_unbiased",
    "positions": "learned",
    "tied": False,
    "head_bias": False,
    "final_norm": False,
    "output_bias": False,
}
FIRST = {
    "norm.weight": "ln_x_w",
    "norm.bias": "ln_x_b",
    "history_norm.weight": "ln_ctx_w",
    "history_norm.bias": "ln_ctx_b",
    "attention.q_proj.weight": "w_q",
    "attention.kv_proj.weight": "w_kv",
    "attention.out_proj.weight": "w_o",
    "attention.out_proj.bias": "b_o",
}
FFN = {"ffn_norm.weight": "ff_ln_w", "ffn_norm.bias": "ff_ln_b", "ffn.0.weight": "ff_w1", "ffn.3.weight": "ff_w2"}


@needs_golden
def test_first_layer_equals_the_package():
    meta, arrays = golden("perceiver_ar_cross_n64")
    size = meta["hyper"]
    sizes = {"max_length": size["n"], "dim": size["d"], "heads": size["heads"], "head_dim": size["dh"], "layers": 1}
    layer = perceiver(**sizes, latents=40).layers[0]
    leaves = leaves_of(arrays, ("x", "context")) | fill(layer, arrays, {role: name for name, role in FIRST.items()})
    latents = layer.norm(leaves["x"])
    source = torch.cat([layer.history_norm(leaves["context"]), latents], 1)
    y = layer.attention(latents, source, torch.arange(64), layer.attention_mask(latents, source))
    check(meta, arrays, y, leaves)


@needs_golden
def test_model_equals_the_package():
    meta, arrays = golden("perceiver_ar_model_n64")
    size = meta["hyper"]
    sizes = {"vocab_size": size["vocab"], "max_length": size["n"], "dim": size["d"], "heads": size["heads"]}
    sizes |= {"head_dim": size["dh"], "layers": 1 + size["depth"], "ffn_dim": size["ff_mult"] * size["d"]}
    model = perceiver(**sizes, latents=size["latents"], **PACKAGE)
    arrays["self0_w_q"], arrays["self0_w_kv"] = arrays["self0_w_qkv"].split([64, 128])
    roles = {"w_tok": "embedding.weight", "w_pos": "positions.table", "w_logits": "head.weight"}
    roles |= {f"cross0_{role}": f"layers.0.{name}" for name, role in (FIRST | FFN).items()}
    roles |= {f"self0_{role}": f"layers.1.{name}" for name, role in FFN.items()}
    roles |= {f"self0_ln_{name[0]}": f"layers.1.norm.{name}" for name in ("weight", "bias")}
    linears = {"w_q": "q_proj", "w_kv": "kv_proj", "w_o": "out_proj"}
    roles |= {f"self0_{role}": f"layers.1.attention.{name}.weight" for role, name in linears.items()}
    assert set(roles.values()) == set(dict(model.named_parameters()))
    leaves = fill(model, arrays, roles)
    check(meta, arrays, model(arrays["ids"]), leaves)


@pytest.mark.parametrize("name", DECODERS)
def test_every_yaml_builds_from_the_keys_of_a_decoder(name):
    cls, hyper = load(name)
    options = {"norm": "pre", "tied": False, "head_bias": True, "positions": "none", "pattern": "causal_self"}
    model = cls(cls.Config(**SIZES, **hyper, **options))
    assert model(tokens(20)).shape == (2, 8, 11)
    with torch.device("meta"):
        assert all(parameter.is_meta for parameter in cls(cls.Config(**SIZES, **hyper)).parameters())


@variants
@pytest.mark.parametrize("length", [5, 14, 20])
def test_latents_see_the_history_and_no_later_latent(cls, length):
    model = perceiver(cls)
    states = model.embed(tokens(length, batch=1)).detach().requires_grad_()
    model.embed = lambda _: states
    logits = model(tokens(length, batch=1))
    for row, position in enumerate(model.logit_positions(length)):
        (gradient,) = torch.autograd.grad(logits[0, row].square().sum(), states, retain_graph=True)
        seen = gradient[0].abs().sum(-1) > 0
        assert seen[: position + 1].all()
        assert not seen[position + 1 :].any()


def test_the_history_of_v1_is_refined_in_every_layer_but_the_last():
    """The second layer's latents depend on the history's self-attention in the first layer."""
    model = perceiver(PerceiverARV1, layers=2)
    before = model(tokens(20))
    with torch.no_grad():
        model.layers[0].history_attention.out_proj.weight *= 2
    assert not torch.allclose(model(tokens(20)), before)
    assert model.layers[1].history_attention is None


def test_v1_of_one_layer_is_perceiver_ar():
    variant, base = perceiver(PerceiverARV1, layers=1), perceiver(layers=1)
    torch.testing.assert_close(variant(tokens(20)), base(tokens(20)), atol=0, rtol=0)


@pytest.mark.parametrize("segment", [1, 4, 5, 12, 50])
def test_history_of_v2_attends_within_segments(segment):
    layer = perceiver(PerceiverARV2, segment=segment).layers[0]
    history = torch.randn(2, HISTORY, 16, dtype=torch.float64, requires_grad=True)
    y = layer.history_self_attend(history, torch.arange(20))
    for i in range(HISTORY):
        (gradient,) = torch.autograd.grad(y[0, i].sum(), history, retain_graph=True)
        seen = gradient[0].abs().sum(-1) > 0
        assert torch.equal(seen, torch.arange(HISTORY) // segment == i // segment)


def test_v2_of_one_segment_is_v1():
    """Although rotary positions restart in every segment."""
    model, plain = perceiver(PerceiverARV2, segment=6), perceiver(PerceiverARV1)
    assert not torch.allclose(model(tokens(20)), plain(tokens(20)))
    single = perceiver(PerceiverARV2, segment=HISTORY)
    torch.testing.assert_close(single(tokens(20)), plain(tokens(20)), atol=1e-12, rtol=0)
    by_hand = [
        model.layers[0].history_self_attend(torch.ones(1, 6, 16).double(), torch.arange(6) + 6 * i) for i in (0, 1)
    ]
    torch.testing.assert_close(*by_hand, atol=1e-12, rtol=0)


def test_v3_compresses_along_the_sequence():
    model = perceiver(PerceiverARV3)
    history = torch.randn(2, HISTORY, 16, dtype=torch.float64)
    slots, positions = model.compress(history, torch.arange(20))
    weight = model.compression.weight
    by_hand = torch.stack([sum(weight[s, j] * history[:, j] for j in range(HISTORY)) for s in range(4)], 1)
    torch.testing.assert_close(slots, by_hand)
    assert positions.tolist() == [1, 4, 7, 10, *range(12, 20)]  # the middles of four shares of twelve tokens
    # a shorter history equals one that is preceded by zeros
    short, positions = model.compress(history[:, 5:], torch.arange(15))
    blank = torch.cat([torch.zeros_like(history[:, :5]), history[:, 5:]], 1)
    torch.testing.assert_close(short, model.compress(blank, torch.arange(20))[0])
    assert positions.tolist() == [-4, -1, 2, 5, *range(7, 15)]
    assert model.compress(history[:, :0], torch.arange(8))[0].shape == (2, 0, 16)


def test_v3_may_compress_after_its_first_layer():
    """Tables 7 and 8: a first layer of Perceiver AR, then layers of V3 on the slots."""
    model = perceiver(PerceiverARV3, compress_after_first=True)
    assert [layer.history_attention is not None for layer in model.layers] == [False, True, False]
    states, positions = model.embed(tokens(20)), torch.arange(20)
    history, x = states[:, :HISTORY], states[:, HISTORY:]
    untouched, x = model.layers[0](history, x, positions)
    assert torch.equal(untouched, history)
    slots, near = model.compress(history, positions)
    assert slots.shape[1] == 4
    for layer in model.layers[1:]:
        slots, x = layer(slots, x, near)
    torch.testing.assert_close(model(tokens(20)), model.logits(x))
    assert not torch.allclose(model(tokens(20)), perceiver(PerceiverARV3)(tokens(20)))
    training = perceiver(PerceiverARV3, compress_after_first=True).train()
    training(tokens(20)).square().sum().backward()
    assert all((parameter.grad != 0).any() for parameter in training.parameters())


def test_history_dropout_hides_history_in_training():
    model = perceiver(history_dropout=0.5, dropout=0.0, attention_dropout=0.0).train()
    latents, source = torch.zeros(3, LATENTS, 16), torch.zeros(3, LATENTS + HISTORY, 16)
    seen = model.layers[0].attention_mask(latents, source)
    assert (seen[..., :HISTORY].sum(-1) == 6).all(), "half of the history, the same for every latent of an example"
    assert torch.equal(seen[0, 0, :, HISTORY:], torch.ones(LATENTS, LATENTS, dtype=torch.bool).tril())
    assert not torch.equal(model(tokens(20)), model(tokens(20)))
    model.eval()
    torch.testing.assert_close(model(tokens(20)), perceiver()(tokens(20)), atol=0, rtol=0)


@variants
@pytest.mark.parametrize("padded", [5, 12, 15])
def test_padding_in_front_is_as_if_it_were_not_there(cls, padded):
    """Padding in whole segments, in part of the history, in all of it, and in latents; the other example has none."""
    model, text, base = perceiver(cls, positions="none"), tokens(20), tokens(20, seed=1)
    mask = torch.zeros(2, 20, dtype=torch.bool)
    mask[0, :padded] = True
    logits = model(text, key_padding_mask=mask)
    rows = slice(max(0, padded - HISTORY), None)
    changed = torch.where(mask, base, text)
    torch.testing.assert_close(model(changed, key_padding_mask=mask)[0, rows], logits[0, rows], atol=1e-12, rtol=0)
    torch.testing.assert_close(logits[0, rows], model(text[:1, padded:])[0, -LATENTS:], atol=1e-12, rtol=0)
    torch.testing.assert_close(logits[1], model(text)[1], atol=1e-12, rtol=0)
    logits.square().sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
    trained = perceiver(cls, positions="learned", history_dropout=0.3).train()
    trained(text).square().sum().backward()
    assert all((parameter.grad != 0).any() for parameter in trained.parameters())


def test_as_many_slots_as_tokens_are_not_hidden_as_these_are():
    model, text = perceiver(PerceiverARV3, positions="none", compressed=HISTORY), tokens(20)
    mask = (torch.arange(20) < 5).expand(2, 20)
    torch.testing.assert_close(model(text, key_padding_mask=mask), model(text[:, 5:]), atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("cls", "options"), [*((cls, {}) for cls in VARIANTS), (PerceiverARV3, {"compress_after_first": True})]
)
def test_padding_inside_the_history_is_not_seen(cls, options):
    model, text, base = perceiver(cls, positions="learned", **options), tokens(20), tokens(20, seed=1)
    mask = torch.rand(2, 20, generator=torch.Generator().manual_seed(0)) < 0.5
    mask[:, HISTORY:] = False
    changed = torch.where(mask, base, text)
    logits = model(text, key_padding_mask=mask)
    torch.testing.assert_close(model(changed, key_padding_mask=mask), logits, atol=1e-12, rtol=0)
    assert not torch.allclose(model(text), logits)
    mask[0] = True
    assert torch.isfinite(model(text, key_padding_mask=mask)).all()


@variants
def test_a_prompt_with_padding_in_front_is_continued_as_it_is_alone(cls):
    model, text = perceiver(cls, positions="none"), tokens(18)
    mask = torch.arange(15) < torch.tensor([[10], [0]])
    padded, state = model.prefill(text[:, :15], key_padding_mask=mask)
    alone, own_state = model.prefill(text[:1, 10:15])
    for t in range(15, 18):
        torch.testing.assert_close(padded[:1], alone, atol=1e-12, rtol=0)
        padded, state = model.step(text[:, t], state)
        alone, own_state = model.step(text[:1, t], own_state)
    torch.testing.assert_close(padded[:1], alone, atol=1e-12, rtol=0)


@variants
def test_generation_reads_the_last_tokens_again(cls):
    model, text = perceiver(cls), tokens(15)
    continued = generate(model, text, max_new_tokens=8)
    for _ in range(8):
        text = torch.cat([text, model(text[:, -20:])[:, -1].argmax(-1, keepdim=True)], 1)
    assert torch.equal(continued, text)
    first = model.step(text[:, 0], model.init_state(2))[0]
    torch.testing.assert_close(first, model(text[:, :1])[:, 0])


@variants
def test_bfloat16_is_close(cls):
    model = perceiver(cls).float()
    exact = model(tokens(20))
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(tokens(20))
        last, _ = model.step(tokens(20)[:, 19], model.prefill(tokens(20)[:, :19])[1])
    assert (last.float() - exact[:, -1]).abs().max() <= 0.03 * exact.abs().max()
    logits.float().square().sum().backward()
    assert (logits.float() - exact).abs().max() <= 0.03 * exact.abs().max()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


def test_without_rotary_positions_the_order_of_the_history_does_not_matter():
    options, text = {"positions": "none", "layers": 2}, tokens(20)
    swapped = torch.cat([text[:, [1, 0]], text[:, 2:]], 1)
    for rotary in (False, True):
        model = perceiver(rotary=rotary, **options)
        assert torch.allclose(model(swapped), model(text), atol=1e-12, rtol=0) is not rotary


REFUSED = [
    (PerceiverAR, {"latents": 21}, r"latents=21 is not in 1\.\.20, the max_length"),
    (PerceiverAR, {"heads": 3}, "width 16 is not a multiple of 3 heads"),
    (PerceiverAR, {"pattern": "noncausal_self"}, "causal_self, not noncausal_self"),
    (PerceiverAR, {"ffn": "square"}, r"ffn is one of .*, not square"),
    (PerceiverARV1, {"norm": "post"}, "norm is one of pre, not post"),
    (PerceiverARV1, {"segment": 5}, "segment"),
    (PerceiverARV2, {"segment": 0}, "segment=0 is less than 1"),
    (PerceiverARV3, {"compressed": 0}, "compressed=0 is less than 1"),
    (PerceiverARV3, {"compress_after_first": True, "layers": 1}, "requires a second layer, not layers=1"),
]


@pytest.mark.parametrize(("cls", "options", "message"), REFUSED)
def test_options_that_are_refused(cls, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        perceiver(cls, **options)


def test_what_is_read_is_not_too_long_and_not_extended():
    for options in ({"cls": PerceiverARV3}, {"positions": "learned"}):
        with pytest.raises(ValueError, match="21 tokens, but max_length is 20"):
            perceiver(**options)(tokens(21))
    with pytest.raises(NotImplementedError, match="PerceiverAR has no state that one more token extends"):
        perceiver().chunk(tokens(8), perceiver().init_state(2))
    assert perceiver(positions="none")(tokens(30)).shape == (2, 8, 11)
