"""`short_conv` of the backbones: taps before every self-attention, with every model."""

import pytest
import torch
from zoo import CAUSAL_SELF, CLASSES, PADDING_COUNTS, SELF, STACKED, by_first, in_chunks, load

from models.attention.base import Pattern
from models.attention.vanilla import Vanilla
from models.backbones.decoder import DecoderConfig, DecoderLM
from models.backbones.perceiver_ar import PerceiverAR, PerceiverConfig
from models.backbones.seq2seq import Seq2Seq, Seq2SeqConfig
from models.backbones.token_classifier import TokenClassifier, TokenClassifierConfig

SIZES = {"vocab_size": 11, "max_length": 40, "dim": 16, "heads": 2, "layers": 2, "ffn_dim": 20, "dropout": 0.0}
TAPS = 4
DECODING = [name for name, _ in CAUSAL_SELF if name in STACKED]
CROSS = [name for name in CLASSES if Pattern.CAUSAL_CROSS in CLASSES[name].patterns]


def make(kind, config, name="vanilla", **options):
    """A backbone in float64 whose logits differ."""
    cls, hyper = load(name)
    torch.manual_seed(0)
    sizes = {**SIZES, "short_conv": TAPS, **options}
    model = kind(lambda *size, **more: cls(*size, **hyper, **more), config(**sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model.double().eval()


def decoder(name="vanilla", **options):
    return make(DecoderLM, DecoderConfig, name, **options)


def encoder(name="vanilla", pattern=Pattern.NONCAUSAL_SELF, **options):
    return make(TokenClassifier, TokenClassifierConfig, name, pattern=pattern, padding_id=0, **options)


def tokens(length=17, seed=0, low=1):
    return torch.randint(low, 11, (3, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", DECODING)
@torch.no_grad()
def test_steps_and_chunks_equal_forward(name):
    """The taps are read across chunks, and no token sees the next."""
    model, text = decoder(name), tokens()
    whole = model(text)
    torch.testing.assert_close(model(text[:, :9]), whole[:, :9], atol=1e-9, rtol=0)
    try:
        rows, _ = in_chunks(model, text, model.init_state(len(text)), (1, 5, 1, 1, 9))
    except NotImplementedError:
        return
    torch.testing.assert_close(rows, whole, atol=1e-9, rtol=0)


@by_first(("name", "pattern"), [case for case in SELF if case[0] in STACKED])
def test_the_taps_are_taps_times_width_parameters_of_each_layer(name, pattern):
    layers = (encoder(name, pattern, short_conv=taps).layers for taps in (None, 1, TAPS))
    none, one, four = (sum(p.numel() for p in stack.parameters()) for stack in layers)
    assert none == one == four - SIZES["layers"] * TAPS * SIZES["dim"]


@by_first(("name", "pattern"), [case for case in SELF if case[0] in STACKED and case[0] not in PADDING_COUNTS])
@torch.no_grad()
def test_padding_is_not_read(name, pattern):
    if CLASSES[name].fixed_length:
        return
    model, text = encoder(name, pattern), tokens()
    padded = torch.cat([text, text.new_zeros(3, 6)], 1)
    torch.testing.assert_close(model(padded)[:, :17], model(text), atol=1e-9, rtol=0)


@pytest.mark.parametrize("pattern", [Pattern.NONCAUSAL_SELF, Pattern.CAUSAL_SELF])
def test_the_control_sees_as_far_as_the_taps(pattern):
    """In an encoder the four taps reach two tokens back and one ahead."""
    model = encoder("no_mixing", pattern, layers=1)
    text, seen = tokens(), set()
    for t in range(text.shape[1]):
        changed = text.clone()
        changed[:, t] = text[:, t] % 10 + 1
        if (model(changed) - model(text))[:, 8].abs().max() > 1e-6:
            seen.add(t - 8)
    assert seen == (set(range(-3, 1)) if pattern.causal else set(range(-2, 2)))


@pytest.mark.parametrize("name", CROSS)
@pytest.mark.parametrize("pattern", [Pattern.CAUSAL_SELF, Pattern.CAUSAL_CROSS])
@torch.no_grad()
def test_an_encoder_decoder_convolves_both_self_attentions(name, pattern):
    if pattern not in CLASSES[name].patterns:
        return
    model = make(Seq2Seq, Seq2SeqConfig, name, pattern=pattern, max_source_length=40)
    assert all(layer.short_conv.ahead == 1 for layer in model.encoder)
    assert all(layer.short_conv.ahead == 0 for layer in model.decoder)
    source, target = tokens(seed=1), tokens(8)
    whole, state = model(source, target), model.init_state(source)
    for t in range(target.shape[1]):
        logits, state = model.step(target[:, t], state)
        torch.testing.assert_close(logits, whole[:, t], atol=1e-9, rtol=0)


def test_the_first_weights_follow_the_seed_and_all_are_trained():
    first, second = decoder(), decoder()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    first.train()(tokens(), tokens(seed=2)).sum().backward()
    assert all(layer.short_conv.weight.grad.abs().sum() > 0 for layer in first.layers)


@pytest.mark.parametrize(
    ("taps", "message"), [(0, "short_conv=0 is less than 1"), (41, "longer than the text of 40 tokens")]
)
def test_a_wrong_number_of_taps_is_refused(taps, message):
    with pytest.raises(ValueError, match=message):
        decoder(short_conv=taps)


def test_a_whole_decoder_has_no_place_for_taps():
    with pytest.raises(ValueError, match="short_conv=4: this model has no place for a short convolution"):
        PerceiverAR(PerceiverConfig(**SIZES, latents=8, short_conv=4))
    assert PerceiverAR(PerceiverConfig(**SIZES, latents=8, short_conv=1)) is not None


def test_softmax_attention_is_convolved_behind_its_norm():
    """The layer is x + attention(conv(norm(x)))."""
    model = decoder(layers=1, ffn="none")
    layer, x = model.layers[0], torch.randn(2, 9, 16, dtype=torch.float64)
    assert isinstance(layer.attention, Vanilla)
    expected = x + layer.attention(layer.short_conv(layer.attention_norm(x)))[0]
    torch.testing.assert_close(layer(x, None, None)[0], expected)
