"""LongShort beyond the contract: tiles, holes, memory, and the parameters that LAVO's tables print."""

import torch
from memory import LargestStorage
from zoo import build, run

from models.attention.base import Pattern
from models.ops import long_short
from models.ops.tiles import TileBudget

NONCAUSAL, CAUSAL = Pattern.NONCAUSAL_SELF, Pattern.CAUSAL_SELF


def test_causal_memory_is_a_tile(monkeypatch):
    monkeypatch.setattr(long_short, "TILE", TileBudget(2**13, 2**13))
    model = build("longshort", CAUSAL, dim=32, max_length=512)
    x = torch.randn(1, 512, 32, requires_grad=True)
    with LargestStorage() as largest:
        run(model, x).sum().backward()
    assert largest.numbers < 512 * 512 // 8  # of 2 x 512 x 256 scores
