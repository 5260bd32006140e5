"""Two towers with one encoder, and their combinations."""

from functools import partial

import pytest
import torch
from zoo import load

from models.backbones.dual_encoder import (
    ConcatDualEncoderClassifier,
    DualEncoderClassifier,
    ReversedDualEncoderClassifier,
)
from models.backbones.encoder import POOLING, EncoderClassifier, EncoderConfig

SIZES = {"vocab_size": 7, "classes": 3, "max_length": 24, "dim": 16, "heads": 2, "layers": 2, "ffn_dim": 20}
DUAL = (DualEncoderClassifier, ConcatDualEncoderClassifier, ReversedDualEncoderClassifier)


def build(cls, **options):
    torch.manual_seed(0)
    attention, hyper = load("vanilla")
    return cls(partial(attention, **hyper), EncoderConfig(**{**SIZES, **options})).double().eval()


def pairs(batch=3, length=11, seed=0):
    tokens = torch.randint(1, 7, (batch, 2, length), generator=torch.Generator().manual_seed(seed))
    tokens[0, 0, 7:], tokens[1, 1, 3:] = 0, 0
    return tokens


@pytest.mark.parametrize("pooling", [name for name in POOLING if name != "packed"])
def test_the_classifier_reads_the_pooled_states_of_both(pooling):
    tokens, options = pairs(), {"pooling": pooling, "head_dim": [12, 6], "head_activation": "gelu"}
    single = build(EncoderClassifier, **options)
    for cls in DUAL:
        model = build(cls, **options)
        model.load_state_dict({**model.state_dict(), **towers(single)})
        a, b = single.encode(tokens[:, 0]), single.encode(tokens[:, 1])
        joined = dict(zip(DUAL, ([a, b, a * b, a - b], [a, b], [b, a]), strict=True))[cls]
        torch.testing.assert_close(model(tokens), model.head(torch.cat(joined, -1)), atol=1e-12, rtol=0)


def towers(model):
    return {key: value for key, value in model.state_dict().items() if not key.startswith("head")}


@pytest.mark.parametrize("cls", DUAL)
def test_towers_share_their_weights(cls):
    model, single = build(cls), build(EncoderClassifier)
    assert towers(model).keys() == towers(single).keys()
    width = (4 if cls is DualEncoderClassifier else 2) * SIZES["dim"]
    assert [tuple(layer.weight.shape) for layer in model.head if hasattr(layer, "weight")] == [(3, width)]


@pytest.mark.parametrize("cls", DUAL)
def test_a_pair_does_not_see_its_neighbours(cls):
    model, tokens = build(cls), pairs()
    alone = torch.cat([model(pair[None]) for pair in tokens])
    torch.testing.assert_close(model(tokens), alone, atol=1e-12, rtol=0)
    short = torch.nn.functional.pad(tokens, (0, 5))
    torch.testing.assert_close(model(short), model(tokens), atol=1e-12, rtol=0)
    swapped = model(tokens.flip(1))
    assert not torch.allclose(swapped, model(tokens), atol=1e-6), "who cites whom may matter"


@pytest.mark.parametrize("cls", DUAL)
def test_everything_learns(cls):
    model = build(cls, pooling="cls", head_dim=[12, 6], head_dropout=0.1).train()
    logits = model(pairs())
    assert logits.shape == (3, 3)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_a_text_may_be_read_by_its_first_token():
    model = build(EncoderClassifier, pooling="first", layers=0, positions="none", final_norm=False)
    tokens = pairs()[:, 0]
    changed = tokens.clone()
    changed[:, 1:] = 5
    torch.testing.assert_close(model(tokens), model(changed))
    assert model.cls is None and not torch.allclose(model(tokens), model(tokens.flip(1)))
