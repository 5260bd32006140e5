"""Taylor linear attention: tiles and chunks against the definition, and its features."""

import contextlib

import pytest
import torch
from drawn import leaf
from same import assert_same
from zoo import few_kernels

from models.ops import taylor as op
from models.ops.taylor import feature_count, taylor_attention, taylor_features
from models.ops.tiles import TileBudget


def draw(length, *, width=4, values=5):
    """Leaves q, k (2, 3, N, K), v (2, 3, N, V) and S (2, 3, m, V)."""
    shapes = (length, width), (length, width), (length, values), (feature_count(width), values)
    return [leaf(2, 3, *shape, seed=seed) for seed, shape in enumerate(shapes)]


def definition(q, k, v, state):
    a = q @ k.mT * q.shape[-1] ** -0.5
    return (1 + a + a * a / 2).tril() @ v + taylor_features(q) @ state, state + taylor_features(k).mT @ v


@pytest.mark.parametrize("form", [contextlib.nullcontext, few_kernels])
@pytest.mark.parametrize("width", [1, 2, 5, 16])
def test_products_of_features_are_the_series(width, form):
    q, k, *_ = draw(7, width=width)
    a = q @ k.mT * width**-0.5
    with form():
        assert taylor_features(q).shape == (2, 3, 7, feature_count(width))
        torch.testing.assert_close(taylor_features(q) @ taylor_features(k).mT, 1 + a + a * a / 2)


@pytest.mark.parametrize("pairs", [1, 4, 6])
@pytest.mark.parametrize("length", [1, 8, 9, 50])
def test_tiles_equal_the_definition(length, pairs, monkeypatch):
    """Tiles of some of the six pairs, and of one to six chunks."""
    monkeypatch.setattr(op, "CHUNK", 8)
    monkeypatch.setattr(op, "TILE", TileBudget(8 * feature_count(4) * pairs, 1))
    leaves = draw(length)
    assert_same(taylor_attention(*leaves), definition(*leaves), leaves)


def test_features_exist_for_one_tile_at_a_time(monkeypatch):
    """Forward and backward never hold the features of more tokens than a tile has."""
    monkeypatch.setattr(op, "TILE", TileBudget(1, 1))
    sizes, features = [], op._features

    def spied(x, **options):
        sizes.append(x.shape[:-2].numel())
        return features(x, **options)

    monkeypatch.setattr(op, "_features", spied)
    y, state = taylor_attention(*draw(300))
    (y.sum() + state.sum()).backward()
    assert sizes == [1] * (6 * 5 * 2 * 2)  # pairs, chunks, queries and keys, forward and backward


def test_16_bits_are_summed_in_float32():
    leaves = draw(100)
    with torch.autocast("cpu", torch.bfloat16):
        y, state = taylor_attention(*(x.bfloat16() for x in leaves))
    exact, _ = definition(*leaves)
    assert y.dtype is torch.bfloat16 and state.dtype is torch.float32
    assert (y.double() - exact).abs().max() <= 0.02 * exact.abs().max()
