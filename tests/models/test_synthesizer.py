"""Synthesizer beyond the contract."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from models.attention.synthesizer import Synthesizer

SIZES = {"pattern": "noncausal_self", "max_length": 12}


@pytest.mark.parametrize("rank", [2, 4, 6])
def test_factors_of_any_rank_are_read_by_a_fused_kernel(rank):
    model = Synthesizer(8, 2, **SIZES, rank=rank)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # raises where that cannot be had
        assert torch.isfinite(model(torch.randn(1, 12, 8))[0]).all()


@pytest.mark.parametrize("dot_product", [False, True])
@pytest.mark.parametrize("rank", [4, 0])
def test_autocast(rank, dot_product):
    model = Synthesizer(8, 2, **SIZES, rank=rank, dot_product=dot_product)
    x, mask = torch.randn(2, 12, 8), torch.arange(12) >= torch.tensor([[9], [12]])
    exact, _ = model(x, key_padding_mask=mask)
    with torch.autocast("cpu", torch.bfloat16):
        y, _ = model(x, key_padding_mask=mask)
    y.float().sum().backward()
    assert (y.float() - exact).abs().max() <= 0.03 * exact.abs().max()
