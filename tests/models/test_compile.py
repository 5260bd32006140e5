"""Attention gives the same result under torch.compile: traced, which needs no compiler, and compiled."""

import shutil

import pytest
import torch
from torch._dynamo.utils import counters
from zoo import CASES, build, inputs, run

from benchmarks.gpu.forms import compare_forms
from benchmarks.gpu.part import OK
from models.attention.lavo import LAVO
from models.ops.banded import banded_attention


@pytest.mark.slow
@pytest.mark.parametrize(("name", "pattern"), {name: (name, pattern) for name, pattern in CASES}.values())
def test_traced_as_one_graph_it_equals_the_untraced_form(name, pattern):
    """Forward and backward, at three lengths: a part that torch.compile cannot trace is an error.

    As in a training, the first graph is of one length, and the next of any length (torch's automatic dynamic shapes).
    """
    model = build(name, pattern)
    torch._dynamo.reset()
    traced = torch.compile(model, backend="eager", fullgraph=True)
    for length in (31, 20, 45):
        x, context = inputs(pattern, length)
        leaves = [x.clone().requires_grad_() for _ in range(2)]
        ours, theirs = run(traced, leaves[0], context), run(model, leaves[1], context)
        torch.testing.assert_close(ours, theirs)
        ours.sum().backward()
        theirs.sum().backward()
        torch.testing.assert_close(leaves[0].grad, leaves[1].grad)


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="no C++ compiler")
@pytest.mark.parametrize("name", ["vanilla", "lavo", "latte", "cosformer", "gla"])
def test_compiled_equals_uncompiled(name):
    """With inductor: output and every gradient, as `make gpu` compares them on a GPU."""
    comparison = compare_forms("compile", name, torch.device("cpu"), 64, rounds=1)
    assert comparison["state"] == OK, comparison["text"]


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["causal_self", "noncausal_self"])
def test_windows_of_lavo_share_a_graph_for_several_lengths(pattern):
    """Fewer graphs than lengths: the first length has its own, and whole windows or blocks have others."""
    layer = LAVO(32, 2, pattern=pattern, max_length=256, bases=8, window=8)
    torch._dynamo.reset()
    counters.clear()
    traced = torch.compile(layer, backend="eager", fullgraph=True)
    for length in (40, 64, 97, 130, 200, 35):
        x = torch.randn(2, length, 32, generator=torch.Generator().manual_seed(length))
        padding = torch.arange(length) >= torch.tensor([length, length - 5])[:, None]
        leaves = [x.clone().requires_grad_() for _ in range(2)]
        for leaf, model in zip(leaves, (traced, layer), strict=True):
            y = model(leaf, key_padding_mask=padding)[0].masked_fill(padding[..., None], 0.0)
            y.sin().sum().backward()
        torch.testing.assert_close(*(leaf.grad for leaf in leaves))
    assert counters["stats"]["unique_graphs"] <= 4  # for six lengths


@pytest.mark.parametrize(("left", "right", "length"), [(7, 0, 40), (3, 3, 41), (200, 0, 50), (150, 9, 300), (0, 5, 3)])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_the_form_of_windows_that_is_traced_equals_the_tiled_one(monkeypatch, left, right, length, padded, biased):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, length, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    bias = torch.randn(2, left + right + 1, generator=generator, dtype=torch.float64) if biased else None
    padding = torch.arange(length) >= torch.tensor([length, length // 2])[:, None] if padded else None

    def results(traced):
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: traced)
        leaves = [x.clone().requires_grad_() for x in (q, k, v, *([] if bias is None else [bias]))]
        options = {"left": left, "right": right, "key_padding_mask": padding}
        out = banded_attention(*leaves[:3], bias=leaves[3] if biased else None, **options)
        out.sin().sum().backward()
        return out, *(leaf.grad for leaf in leaves)

    torch.testing.assert_close(results(True), results(False))


def test_dropout_of_traced_windows_drops_weights(monkeypatch):
    """A share of weights becomes zero and the others are scaled: the mean over many keys stays."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    torch.manual_seed(0)
    q, k, v = torch.zeros(3, 4, 2, 512, 4).unbind()
    out = banded_attention(q, k, v + 1, left=63, right=0, dropout=0.25)
    kept = out[:, :, 64:, 0] * 64 * 0.75  # a count of weights
    torch.testing.assert_close(kept, kept.round())
    assert kept.mean().item() == pytest.approx(48, rel=0.02)
    assert kept.std().item() == pytest.approx((64 * 0.75 * 0.25) ** 0.5, rel=0.1)
