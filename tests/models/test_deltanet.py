"""DeltaNet, Gated DeltaNet and Kimi Delta Attention beyond the contract: start and sizes."""

import math

import pytest
import torch
import torch.nn.functional as F
from twins import trainable

from models.attention.deltanet import DeltaNet
from models.attention.gated_deltanet import GatedDeltaNet
from models.attention.kda import KimiDeltaAttention

MODELS = pytest.mark.parametrize("cls", [DeltaNet, GatedDeltaNet, KimiDeltaAttention])


def build(cls, dim=8, heads=1, **hyper):
    torch.manual_seed(0)
    return cls(dim, heads, pattern="causal_self", max_length=8, **hyper)


@MODELS
def test_starts_as_torch(cls):
    model = build(cls, 256, 4)
    assert (model.norm_weight == 1).all()
    for name, weight in model.named_parameters():
        if "proj." in name and weight.dim() == 2:
            bound = weight.shape[1] ** -0.5
            assert 0.97 * bound < weight.abs().max() <= bound, name
    assert 0.49 < model.convolution.weight.abs().max() <= 0.5


@pytest.mark.parametrize(("cls", "slowest"), [(GatedDeltaNet, 0), (KimiDeltaAttention, 1)])
def test_decays_start_as_published(cls, slowest):
    model = build(cls, 1024, 1024)
    rates, steps = model.log_rate.exp(), F.softplus(model.decay_bias)
    assert slowest <= rates.min() < slowest + 0.1 and 15.9 < rates.max() <= 16
    assert steps.min() >= 0.00099 and steps.max() <= 0.101
    assert abs(steps.log().mean() - math.log(0.01)) < 0.1


@pytest.mark.parametrize(("cls", "squares"), [(DeltaNet, 4), (GatedDeltaNet, 6), (KimiDeltaAttention, 4.25)])
def test_published_number_of_parameters(cls, squares):
    """About 4 D^2, 6 D^2 and 4 D^2 + 4 D R of the public layers of width 2,048 with 16 heads and R = 128."""
    with torch.device("meta"):
        model = build(cls, 2048, 16)
    assert 1 < trainable(model) / (squares * 2048**2) < 1.01
