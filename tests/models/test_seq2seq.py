"""The encoder-decoder's options and slots, the order of the carry, and decoding with every model that can."""

import pytest
import torch
from zoo import CLASSES, PADDING_COUNTS, STACKED, by_first, load, pairs

from models.attention.base import Pattern
from models.attention.vanilla import Vanilla
from models.backbones.config import FFNS, NORM_PLACEMENTS, NORMS, POSITIONS
from models.backbones.seq2seq import SLOTS, Seq2Seq, Seq2SeqConfig

SIZES = {"vocab_size": 11, "max_source_length": 24, "max_length": 20, "dim": 16, "heads": 2, "layers": 2, "ffn_dim": 20}
# every single slot that a model can fill, and all three if it can
FILLED = [(name, (slot,)) for name in STACKED for slot in SLOTS if SLOTS[slot] in CLASSES[name].patterns]
FILLED += [(name, tuple(SLOTS)) for name, cls in CLASSES.items() if set(SLOTS.values()) <= cls.patterns]


def factory(name):
    cls, hyper = load(name)
    return lambda *args, **kwargs: cls(*args, **hyper, **kwargs)


def seq2seq(name="vanilla", stir=0.0, **options):
    torch.manual_seed(0)
    model = Seq2Seq(factory(name), Seq2SeqConfig(**{**SIZES, **options})).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += stir * torch.randn_like(parameter)
    return model


def tokens(length, batch=3, seed=0):
    return torch.randint(1, 11, (batch, length), generator=torch.Generator().manual_seed(seed))


def padded(source):
    source = source.clone()
    source[1, 9:] = 0
    source[2, 5:] = 0
    return source


@by_first(("norm", "kind", "ffn", "positions"), pairs(NORM_PLACEMENTS, NORMS, FFNS, POSITIONS, most=1))
def test_every_combination_builds_and_trains(norm, kind, ffn, positions):
    for flag in (False, True):
        model = seq2seq(
            layers=1,
            norm=norm,
            norm_kind=kind,
            ffn=ffn,
            positions=positions,
            final_norm=flag,
            shared=not flag,
            embedding_norm=flag,
            embedding_scale=not flag,
            embedding_std=0.1,
        ).train()
        logits = model(tokens(13), tokens(9))
        logits.square().sum().backward()
        assert logits.shape == (3, 9, 11)
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


@by_first(("name", "slots"), FILLED)
def test_decoding_equals_forward_whatever_the_padding_and_later_tokens(name, slots):
    model = seq2seq(name, slots=slots, stir=0.3, norm="pre", final_norm=True, embedding_std=1.0)
    source, target, other = padded(tokens(17)), tokens(12), tokens(12, seed=1)
    expected = model(source, target)
    with torch.no_grad():
        state, rows, calls = model.init_state(source), [], []
        for linear in model.modules():
            if isinstance(linear, torch.nn.Linear):
                linear.register_forward_hook(lambda _, inputs, output: calls.append(inputs[0].shape[1:]))
        for token in target.unbind(1):
            logits, state = model.step(token, state)
            rows.append(logits)
        torch.testing.assert_close(torch.stack(rows, 1), expected, atol=1e-9, rtol=0)
        assert all(17 not in shape for shape in calls), "only `init_state` reads the encoder's states"
        if name not in PADDING_COUNTS:
            longer = torch.nn.functional.pad(source, (0, 4))
            torch.testing.assert_close(model(longer, target), expected, atol=1e-9, rtol=0)
            torch.testing.assert_close(model(source[2:, :5], target[2:]), expected[2:], atol=1e-9, rtol=0)
        changed = torch.cat([target[:, :7], other[:, 7:]], 1)
        torch.testing.assert_close(model(source, changed)[:, :7], expected[:, :7], atol=1e-9, rtol=0)


