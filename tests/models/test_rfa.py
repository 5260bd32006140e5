"""RFA's gate and its features."""

import pytest
import torch
from test_contract import check_twin
from test_decoding import check_decoding
from twins import TWINS, trainable
from zoo import build

from models.attention.base import Pattern
from models.attention.rfa import RFA, fourier


@pytest.mark.parametrize("padded", [False, True])
def test_the_gated_form_equals_its_twin_and_decodes(padded):
    model = build("rfa", Pattern.CAUSAL_SELF, gate=True).double()
    check_twin(model, TWINS["rfa"].forward, Pattern.CAUSAL_SELF, 29, padded)
    check_decoding(model)
    assert trainable(model) == TWINS["rfa"].parameters(16, 2, Pattern.CAUSAL_SELF, 64, {"gate": True})


def test_features_give_the_gaussian_of_the_distance():
    torch.manual_seed(0)
    x, y = torch.nn.functional.normalize(torch.randn(2, 1, 1, 50, 8, dtype=torch.double), dim=-1)
    directions = torch.randn(1, 20_000, 8, dtype=torch.double)
    estimate = (fourier(7 * x, directions) * fourier(0.1 * y, directions)).sum(-1)
    exact = torch.exp(-(x - y).square().sum(-1) / 2)
    assert (estimate - exact).abs().max() < 0.03


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gate": True}, "set gate=false"),
        ({"features": 0}, "features >= 1"),
        ({"floor": 0.0}, "floor > 0"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RFA(16, 2, pattern="noncausal_self", max_length=8, **options)
