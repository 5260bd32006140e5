"""cosFormer's M."""

import pytest
import torch

from models.attention.cosformer import Cosformer


def cosformer(pattern, max_length=12):
    torch.manual_seed(0)
    return Cosformer(16, 2, pattern=pattern, max_length=max_length).double().eval()


def test_the_causal_form_reads_no_more_than_its_span():
    model = cosformer("causal_self")
    x = torch.randn(1, 13, 16, dtype=torch.double)
    with pytest.raises(ValueError, match="built for 12 tokens and got 13"):
        model(x)
    state = model.init_state(1)
    for x_t in x[:, :12].unbind(1):
        state = model.step(x_t, state)[1]
    with pytest.raises(ValueError, match="built for 12 tokens and got 13"):
        model.step(x[:, 12], state)


def test_the_span_is_the_length_that_is_read_but_for_the_causal_form():
    x = torch.randn(1, 9, 16, dtype=torch.double)
    for pattern, same in (("noncausal_self", True), ("causal_self", False)):
        y, longer = (cosformer(pattern, max_length)(x)[0] for max_length in (12, 24))
        assert torch.equal(y, longer) is same


def test_the_span_is_not_rounded_to_16_bits():
    q = torch.zeros(1, 2, 301, 8, dtype=torch.bfloat16)
    for pattern in Cosformer.patterns:
        assert cosformer(pattern, 301).span(q, None, 301).tolist() == [301]


def test_the_span_of_cross_attention_is_the_longer_side():
    model = cosformer("noncausal_cross")
    x, context = torch.randn(2, 1, 20, 16, dtype=torch.double)
    whole = model(x, context[:, :5])[0]
    assert not torch.allclose(model(x[:, :10], context[:, :5])[0], whole[:, :10])
    assert torch.allclose(model(x[:, :10], context)[0], model(x, context)[0][:, :10])
