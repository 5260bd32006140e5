"""Positions against their definitions and against published conventions."""

import contextlib
import math

import pytest
import torch
from golden import golden, needs_golden
from zoo import few_kernels

from models.ops.positions import apply_rope, rope_frequencies, sinusoidal_positions, xpos_scale


def turned(x, positions, width, sign=1):
    """Each pair (2j, 2j + 1) times its 2 x 2 matrix."""
    y = x.clone()
    for n, t in enumerate(positions.tolist()):
        for j in range(width // 2):
            a = sign * t * 10000 ** (-2 * j / width)
            matrix = torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]], dtype=x.dtype)
            y[..., n, 2 * j : 2 * j + 2] = x[..., n, 2 * j : 2 * j + 2] @ matrix.T
    return y


def test_sinusoids_are_those_of_the_paper():
    table, t, i = sinusoidal_positions(9, 6), torch.arange(9)[:, None], torch.arange(3)
    angles = t / 10000 ** (2 * i / 6)
    torch.testing.assert_close(table, torch.stack([angles.sin(), angles.cos()], -1).flatten(1))
    assert sinusoidal_positions(4, 5).shape == (4, 5)


@pytest.mark.parametrize("form", [contextlib.nullcontext, few_kernels])
@pytest.mark.parametrize("width", [2, 6, 8])
def test_a_rotation_turns_its_pairs_and_leaves_the_rest(width, form):
    x = torch.randn(2, 3, 5, 8, dtype=torch.double)
    positions = torch.arange(3, 8)
    with form():
        y = apply_rope(x, positions, rope_frequencies(width))
        torch.testing.assert_close(y, turned(x, positions, width))
        torch.testing.assert_close(apply_rope(y, positions, rope_frequencies(width), inverse=True), x)


def test_scores_depend_on_the_distance_alone():
    q, k = torch.randn(2, 1, 9, 8, dtype=torch.double)
    scores = [apply_rope(q, torch.arange(9) + t) @ apply_rope(k, torch.arange(9) + t).mT for t in (0, 1000)]
    torch.testing.assert_close(*scores, atol=1e-10, rtol=0)


def test_far_positions_keep_their_digits_in_float32():
    x = torch.randn(1, 8)
    position = torch.tensor([131_071])
    torch.testing.assert_close(apply_rope(x, position).double(), apply_rope(x.double(), position), atol=1e-6, rtol=0)


@pytest.mark.parametrize("form", [contextlib.nullcontext, few_kernels])
def test_gradient(form):
    x = torch.randn(2, 3, 6, dtype=torch.double, requires_grad=True)
    frequencies = rope_frequencies(4).requires_grad_()
    with form():
        assert torch.autograd.gradcheck(lambda x, f: apply_rope(x, torch.arange(3), f), (x, frequencies))


def test_odd_widths_are_refused():
    with pytest.raises(ValueError, match="7 is odd"):
        rope_frequencies(7)


@needs_golden
@pytest.mark.parametrize("interleaved", [True, False])
def test_published_conventions(interleaved):
    meta, arrays = golden("rope_conventions_n41")
    positions = meta["hyper"]["first_position"] + torch.arange(41)
    for name in "qk":
        ours = apply_rope(arrays[name], positions, interleaved=interleaved)
        theirs = arrays[f"{name}_{'inter' if interleaved else 'half'}"]
        torch.testing.assert_close(ours, theirs, atol=meta["tolerance_max_abs"], rtol=0)


@needs_golden
def test_published_xpos():
    meta, arrays = golden("rope_xpos_n41")
    positions = torch.arange(41)
    scale = xpos_scale(positions - math.ceil(41 / 2), meta["hyper"]["dh"])
    for name, factor in (("q", scale), ("k", 1 / scale)):
        ours = apply_rope(arrays[name], positions, scale=factor)
        torch.testing.assert_close(ours, arrays[f"{name}_xpos"], atol=meta["tolerance_max_abs"], rtol=0)
