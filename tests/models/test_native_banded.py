"""Compiled kernels of banded attention and of LAVO's read, against the torch forms in float64."""

import pytest
import torch

from models.attention.lavo import LAVO, read
from models.ops import native
from models.ops.banded import banded_attention
from tests.helpers.kernels import compiled, relative_errors

pytestmark = [compiled, pytest.mark.slow]  # the first test compiles for half a minute


def heads(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    batch, number, length, width = shape
    return torch.randn(batch, length, number, width, generator=generator, dtype=torch.float64).transpose(1, 2)


def hidden(batch, length):
    """Padded keys: none in the first row, some in the second, all in the last."""
    mask = torch.rand(batch, length, generator=torch.Generator().manual_seed(1)) < 0.4
    mask[0], mask[-1] = False, True
    return mask


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("biased", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize(
    ("length", "left", "right", "width"),
    [(1, 3, 0, 16), (5, 2, 1, 32), (129, 15, 15, 16), (300, 255, 0, 64), (517, 100, 40, 32), (65, 170, 170, 16)],
)
def test_the_band_equals_its_form_in_torch(monkeypatch, length, left, right, width, biased, padded):
    q, k, v = (heads(3, 2, length, width, seed=seed) for seed in range(3))
    bias = torch.randn(2, left + right + 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    options = {"left": left, "right": right, "key_padding_mask": hidden(3, length) if padded else None}

    def attention(q, k, v, bias):
        return banded_attention(q, k, v, bias=bias if biased else None, **options)

    errors = relative_errors(monkeypatch, attention, (q, k, v, bias) if biased else (q, k, v), unused=not biased)
    assert max(errors) < 2e-6


@pytest.mark.parametrize("gain", [10.0, 1000.0])
def test_the_band_bears_extreme_scores(monkeypatch, gain):
    q, k, v = (heads(1, 2, 200, 16, seed=seed) for seed in range(3))
    # float64 reads the float32 inputs, so the rounding of scores is no error
    q, k, v = ((gain * x).float().double() if i < 2 else x for i, x in enumerate((q, k, v)))
    monkeypatch.setenv(native.SWITCH, "1")
    y = banded_attention(q.float(), k.float(), v.float(), left=31, right=0)
    assert torch.isfinite(y).all()
    assert y.abs().max() <= v.abs().max() + 1e-5  # a mean of values


@pytest.mark.parametrize(
    ("length", "width", "bases", "window"),
    [(1, 16, 16, 4), (150, 32, 16, 7), (1000, 64, 64, 256), (2500, 32, 32, 2500), (1300, 16, 16, 1)],
)
def test_the_read_equals_its_form_in_torch(monkeypatch, length, width, bases, window):
    q = heads(2, 3, length, width)
    memory = heads(2, 3, -(-length // window), bases, seed=1)
    rows = torch.randn(3, bases, width, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    errors = relative_errors(monkeypatch, lambda *x: read(*x, window=window), (q, memory, rows))
    assert max(errors) < 3e-6


def test_threads_change_nothing(monkeypatch):
    """Only the shape determines the runs of blocks, and their sums into common keys have a fixed order."""
    monkeypatch.setenv(native.SWITCH, "1")
    layer = LAVO(64, 2, pattern="causal_self", max_length=3000, bases=32, window=64)
    x = torch.randn(1, 3000, 64, generator=torch.Generator().manual_seed(0))

    def train(threads):
        torch.set_num_threads(threads)
        y, _ = layer(x)
        return [y, *torch.autograd.grad(y.square().sum(), layer.parameters())]

    try:
        first_run, second_run, other_seed = train(1), train(1), train(2)
    finally:
        torch.set_num_threads(1)
    # torch's threads may change the rounding of the projections, whose gradients are only close
    assert all(map(torch.equal, first_run, second_run))
    for a, b in zip(first_run, other_seed, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    q, k, v = (heads(1, 2, 3000, 16, seed=seed).float().requires_grad_() for seed in range(3))
    bias = torch.zeros(2, 64, requires_grad=True)

    def band(threads):
        torch.set_num_threads(threads)
        y = banded_attention(q, k, v, left=63, right=0, bias=bias)
        return [y, *torch.autograd.grad(y.square().sum(), (q, k, v, bias))]

    try:
        assert all(map(torch.equal, band(1), band(2)))
    finally:
        torch.set_num_threads(1)


def test_what_kernels_do_not_take_keeps_its_form(monkeypatch):
    monkeypatch.setenv(native.SWITCH, "1")
    assert native.kernels(torch.zeros(1, 16)) is not None
    assert native.kernels(torch.zeros(1, 16, dtype=torch.float64)) is None
    assert native.kernels(torch.zeros(1, 8)) is None
    with monkeypatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert native.kernels(torch.zeros(1, 16)) is None, "torch.compile knows no form of these operators"
    monkeypatch.setenv(native.SWITCH, "0")
    assert native.kernels(torch.zeros(1, 16)) is None


def test_a_compiler_that_is_missing_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))  # holds no library

    def fail(*arguments, **options):
        raise RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)\nmore")

    monkeypatch.setattr("torch.utils.cpp_extension.load", fail)
    with pytest.raises(RuntimeError) as caught:
        native.load.__wrapped__()
    assert str(caught.value).startswith("resources.kernels=native: ")
    assert "pip install -e .[native]" in str(caught.value)
    assert "\n" not in str(caught.value)
