"""DeltaNet, Gated DeltaNet and Kimi Delta Attention beyond the contract: start, sizes, what the rule does, refusals."""

import math

import pytest
import torch
import torch.nn.functional as F
from twins import trainable

from models.attention.deltanet import DeltaNet, unit
from models.attention.gated_deltanet import GatedDeltaNet
from models.attention.kda import KimiDeltaAttention

MODELS = pytest.mark.parametrize("cls", [DeltaNet, GatedDeltaNet, KimiDeltaAttention])


def build(cls, dim=8, heads=1, **hyper):
    torch.manual_seed(0)
    return cls(dim, heads, pattern="causal_self", max_length=8, **hyper)


def draw(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


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


def test_a_key_keeps_its_latest_value_alone():
    """With beta = 1 the first value of a key is gone after the second; a sum of both remains in linear attention."""
    model = build(DeltaNet).double()
    with torch.no_grad():
        model.beta_proj.weight.fill_(100.0)  # beta = 1 for an input with a positive sum
        model.convolution.weight.zero_()
        model.convolution.weight[:, 0] = 1.0
    x = draw(1, 3, 8).abs()
    x[:, 2] = x[:, 0]  # writes to the key of the first token
    _, state = model.chunk(x, model.init_state(1))
    _, key, value = F.silu(model.qkv_proj(x[0, 2])).split(model.widths)
    torch.testing.assert_close(unit(key) @ state["sums"][0, 0], value, atol=1e-5, rtol=0)


def test_negative_eigenvalues_reflect_the_state():
    """beta = 2 changes the sign of what was stored at a key, which beta < 1 cannot do."""
    kept = []
    for negative in (False, True):
        model = build(DeltaNet, negative_eigenvalues=negative).double()
        with torch.no_grad():
            model.beta_proj.weight.fill_(100.0)
            model.convolution.weight.zero_()
            model.convolution.weight[:, 0] = 1.0
            model.qkv_proj.weight[-8:] = 0.0  # values of zero
        x = draw(1, 1, 8).abs()
        key = unit(F.silu(model.qkv_proj(x[0, 0])).split(model.widths)[1])
        state = model.init_state(1) | {"sums": torch.outer(key, torch.ones(8).double())[None, None]}
        kept.append(key @ model.chunk(x, state)[1]["sums"][0, 0])
    torch.testing.assert_close(kept[0], torch.zeros(8).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(kept[1], -torch.ones(8).double(), atol=1e-5, rtol=0)


@MODELS
def test_size_of_the_state(cls):
    model = build(cls, 16, 2, expand_k=1.0, expand_v=1.5)
    state = model.init_state(3)
    assert state["sums"].shape == (3, 2, 8, 12)
    assert state["window"].shape == (3, 3, 2 * (8 + 8 + 12))
