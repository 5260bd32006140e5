"""The infinity-former's memory: its signal, its state, its regulariser, refusals."""

import pytest
import torch
from torch.utils._pytree import tree_flatten
from zoo import DIM, build, inputs, run

from models.attention.base import Pattern
from models.attention.infinity_former import Signal, densities
from models.ops.tiles import TileBudget

WINDOW, SEGMENT, BASES = 4, 8, 4  # in the tests' size
NARROW = (0.02, 0.04)


def value(signal, memory, at):
    """X(t), (T, D)."""
    times = torch.as_tensor(at, dtype=torch.float64)
    return densities(times, torch.zeros_like(times), signal.centres, signal.widths) @ memory


def test_the_signal_goes_through_the_tokens_of_a_segment():
    signal = Signal(64, 16, NARROW, tau=0.5, samples=512, ridge=0.5)
    x = torch.randn(16, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    memory = signal.maps(x).update(None, x)
    torch.testing.assert_close(value(signal, memory, [(i + 1) / 16 for i in range(16)]), x, atol=0.05, rtol=0)


def test_an_update_moves_the_past_to_the_first_share():
    signal = Signal(64, 16, NARROW, tau=0.75, samples=512, ridge=0.5)
    t = torch.arange(1, 17, dtype=torch.float64)[:, None] / 16
    first, second = torch.sin(3 * t), torch.cos(2 * t)
    maps = signal.maps(t)
    memory = maps.update(maps.update(None, first), second)
    torch.testing.assert_close(value(signal, memory, 0.75 * t[4:15, 0]), first[4:15], atol=0.05, rtol=0)
    torch.testing.assert_close(value(signal, memory, 0.75 + 0.25 * t[4:, 0]), second[4:], atol=0.05, rtol=0)


@pytest.mark.parametrize(
    "sizes", [{"bases": 150, "segment": 150, "widths": (0.005, 0.01)}, {"bases": 6, "segment": 4, "widths": (0.1, 0.3)}]
)
def test_a_memory_of_a_long_text_stays_bounded(sizes):
    signal = Signal(**sizes, tau=0.5, samples=512, ridge=0.5)
    assert torch.linalg.eigvals(signal.keep).abs().max() < 1


def test_only_finished_segments_are_in_the_memory_and_only_later_ones_read_it():
    model = build("infinity_former", Pattern.CAUSAL_SELF, widths=[0.2, 0.3], window=1).double()
    x, _ = inputs(Pattern.CAUSAL_SELF, 21, dtype=torch.float64)
    x.requires_grad_()
    y = run(model, x)
    for i, last in ((7, None), (8, 7), (15, 7), (16, 15), (20, 15)):
        (gradient,) = torch.autograd.grad(y[:, i].sum(), x, retain_graph=True)
        seen = gradient.abs().sum((0, 2)).nonzero().flatten().tolist()
        assert seen == [*range(0 if last is None else last + 1), i]


def test_size_of_the_decoding_state():
    model = build("infinity_former", Pattern.CAUSAL_SELF)
    state = model.init_state(3)
    for x_t in torch.randn(3 * SEGMENT, 3, DIM):
        _, state = model.step(x_t, state)
    numbers = sum(leaf.numel() for leaf in tree_flatten(state)[0] if isinstance(leaf, torch.Tensor))
    assert numbers == 3 * DIM * (2 * WINDOW + SEGMENT + 2 * BASES + 2)


def test_tiles_change_nothing(monkeypatch):
    model = build("infinity_former", Pattern.CAUSAL_SELF, widths=[0.2, 0.3]).double()
    x, _ = inputs(Pattern.CAUSAL_SELF, 43, dtype=torch.float64)

    def results():
        leaf = x.clone().requires_grad_()
        y = run(model, leaf)
        return y, *torch.autograd.grad(y.square().sum(), [leaf, *model.parameters()])

    whole = results()
    monkeypatch.setattr("models.attention.infinity_former.TILE", TileBudget(1, 1))
    for actual, in_tiles in zip(whole, results(), strict=True):
        torch.testing.assert_close(actual, in_tiles, atol=1e-10, rtol=0)


def test_the_regulariser_adds_the_gradient_of_the_divergence(monkeypatch):
    """Only in training; the output stays the same."""
    kl = {"kl_weight": 0.7, "kl_std": 0.4, "widths": [0.2, 0.3]}
    plain, regularised = (
        build("infinity_former", Pattern.CAUSAL_SELF, **kl | more).double() for more in ({"kl_weight": 0.0}, {})
    )
    x, _ = inputs(Pattern.CAUSAL_SELF, 24, dtype=torch.float64)
    variances = []

    def remember(mean, variance, *bases):
        variances.append(variance)
        return densities(mean, variance, *bases)

    monkeypatch.setattr("models.attention.infinity_former.densities", remember)
    for train in (True, False):
        variances.clear()
        y, in_tiles = run(plain.train(train), x), run(regularised.train(train), x)
        torch.testing.assert_close(y, in_tiles, atol=0, rtol=0)
        ratio = variances[0] / 0.4**2
        loss = y.square().sum() + train * 0.7 * ((ratio - ratio.log() - 1) / 2).mean()
        expected = torch.autograd.grad(loss, list(plain.parameters()))
        got = torch.autograd.grad(in_tiles.square().sum(), list(regularised.parameters()))
        for actual, resumed in zip(expected, got, strict=True):
            torch.testing.assert_close(actual, resumed, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize(
    ("hyper", "message"),
    [
        ({"window": 0}, "window >= 1, not 0"),
        ({"segment": 0}, "segment >= 1, not 0"),
        ({"bases": 0}, "bases >= 1, not 0"),
        ({"samples": 0}, "samples >= 1, not 0"),
        ({"bases": 5}, "5 bases are not a multiple of 2 widths"),
        ({"widths": []}, "not a multiple of 0 widths"),
        ({"widths": [0.1, 0.0]}, "are required, not widths"),
        ({"ridge": 0}, "ridge=0"),
        ({"tau": 1.0}, "tau=1.0"),
        ({"kl_weight": -1}, "kl_weight=-1"),
        ({"kl_std": 0}, "kl_std=0"),
        ({"dim": 18}, "9 is odd"),
    ],
)
def test_refusals(hyper, message):
    with pytest.raises(ValueError, match=message):
        build("infinity_former", Pattern.CAUSAL_SELF, **hyper)
