import pytest
import torch
from zoo import build, inputs, run

from models.attention.base import Pattern

PATTERN = Pattern.NONCAUSAL_SELF


@pytest.mark.parametrize(("length", "stride"), [(7, 2), (8, 3), (9, 3)])
def test_a_token_sees_every_sth(length, stride):
    """8 tokens in blocks of 4 have stride 3, not 2: Long Range Arena's code always pads."""
    x, _ = inputs(PATTERN, length, batch=1)
    x.requires_grad_()
    y = run(build("lra_strided", PATTERN, block=4), x)
    for i in range(length):
        (gradient,) = torch.autograd.grad(y[0, i].sum(), x, retain_graph=True)
        seen = (gradient[0] != 0).any(-1).nonzero().flatten()
        assert seen.tolist() == list(range(i % stride, length, stride))
