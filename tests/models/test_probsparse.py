"""ProbSparse attention beyond the contract: both ways to score samples, tiles, new draws."""

import pytest
import torch
from zoo import build, inputs, padding, run

from models.attention import probsparse
from models.attention.base import Pattern
from models.ops.tiles import TileBudget

SELF = Pattern.NONCAUSAL_SELF


@pytest.mark.parametrize("mask", [None, padding(2, 41, 30)], ids=["full", "padded"])
@pytest.mark.parametrize(("share", "tile"), [(2.0, 2**19), (0.0, 1), (0.0, 500), (0.0, 2**19)])
def test_fetched_keys_and_tiles_of_all_scores_choose_the_same_queries(monkeypatch, mask, share, tile):
    model = build("probsparse", SELF).double()
    x, _ = inputs(SELF, 41, dtype=torch.float64)
    reference = run(model, x, key_padding_mask=mask)
    monkeypatch.setattr(probsparse, "FETCHED_SHARE", share)
    monkeypatch.setattr(probsparse, "TILE", TileBudget(tile, tile))
    torch.testing.assert_close(run(model, x, key_padding_mask=mask), reference, atol=1e-12, rtol=0)


def test_queries_are_chosen_alike_under_autocast():
    model = build("probsparse", SELF, factor=1)
    q, k, v = (torch.randn(100, 2, 41, 8, generator=torch.Generator().manual_seed(s)) for s in range(3))

    def chosen():
        y = model.attend(q, k, v, None)
        return (y != y.mode(2, keepdim=True)[0]).any(-1)  # most queries get the mean

    exact = chosen()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(chosen(), exact)


def test_new_draws_at_every_training_step_if_asked():
    x, _ = inputs(SELF, 41)
    for redraw in (False, True):
        model = build("probsparse", SELF, factor=1, redraw=redraw)
        assert torch.equal(run(model, x), run(model, x))
        model.train()
        assert any(not torch.equal(run(model, x), run(model, x)) for _ in range(5)) is redraw