@pytest.mark.parametrize("slots", [(), ("encoder_self",), ("decoder_self", "cross"), tuple(SLOTS)])
def test_slots_are_filled_and_told_whom_they_follow(slots):
    """In the order of the carry, skipping the attention in other slots."""

    class Spy(Vanilla):
        def __init__(self, dim, heads, *, pattern, max_length, dropout):
            super().__init__(dim, heads, pattern=pattern, max_length=max_length, dropout=dropout)
            built.append((pattern, max_length, dropout))
            self.follows = None

        def set_previous(self, previous):
            self.follows = previous

        def forward(self, x, context=None, *, key_padding_mask=None, carry=None):
            assert carry is (self.follows if self.follows else None)
            return super().forward(x, context, key_padding_mask=key_padding_mask)[0], self

    built = []
    torch.manual_seed(0)
    model = Seq2Seq(Spy, Seq2SeqConfig(slots=slots, **SIZES, attention_dropout=0.2))
    lengths = {"encoder_self": 24, "decoder_self": 20, "cross": 24}
    once = [(SLOTS[slot], lengths[slot], 0.2) for slot in slots]
    assert sorted(built) == sorted(once * 2)
    spies = [module for module in model.modules() if isinstance(module, Spy)]
    assert len({spy.follows for spy in spies}) == len(spies), "a chain: the first follows none, no two the same"
    assert model(tokens(13), tokens(9)).shape == (3, 9, 11)


@pytest.mark.parametrize(
    ("options", "filled"),
    [
        ({}, tuple(SLOTS)),
        *(({"pattern": pattern}, (slot,)) for slot, pattern in SLOTS.items()),
        ({"pattern": "causal_self", "slots": list(SLOTS)}, tuple(SLOTS)),
        ({"pattern": "causal_cross", "slots": ["decoder_self", "cross"]}, ("decoder_self", "cross")),
        ({"slots": []}, ()),
    ],
)
def test_slots_follow_from_the_pattern(options, filled):
    model = seq2seq("linear_transformer", **options)
    layers = {
        "encoder_self": [layer.attention for layer in model.encoder],
        "decoder_self": [layer.attention for layer in model.decoder],
        "cross": [layer.cross for layer in model.decoder],
    }
    for slot, attentions in layers.items():
        kind = CLASSES["linear_transformer" if slot in filled else "vanilla"]
        assert [type(attention) for attention in attentions] == [kind] * 2
        assert {attention.pattern for attention in attentions} == {SLOTS[slot]}


def test_shared_embeddings_are_one_matrix():
    shared, separate = seq2seq(), seq2seq(shared=False)
    count = [sum(p.numel() for p in model.parameters()) for model in (shared, separate)]
    assert count[1] - count[0] == 2 * 11 * 16
    assert shared.head.weight is shared.source.embedding.weight is shared.target.embedding.weight


REFUSED = [
    ({"slots": ["sideways"]}, "a slot is one of encoder_self, decoder_self, cross, not sideways"),
    ({"pattern": "noncausal_cross"}, r"pattern is one of .*causal_cross, not noncausal_cross"),
    (
        {"pattern": "noncausal_self", "slots": ["cross"]},
        r"noncausal_self belongs to a slot that is not in slots \(cross\)",
    ),
    ({"name": "local"}, f"has no {Pattern.CAUSAL_CROSS} form"),
    ({"norm": "elsewhere"}, r"norm is one of .*, .*not elsewhere"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_options_that_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        seq2seq(**options)


def test_longest_lengths():
    learned, fixed = seq2seq(positions="learned"), seq2seq("linformer", slots=["encoder_self"])
    for model, source, target, longest in ((learned, 25, 5, 24), (learned, 5, 21, 20), (fixed, 25, 21, 24)):
        with pytest.raises(ValueError, match=f"{longest + 1} tokens, but max_length is {longest}"):
            model(tokens(source), tokens(target))
    assert seq2seq()(tokens(25), tokens(21)).shape == (3, 21, 11)
