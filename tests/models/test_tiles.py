"""The rule that cuts work into tiles, and the masks that backward draws again."""

import pytest
import torch

from models.ops.tiles import TileBudget


@pytest.mark.parametrize(
    ("size", "most", "pieces"), [(10, None, 10), (10, 4, 4), (30, None, 3), (101, None, 1), (101, 7, 1)]
)
def test_a_tile_holds_what_its_budget_allows(size, most, pieces):
    budget = TileBudget(100, 1000)
    assert budget.fit(torch.empty(0), size, most) == pieces
    assert budget.fit(torch.empty(0, device="meta"), size) == max(1, 1000 // size)
