import pytest
import torch
from twins import TWINS
from zoo import build, inputs, run

from models.attention.base import Pattern

PATTERN = Pattern.NONCAUSAL_SELF


@pytest.mark.parametrize("shared", [0, 2])
def test_padding_may_lie_between_tokens(shared):
    model = build("longformer", PATTERN, global_tokens=shared).double()
    x, _ = inputs(PATTERN, 23, dtype=torch.float64)
    mask = torch.zeros(2, 23, dtype=torch.bool)
    mask[0, [0, 7, 8, 20]] = mask[1, 9:] = True
    y, definition = run(model, x, key_padding_mask=mask), TWINS["longformer"].forward(model, x, None, mask)
    torch.testing.assert_close(y[~mask], definition[~mask], atol=1e-10, rtol=0)


def test_global_tokens_see_all_and_are_seen_by_all():
    x, _ = inputs(PATTERN, 30)
    x.requires_grad_()
    y = run(build("longformer", PATTERN, global_tokens=1), x)
    (first,) = torch.autograd.grad(y[0, 0].sum(), x, retain_graph=True)
    (last,) = torch.autograd.grad(y[0, 29].sum(), x)
    assert (first[0] != 0).any(-1).all()
    assert (last[0] != 0).any(-1).nonzero().flatten().tolist() == [0, 27, 28, 29]


@pytest.mark.parametrize("wrong", [{"window": -1}, {"global_tokens": -1}])
def test_refuses_sizes_that_mean_nothing(wrong):
    with pytest.raises(ValueError, match="window and global_tokens >= 0"):
        build("longformer", PATTERN, **wrong)
