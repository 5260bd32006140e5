"""Linear methods at lengths for which quadratic memory, or slots x width per token, would exceed the bounds."""

import pytest
import torch
from memory import peak_allocated_mb
from zoo import CLASSES, MAX_LENGTH, SELF, build, load

from models.attention.base import Pattern

pytestmark = pytest.mark.slow

DIM, HEADS = 64, 4
CASES = [case for case in SELF if build(*case).linear and not CLASSES[case[0]].fixed_length]
CAUSAL = [case for case in CASES if case[1] is Pattern.CAUSAL_SELF]
# (N, r, D) numbers for 64 slots or 64 latents take 16 KiB per token, N x N at these lengths 16 KiB and more
FORWARD_KIB, TRAIN_KIB = 6.0, 14.0
# an inner width of 128 with its gate, and B and C of 128 numbers each: 2 KiB per token before any product
WIDE = {"mamba2": (8.5, 16.0), "abc_cab": (7.5, 16.0)}


def at_length(name: str, pattern: Pattern, length: int) -> tuple[torch.nn.Module, torch.Tensor]:
    """A model in its yaml's sizes, with as many bases as this head width allows and at most 64 features."""
    cls, hyper = load(name, tiny=False)
    hyper |= {"bases": 16} if "bases" in hyper else {}
    hyper |= {"features": min(64, hyper["features"])} if hyper.get("features") else {}
    torch.manual_seed(0)
    return cls(DIM, HEADS, pattern=pattern, max_length=length, **hyper).eval(), torch.randn(1, length, DIM)


def kib_for_each_token(call, length: int) -> float:
    call(MAX_LENGTH)  # memory kept by the first call does not depend on the length
    return peak_allocated_mb(lambda: call(length)) * 1024 / length


@pytest.mark.parametrize(("name", "pattern"), CASES)
def test_training_at_16_384_tokens(name, pattern):
    def train(length: int) -> None:
        model, x = at_length(name, pattern, length)
        x.requires_grad_()
        y = model(x)[0]
        y.sum().backward()
        assert torch.isfinite(y).all() and torch.isfinite(x.grad).all()

    assert kib_for_each_token(train, 16_384) < WIDE.get(name, (FORWARD_KIB, TRAIN_KIB))[1]


@pytest.mark.parametrize(("name", "pattern"), CAUSAL)
def test_reading_32_768_tokens(name, pattern):
    @torch.no_grad()
    def read(length: int) -> None:
        model, x = at_length(name, pattern, length)
        assert torch.isfinite(model(x)[0]).all()

    assert kib_for_each_token(read, 32_768) < WIDE.get(name, (FORWARD_KIB, TRAIN_KIB))[0]
