"""An encoder with one output per position, and the autoencoder that reads only the last state."""

from functools import partial

import pytest
import torch

from models.attention.linformer import Linformer
from models.attention.luna import Luna
from models.attention.no_mixing import NoMixing
from models.attention.vanilla import Vanilla
from models.backbones.autoencoder import AutoEncoder
from models.backbones.decoder import DecoderLM
from models.backbones.token_classifier import TokenClassifier

SIZES = {"vocab_size": 11, "dim": 16, "heads": 2, "layers": 2, "ffn_dim": 24, "max_length": 12, "dropout": 0.0}


def made(backbone, attention=Vanilla, **settings):
    torch.manual_seed(0)
    return backbone(attention, backbone.Config(**{**SIZES, "attention_dropout": 0.0, **settings})).double().eval()


def tokens(batch=3, length=12):
    return torch.randint(11, (batch, length), generator=torch.Generator().manual_seed(1))


def test_causal_it_is_the_decoder():
    decoder, encoder = made(DecoderLM), made(TokenClassifier, pattern="causal_self")
    encoder.load_state_dict(decoder.state_dict())
    assert torch.equal(encoder(tokens()), decoder(tokens()))


def test_noncausal_every_output_reads_every_token():
    model, x = made(TokenClassifier), tokens()
    for position in (0, 11):
        changed = x.clone()
        changed[:, position] = (x[:, position] + 1) % 11
        assert ((model(x) - model(changed)).abs().amax((0, 2)) > 1e-9).all()


def test_the_carry_passes_from_layer_to_layer():
    """Only the first layer owns Luna's first packed sequence."""
    model = made(TokenClassifier, partial(Luna, slots=4))
    owners = {name.split(".")[1] for name, _ in model.named_parameters() if name.startswith("layers.")}
    first = dict(model.layers[0].attention.named_parameters()).keys()
    assert owners == {"0", "1"} and first > dict(model.layers[1].attention.named_parameters()).keys()


def test_logits_are_products_with_the_embeddings_if_tied():
    model = made(TokenClassifier)
    assert model.head.weight is model.embedding.weight
    assert made(TokenClassifier, tied=False).head.weight is not made(TokenClassifier, tied=False).embedding.weight


def test_limits():
    assert made(TokenClassifier).length_limit == 12
    assert made(TokenClassifier, positions="none").length_limit is None
    fixed = made(TokenClassifier, partial(Linformer, rank=4), positions="none")
    assert fixed.length_limit == 12
    with pytest.raises(ValueError, match="a sequence of 13 tokens, but max_length is 12"):
        fixed(tokens(length=13))
    with pytest.raises(ValueError, match="no second sequence"):
        made(TokenClassifier, pattern="causal_cross")


@pytest.mark.parametrize("pattern", ["causal_self", "noncausal_self"])
def test_an_autoencoder_tells_all_places_by_the_last_state(pattern):
    model, x = made(AutoEncoder, pattern=pattern), tokens()
    logits = model(x)
    assert logits.shape == (3, 12, 11)
    states = {}

    def keep(_, __, output):
        states["encoded"] = output

    model.final_norm.register_forward_hook(keep)
    model(x)
    last = states["encoded"][:, -1:]
    again = model.head(model.decoder(model.places(last.expand(-1, 12, -1))))
    assert torch.equal(logits, again)
    assert (logits[:, 0] - logits[:, 1]).abs().max() > 1e-6  # places differ
    changed = x.clone()
    changed[:, 0] = (x[:, 0] + 1) % 11
    assert ((model(changed) - logits).abs().amax((0, 2)) > 1e-9).all()


def test_without_mixing_an_autoencoder_knows_its_last_token_alone():
    model, x = made(AutoEncoder, NoMixing), tokens()
    other = torch.cat([tokens(3, 24)[:, 12:23], x[:, -1:]], 1)
    assert not torch.equal(x, other) and torch.equal(model(x), model(other))
