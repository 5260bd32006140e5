"""Sampling and generation with a language model; models in test_decoder.py, test_perceiver_ar.py."""

from functools import partial

import pytest
import torch
from test_decoder import decoder, stirred, tokens

from models.generation.generate import generate
from models.generation.sampling import greedy, sample


def test_sampling():
    model, text = stirred(), tokens(5)

    def draw(seed, **options):
        sampler = partial(sample, generator=torch.Generator().manual_seed(seed), **options)
        return generate(model, text, max_new_tokens=12, sampler=sampler)

    likeliest = generate(model, text, max_new_tokens=12)
    assert torch.equal(draw(0, top_k=1), likeliest)
    assert torch.equal(draw(0, top_k=5), draw(0, top_k=5))
    assert not torch.equal(draw(0, top_k=5), draw(1, top_k=5))
    assert torch.equal(draw(0, temperature=1e-4), likeliest)
    assert torch.equal(generate(model, text, max_new_tokens=0), text)
    with pytest.raises(ValueError, match="at least one token"):
        generate(model, text[:, :0], max_new_tokens=1)


@pytest.mark.parametrize(("top_k", "kept"), [(3, [1.0, 3.0, 2.0, -torch.inf]), (None, [1.0, 3.0, 2.0, 0.0])])
def test_samples_follow_the_probabilities_of_the_likeliest(top_k, kept):
    logits = torch.tensor([[1.0, 3.0, 2.0, 0.0]]).expand(20_000, -1)
    drawn = sample(logits, top_k=top_k, temperature=2.0, generator=torch.Generator().manual_seed(0))
    share = torch.bincount(drawn, minlength=4) / len(drawn)
    torch.testing.assert_close(share, torch.tensor(kept).div(2).softmax(0), atol=0.01, rtol=0)
    assert torch.equal(greedy(logits[:2]), torch.tensor([1, 1]))


def test_generation_restores_the_mode_and_keeps_no_graph():
    model = decoder(dropout=0.5, attention_dropout=0.5).train()
    assert torch.equal(*(generate(model, tokens(5), max_new_tokens=6) for _ in range(2)))
    assert model.training


def test_a_text_that_is_too_long_for_its_positions(monkeypatch):
    monkeypatch.setattr("models.backbones.decoder.CHUNK", 32)
    with pytest.raises(ValueError, match="64 tokens, but max_length is 40"):
        decoder().losses_by_chunk(tokens(80), tokens(80))
