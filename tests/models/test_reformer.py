"""Reformer beyond the contract: buckets, new rotations."""

import pytest
import torch
from zoo import build, inputs, run

from models.attention.base import Pattern
from models.attention.reformer import hash_sizes, sort_by_hash

SELF = Pattern.NONCAUSAL_SELF


@pytest.mark.parametrize(
    ("length", "halves"),
    [(1, (1, 0)), (64, (1, 0)), (65, (2, 0)), (1024, (16, 0)), (2000, (32, 0)), (4096, (64, 0)), (65_536, (16, 32))],
)
def test_buckets_are_those_of_transformers(length, halves):
    assert hash_sizes(torch.tensor([length]), 64, 65_536).tolist() == [list(halves)]


def test_tokens_that_hash_alike_stand_together():
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(5, 8, generator=generator)
    group = torch.arange(40) % 5
    noise = 1e-4 * torch.randn(1, 1, 40, 8, generator=generator)
    order = sort_by_hash(
        centres[group][None, None] + noise, torch.randn(2, 3, 1, 8, 64, generator=generator), torch.tensor([[64, 64]])
    )
    for tokens in order[0, 0]:
        assert sorted(tokens.tolist()) == list(range(40))
        assert (group[tokens].diff() != 0).sum() == 4  # 5 runs
        assert (tokens.view(5, 8).diff() > 0).all()  # ordered by position within a bucket


def test_new_rotations_at_every_training_step_if_asked():
    x, _ = inputs(SELF, 41)
    for redraw in (False, True):
        model = build("reformer", SELF, redraw=redraw)
        assert torch.equal(run(model, x), run(model, x))
        model.train()
        assert torch.equal(run(model, x), run(model, x)) is not redraw
