"""The decoder's options, and its state with every model that decodes: steps, chunks, prompts."""

import pytest
import torch
from zoo import CAUSAL_SELF, CLASSES, STACKED, by_first, in_chunks, load, pairs

from models.attention.base import Pattern
from models.backbones.config import FFNS, NORM_PLACEMENTS, NORMS, POSITIONS
from models.backbones.decoder import DecoderConfig, DecoderLM
from models.generation.generate import generate

NAMES = [name for name, _ in CAUSAL_SELF if name in STACKED]
SIZES = {"vocab_size": 11, "max_length": 40, "dim": 16, "heads": 2, "layers": 2, "ffn_dim": 20}


POST = {"norm": "post", "positions": "sinusoidal", "embedding_scale": True}
STACKS = [(name, {}) for name in NAMES] + [(name, POST) for name in NAMES[::5]]
# stacks of several kinds of layers, or whose layers read their place in the stack
STACKS += [
    ("based", {"layers": 3}),
    ("block_recurrent", {"layers": 3, "hyper": {"recurrent_layers": [2]}}),
    ("griffin", {"layers": 4}),
    ("h3", {"layers": 3, "hyper": {"attention_at": [1]}}),
    ("hgrn2", {"layers": 3}),
    ("rwkv7", {"layers": 3}),
    ("xlstm", {"layers": 3, "hyper": {"slstm_at": [1], "ffn": True}}),
]


def factory(name, **own):
    cls, hyper = load(name)
    return lambda *args, **kwargs: cls(*args, **hyper | own, **kwargs)


def decoder(name="vanilla", *, hyper=None, **options):
    torch.manual_seed(0)
    return DecoderLM(factory(name, **hyper or {}), DecoderConfig(**{**SIZES, **options})).double().eval()


def stirred(*args, **options):
    """A decoder whose logits differ."""
    model = decoder(*args, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model


def tokens(length=17, batch=3, seed=0):
    return torch.randint(11, (batch, length), generator=torch.Generator().manual_seed(seed))


@by_first(("norm", "kind", "ffn", "positions"), pairs(NORM_PLACEMENTS, NORMS, FFNS, POSITIONS))
def test_every_combination_builds_and_trains(norm, kind, ffn, positions):
    for flag in (False, True):
        model = decoder(
            layers=1,
            norm=norm,
            norm_kind=kind,
            ffn=ffn,
            positions=positions,
            final_norm=flag,
            tied=not flag,
            head_bias=flag,
            embedding_norm=not flag,
            embedding_scale=flag,
            embedding_std=1.0,
        ).train()
        logits = model(tokens())
        logits.square().sum().backward()
        assert logits.shape == (3, 17, 11)
        assert torch.isfinite(logits).all()
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


REFUSED = [
    *(({option: "elsewhere"}, rf"{option} is one of .*, .*not elsewhere") for option in ("norm", "ffn", "positions")),
    ({"norm_kind": "elsewhere"}, r"norm_kind is one of .*, .*not elsewhere"),
    ({"pattern": "noncausal_self"}, "a language model reads causal_self, not noncausal_self"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_options_that_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        decoder(**options)


@by_first(("name", "options"), STACKS)
def test_generation_steps_and_chunks_equal_full_forward_passes(name, options):
    """Chunks of any size, with steps between them; a prompt is one chunk; no token sees the next."""
    model, text = stirred(name, **options), tokens(23)
    with torch.no_grad():
        expected, (last, _) = model(text), model.prefill(text[:, :9])
        torch.testing.assert_close(model(text[:, :9]), expected[:, :9], atol=1e-9, rtol=0)
        torch.testing.assert_close(last, expected[:, 8], atol=1e-9, rtol=0)
        rows, _ = in_chunks(model, text, model.init_state(3), (9, 1, 4, 8, 1))
        torch.testing.assert_close(rows, expected, atol=1e-9, rtol=0)
        rows, _ = in_chunks(model, text[:, 6:], model.prefill(text[:, :6])[1], (1, 1, 1, 14))
        torch.testing.assert_close(rows, expected[:, 6:], atol=1e-9, rtol=0)
        continued, text = generate(model, text[:, :5], max_new_tokens=9), text[:, :5]
        for _ in range(9):
            text = torch.cat([text, model(text)[:, -1].argmax(-1, keepdim=True)], 1)
    assert torch.equal(continued, text)
    assert len(continued.unique()) > 2, "the test sees no difference between tokens"
    if "layers" in options and name != "h3":
        assert all(layer.attention.chunked for layer in model.layers)


@pytest.mark.parametrize("name", NAMES)
def test_longest_length(name):
    model = decoder(name)
    assert model(tokens(40)).shape == (3, 40, 11)
    with pytest.raises(ValueError, match="41 tokens, but max_length is 40"):
        model(tokens(41))
    with pytest.raises(ValueError, match="41 tokens, but max_length is 40"):
        generate(model, tokens(40), max_new_tokens=2)
    layer = model.layers[0].attention
    free = decoder(name, positions="sinusoidal")
    assert free.length_limit == (40 if layer.fixed_length else None)
    if not layer.fixed_length:
        assert free(tokens(50)).shape == (3, 50, 11)
        if layer.linear:
            assert generate(free, tokens(39), max_new_tokens=9).shape == (3, 48)


def test_tied_embeddings_are_one_matrix():
    tied, untied = decoder(), decoder(tied=False, head_bias=True)
    count = [sum(p.numel() for p in model.parameters()) for model in (tied, untied)]
    assert count[1] - count[0] == 11 * 16 + 11
    assert tied.head.weight is tied.embedding.weight


def test_attention_learns_its_longest_length_slot_and_predecessor():
    seen = []

    class Spy(CLASSES["vanilla"]):
        def __init__(self, dim, heads, **options):
            seen.append((dim, heads, options))
            super().__init__(dim, heads, **options)

        def set_previous(self, previous):
            self.previous = previous

        def forward(self, x, context=None, *, key_padding_mask=None, carry=None):
            carries.append(carry)
            return super().forward(x, context, key_padding_mask=key_padding_mask, carry=(carry or 0) + 1)

    carries = []
    model = DecoderLM(Spy, DecoderConfig(**SIZES, attention_dropout=0.2))
    assert seen == [(16, 2, {"pattern": Pattern.CAUSAL_SELF, "max_length": 40, "dropout": 0.2})] * 2
    first, second = (layer.attention for layer in model.layers)
    assert second.previous is first
    model(tokens())
    assert carries == [None, 1]
