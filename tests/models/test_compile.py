"""Attention traced by torch.compile gives what it gives untraced (the tracer alone: no compiler is needed)."""

import pytest
import torch
from zoo import CASES, build, inputs, run


@pytest.mark.slow
@pytest.mark.parametrize(("name", "pattern"), CASES)
def test_traced_equals_untraced(name, pattern):
    model = build(name, pattern)
    x, context = inputs(pattern, 31)
    torch._dynamo.reset()
    traced = torch.compile(model, backend="eager")
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    ours, theirs = run(traced, leaves[0], context), run(model, leaves[1], context)
    torch.testing.assert_close(ours, theirs)
    ours.sum().backward()
    theirs.sum().backward()
    torch.testing.assert_close(leaves[0].grad, leaves[1].grad)
