import torch
from zoo import build, inputs, run

from models.attention.base import Pattern

PATTERN = Pattern.NONCAUSAL_SELF


def test_global_tokens_see_all_and_are_seen_by_all():
    x, _ = inputs(PATTERN, 30)
    x.requires_grad_()
    y = run(build("longformer", PATTERN, global_tokens=1), x)
    (first,) = torch.autograd.grad(y[0, 0].sum(), x, retain_graph=True)
    (last,) = torch.autograd.grad(y[0, 29].sum(), x)
    assert (first[0] != 0).any(-1).all()
    assert (last[0] != 0).any(-1).nonzero().flatten().tolist() == [0, 27, 28, 29]
