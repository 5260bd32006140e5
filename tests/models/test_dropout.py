"""Masks of dropout: their distribution, their independence, and the gradient through them."""

import pytest
import torch
from scipy import stats
from torch import nn

from models.layers.dropout import Dropout
from models.ops.dropout import LEVELS, Masks, apply_dropout, draw_seed, drop, drop_in_place, dropout_mask

CPU = torch.device("cpu")


def kept(shape, share, seed):
    """1 where an entry is kept, as numbers."""
    return (dropout_mask(torch.empty(shape), share, seed) > 0).double()


def test_a_seed_is_one_draw_from_the_common_stream_and_none_without_dropout():
    before = torch.get_rng_state()
    assert draw_seed(0.0) == 0
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(3)
    expected = int(torch.randint(2**31, ()))
    torch.manual_seed(3)
    assert draw_seed(0.1) == expected


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_outside_0_to_1_is_refused_in_one_line(share):
    with pytest.raises(ValueError, match="dropout is a share from 0 to 1") as caught:
        draw_seed(share)
    assert "\n" not in str(caught.value)


def test_masks_repeat_by_seed_and_keep_the_mean():
    x = torch.ones(4, 5000, dtype=torch.float64)
    mask = dropout_mask(x, 0.25, 7)
    assert torch.equal(mask, dropout_mask(x, 0.25, 7))
    assert not torch.equal(mask, dropout_mask(x, 0.25, 8))
    assert set(mask.unique().tolist()) == {0.0, 1 / 0.75}
    assert torch.equal(dropout_mask(x.new_empty(5000, 4).mT, 0.25, 7), mask), "only the shape counts"
    for shape, dtype in (((), torch.float32), ((3, 5), torch.bfloat16), ((0, 4), torch.float16)):
        drawn = dropout_mask(torch.empty(shape, dtype=dtype), 0.5, 3)
        assert drawn.shape == shape and drawn.dtype == dtype and set(drawn.flatten().tolist()) <= {0.0, 2.0}
    for share in (1.0, 1 - 1e-7, 1e-7):
        assert dropout_mask(torch.empty(1000), share, 2).isfinite().all()
    assert abs(mask.mean() - 1) < 0.02
    masks = Masks(7, CPU)
    assert torch.equal(masks.draw(x, 0.25), mask)
    assert not torch.equal(masks.draw(x, 0.25), mask)  # the next one
    assert torch.equal(apply_dropout(2 * x, 0.25, 7), 2 * mask)
    y = 2 * x
    torch.testing.assert_close(drop_in_place(y, 0.25, 7) * y, 2 * mask, rtol=1e-15, atol=0)
    assert drop_in_place(y, 0.0, 7) == 1.0
    assert dropout_mask(x, 0.0, 7) is None
    assert apply_dropout(x, 0.0, 7) is x


@pytest.mark.parametrize("share", [0.01, 0.3, 0.9])
def test_the_dropped_share_is_that_of_the_setting(share):
    entries = 1_000_000
    dropped = entries - kept((entries,), share, 11).sum()
    exact = 1 - round((1 - share) * LEVELS) / LEVELS
    assert abs(exact - share) <= 0.5 / LEVELS
    assert stats.binomtest(int(dropped), entries, exact).pvalue > 1e-3
    factor = float(dropout_mask(torch.empty(100, dtype=torch.float64), share, 1).max())
    assert factor * (1 - exact) == pytest.approx(1, abs=1e-12)  # the mean factor is 1


def test_patterns_of_neighbours_are_as_frequent_as_independence_says():
    """Chi-square over the 64 patterns of (2 heads) x (3 positions), at three distances between the positions."""
    share, seeds = 0.3, range(40)
    for distance in (1, 4, 64):
        counts = torch.zeros(64)
        for seed in seeds:
            mask = kept((2, 30_000), share, seed).long()
            cut = mask.shape[1] - 2 * distance
            rows = [
                mask[head, lag * distance : lag * distance + cut : 3 * distance] for head in (0, 1) for lag in range(3)
            ]
            counts += torch.bincount(sum(row << bit for bit, row in enumerate(rows)), minlength=64)
        ones = torch.tensor([bin(pattern).count("1") for pattern in range(64)])
        probability = (1 - share) ** ones * share ** (6 - ones)
        assert stats.chisquare(counts, probability / probability.sum() * counts.sum()).pvalue > 1e-3, distance


def test_masks_of_successive_seeds_are_independent():
    """Tiles and steps have seeds that differ by 1 and by powers of two."""
    first = kept((1 << 18,), 0.1, 1000)
    for step in (1, 2, 3, 1 << 16, 1 << 20):
        other = kept((1 << 18,), 0.1, 1000 + step)
        counts = torch.bincount((2 * first + other).long(), minlength=4).view(2, 2)
        assert stats.chi2_contingency(counts.numpy()).pvalue > 1e-4, step


def test_the_layer_is_torchs_outside_training_and_masks_the_gradient_inside():
    torch.manual_seed(0)
    layer = Dropout(0.4)
    x = torch.randn(50, 70, dtype=torch.float64, requires_grad=True)
    y = layer(x)
    mask = y.detach() / x.detach()
    assert set(mask.round(decimals=9).unique().tolist()) == {0.0, round(LEVELS / round(0.6 * LEVELS), 9)}
    y.sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x).masked_fill(y != 0, LEVELS / round(0.6 * LEVELS)))
    assert layer.eval()(x) is x
    assert isinstance(layer, nn.Dropout) and repr(layer) == repr(nn.Dropout(0.4)).replace("nn.", "")


def test_a_checkpointed_call_repeats_its_mask():
    x = torch.randn(100, 100, requires_grad=True)
    torch.manual_seed(1)
    plain = drop(x * 2, 0.3)
    torch.manual_seed(1)
    again = torch.utils.checkpoint.checkpoint(lambda value: drop(value * 2, 0.3), x, use_reentrant=False)
    assert torch.equal(plain, again)
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (plain, again)]
    assert torch.equal(*gradients)
