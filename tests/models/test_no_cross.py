"""The control of cross attention tables returns zeros for every input."""

import pytest
import torch
from zoo import load

from models.attention.base import Pattern


def control(pattern):
    cls, hyper = load("no_cross")
    return cls(16, 2, pattern=pattern, max_length=8, **hyper)


@pytest.mark.parametrize("pattern", [pattern for pattern in Pattern if pattern.cross])
def test_gives_zeros_and_hands_the_carry_on(pattern):
    x, context, carry = torch.randn(2, 5, 16), torch.randn(2, 7, 16), torch.randn(2, 3, 16)
    y, handed = control(pattern)(x, context, carry=carry)
    assert y.shape == x.shape and not y.any() and handed is carry
    assert not list(control(pattern).parameters())


@pytest.mark.parametrize("pattern", [pattern for pattern in Pattern if not pattern.cross])
def test_stands_in_no_self_attention(pattern):
    with pytest.raises(ValueError, match=f"has no {pattern} form"):
        control(pattern)


def test_wants_the_context_that_it_does_not_read():
    with pytest.raises(ValueError, match="requires a context"):
        control(Pattern.NONCAUSAL_CROSS)(torch.randn(1, 2, 16))
