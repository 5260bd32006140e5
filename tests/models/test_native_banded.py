"""Compiled kernels of banded attention and of LAVO's read, against the torch forms in float64."""

import pytest
import torch

from models.attention.lavo import read
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
    assert max(errors) < 5e-6  # of a single key the gradients are zero but for rounding


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
