"""The rule that cuts work into tiles, and the masks that backward draws again."""

import pytest
import torch

from models.ops.dropout import apply_dropout, draw_seed, dropout_mask
from models.ops.tiles import TileBudget


@pytest.mark.parametrize(
    ("size", "most", "pieces"), [(10, None, 10), (10, 4, 4), (30, None, 3), (101, None, 1), (101, 7, 1)]
)
def test_a_tile_holds_what_its_budget_allows(size, most, pieces):
    budget = TileBudget(100, 1000)
    assert budget.fit(torch.empty(0), size, most) == pieces
    assert budget.fit(torch.empty(0, device="meta"), size) == max(1, 1000 // size)


def test_a_seed_is_one_draw_from_the_common_stream_and_none_without_dropout():
    before = torch.get_rng_state()
    assert draw_seed(0.0) == 0
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(3)
    expected = int(torch.randint(2**31, ()))
    torch.manual_seed(3)
    assert draw_seed(0.1) == expected


def test_masks_repeat_by_seed_and_keep_the_mean():
    x = torch.ones(4, 5000, dtype=torch.float64)
    mask = dropout_mask(x, 0.25, 7)
    assert torch.equal(mask, dropout_mask(x, 0.25, 7))
    assert not torch.equal(mask, dropout_mask(x, 0.25, 8))
    assert set(mask.unique().tolist()) == {0.0, 1 / 0.75}
    assert abs(mask.mean() - 1) < 0.02
    generator = torch.Generator().manual_seed(7)
    assert torch.equal(dropout_mask(x, 0.25, generator), mask)
    assert not torch.equal(dropout_mask(x, 0.25, generator), mask)  # the next one
    assert torch.equal(apply_dropout(2 * x, 0.25, 7), 2 * mask)
    assert dropout_mask(x, 0.0, 7) is None
    assert apply_dropout(x, 0.0, 7) is x
