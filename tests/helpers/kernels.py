"""Helpers for tests of compiled kernels: whether they compile here, and their distance from float64."""

import os
import shutil

import pytest
import torch

from models.ops import native

with native.search_path():
    TOOLS = [shutil.which(tool) for tool in (os.environ.get("CXX", "c++"), "ninja")]
compiled = pytest.mark.skipif(not all(TOOLS), reason="compiled kernels require a C++ compiler and ninja")


def relative_errors(monkeypatch, function, leaves, *, unused=False):
    """Largest differences, as a share of the largest entry, of the output and of all gradients of float64 leaves.

    `unused`: a further argument, of which there is no gradient.
    """
    more = (None,) if unused else ()

    def evaluate(leaves):
        leaves = [leaf.detach().requires_grad_() for leaf in leaves]
        y = function(*leaves, *more)
        cotangent = torch.randn(y.shape, generator=torch.Generator().manual_seed(9))
        return [y, *torch.autograd.grad(y, leaves, cotangent.to(y.dtype))]

    rounded = [leaf.float() for leaf in leaves]  # both sides read the same numbers
    monkeypatch.setenv(native.SWITCH, "0")
    expected = evaluate([leaf.double() for leaf in rounded])
    monkeypatch.setenv(native.SWITCH, "1")
    measured = evaluate(rounded)
    floor = 0.1 * max(entry.abs().max().item() for entry in expected)  # some are zero but for rounding
    pairs = zip(measured, expected, strict=True)
    return [((m - e).abs().max() / e.abs().max().clamp(min=floor)).item() for m, e in pairs]


def with_and_without(layer, switch, padding, monkeypatch, *, batch, length):
    """Output and gradients of a layer of width 16, with and without the kernels of `switch`, as shares of the largest.

    Noise is added to all parameters, so that a zero hides no error. What stands at padding does not count.
    """
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    x, cotangent = torch.randn(2, batch, length, 16).unbind(0)
    results = []
    for value in "01":
        monkeypatch.setenv(switch, value)
        leaves = [x.clone().requires_grad_(), *layer.parameters()]
        y = layer(leaves[0], key_padding_mask=padding)[0]
        y = y if padding is None else y.masked_fill(padding[..., None], 0.0)
        results.append([y.detach(), *torch.autograd.grad(y, leaves, cotangent, allow_unused=True)])
    for ours, theirs in zip(*results, strict=True):
        if ours is not None:
            scale = max(float(ours.abs().max()), 0.1)  # a bias of keys has no gradient
            yield theirs / scale, ours / scale
