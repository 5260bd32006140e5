"""Point clouds against brute force and scipy's trees."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import peak_allocated_mb
from same import assert_same
from scipy.spatial import cKDTree

from models.ops import point_clouds
from models.ops.point_clouds import farthest_points, nearest, neighbours
from models.ops.tiles import TileBudget


def cloud(points, *, batch=2, seed=0, dtype=torch.float64):
    return torch.randn(batch, points, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def grid(points, *, batch=2, seed=0):
    """Points on a coarse lattice: many duplicates and many equal distances, all exact."""
    return torch.randint(-2, 3, (batch, points, 3), generator=torch.Generator().manual_seed(seed)).double()


def tiles_of(limit, patch):
    """Chunks of at most `limit` distances; None keeps the default."""
    if limit is not None:
        patch.setattr(point_clouds, "TILE", TileBudget(limit, limit))


def all_pairs(a, b):
    return (a[:, :, None] - b[:, None]).square().sum(-1)


@settings(max_examples=40)
@given(
    n=st.integers(0, 40),
    m=st.integers(1, 40),
    batch=st.integers(1, 3),
    limit=st.sampled_from([1, 7, 100, None]),
    make=st.sampled_from([cloud, grid]),
)
def test_nearest_is_the_first_of_the_closest(n, m, batch, limit, make):
    a, b = make(n, batch=batch, seed=1), make(m, batch=batch, seed=2)
    with pytest.MonkeyPatch.context() as patch:
        tiles_of(limit, patch)
        distance, index = nearest(a, b)
    expected = all_pairs(a, b).min(-1)
    torch.testing.assert_close(distance, expected.values, atol=1e-14, rtol=0)
    first = (all_pairs(a, b) == expected.values[..., None]).int().argmax(-1)
    assert torch.equal(index, first)


def test_nearest_far_from_the_origin():
    """Products of coordinates of 1e3 in float32 have errors of 0.1, more than the distances of these points."""
    for dtype in (torch.float32, torch.bfloat16):
        a, b = ((1000 + cloud(200, seed=seed, dtype=torch.float32) / 10).to(dtype) for seed in (0, 1))
        distance, index = nearest(a, b)
        exact, where = all_pairs(a.double(), b.double()).min(-1)
        assert distance.dtype is torch.float32
        torch.testing.assert_close(distance.double(), exact, atol=0, rtol=1e-6)
        assert torch.equal(index, where) or dtype is torch.bfloat16  # where many distances are equal


@pytest.mark.parametrize("limit", [1, None])
def test_gradients_of_nearest(limit, monkeypatch):
    tiles_of(limit, monkeypatch)
    a, b = cloud(7).requires_grad_(), cloud(5, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: nearest(a, b)[0], (a, b))
    assert_same(nearest(a, b)[0].sqrt(), all_pairs(a, b).amin(-1).sqrt(), (a, b))


def test_memory_is_not_that_of_all_pairs():
    """All pairs of 4,096 points take 64 MiB."""
    a, b = (cloud(4096, batch=1, seed=seed, dtype=torch.float32).requires_grad_() for seed in (0, 1))

    def train() -> None:
        nearest(a, b)[0].sum().backward()
        neighbours(a.detach(), b.detach(), 16)

    train()
    assert peak_allocated_mb(train) < 12


@pytest.mark.parametrize("limit", [1, 100, None])
def test_neighbours_equal_a_tree(limit, monkeypatch):
    tiles_of(limit, monkeypatch)
    queries, points = cloud(30), cloud(40, seed=1)
    ours = neighbours(queries, points, 5)
    for q, p, index in zip(queries, points, ours, strict=True):
        assert index.tolist() == cKDTree(p.numpy()).query(q.numpy(), 5)[1].tolist()


def test_neighbours_among_copies_are_the_same_every_time(monkeypatch):
    points = grid(60)
    ours = neighbours(points, points, 8)
    expected = all_pairs(points, points).sort(-1).values[..., :8]
    assert torch.equal(all_pairs(points, points).gather(2, ours), expected)
    tiles_of(1, monkeypatch)
    assert torch.equal(ours, neighbours(points, points, 8))
    assert all(len(set(row)) == 8 for row in ours.flatten(0, 1).tolist())


@pytest.mark.parametrize("make", [cloud, grid])
def test_farthest_points_one_by_one(make):
    points = make(25)
    for cloud_points, ours in zip(points, farthest_points(points, 25), strict=True):
        chosen = [0]
        for _ in range(24):
            gaps = torch.stack([(cloud_points - cloud_points[c]).square().sum(-1) for c in chosen]).amin(0)
            chosen.append(int((gaps == gaps.max()).int().argmax()))
        assert ours.tolist() == chosen


def test_refusals():
    points = cloud(5)
    with pytest.raises(ValueError, match="nearest point of an empty cloud"):
        nearest(points, points[:, :0])
    with pytest.raises(ValueError, match="6 neighbours in a cloud of 5 points: at most 5"):
        neighbours(points, points, 6)
    with pytest.raises(ValueError, match="6 points from a cloud of 5: at most 5"):
        farthest_points(points, 6)
