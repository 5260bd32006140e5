"""DeltaNet, Gated DeltaNet and Kimi Delta Attention beyond the contract: start and sizes."""

import pytest
import torch
from twins import trainable

from models.attention.deltanet import DeltaNet
from models.attention.gated_deltanet import GatedDeltaNet
from models.attention.kda import KimiDeltaAttention

MODELS = pytest.mark.parametrize("cls", [DeltaNet, GatedDeltaNet, KimiDeltaAttention])


def build(cls, dim=8, heads=1, **hyper):
    torch.manual_seed(0)
    return cls(dim, heads, pattern="causal_self", max_length=8, **hyper)


@pytest.mark.parametrize(("cls", "squares"), [(DeltaNet, 4), (GatedDeltaNet, 6), (KimiDeltaAttention, 4.25)])
def test_published_number_of_parameters(cls, squares):
    """About 4 D^2, 6 D^2 and 4 D^2 + 4 D R of the public layers of width 2,048 with 16 heads and R = 128."""
    with torch.device("meta"):
        model = build(cls, 2048, 16)
    assert 1 < trainable(model) / (squares * 2048**2) < 1.01
