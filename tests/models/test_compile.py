"""Attention gives the same result under torch.compile: traced, which needs no compiler, and compiled."""

import shutil

import pytest
import torch
from zoo import CASES, build, inputs, run

from benchmarks.gpu import compiled
from benchmarks.gpu.part import OK


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


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="no C++ compiler")
@pytest.mark.parametrize("name", ["vanilla", "lavo", "latte"])
def test_compiled_equals_uncompiled(name):
    """With inductor: output and every gradient, as `make gpu` compares them on a GPU."""
    comparison = compiled.compare_compiled(name, torch.device("cpu"), 64, rounds=1)
    assert comparison["state"] == OK, comparison["text"]
