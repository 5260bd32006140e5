"""Generated shapes: uniform by area, in the unit cube, seen from one side; a function of the seed and number alone."""

import numpy as np
import pytest
from scipy.stats import kstest

from tasks.completion import synthetic_shapes as shapes

SMALL = {"input_points": 64, "output_points": 96, "views": 3}


def made(count=16, seed=(0, 0), **changes):
    return shapes.generate(count, seed=seed, **{**SMALL, **changes})


def draws(count, points=20_000, seed=0):
    random = np.random.Generator(np.random.PCG64(seed))
    return random, random.random((count, points, 5))


def halves(random, count, width=()):
    return random.uniform(0.3, 1.0, (count, *width))


def volumes(name, sizes):
    if name == "sphere":
        return 4 / 3 * np.pi * sizes[0] ** 3
    if name == "box":
        return 8 * sizes[0].prod(1)
    if name == "cylinder":
        return 2 * np.pi * sizes[0] ** 2 * sizes[1]
    if name == "cone":
        return 2 / 3 * np.pi * sizes[0] ** 2 * sizes[1]
    return 2 * np.pi**2 * sizes[0] * sizes[1] ** 2


@pytest.mark.parametrize("name", ["sphere", "box", "cylinder", "cone", "torus"])
def test_points_are_uniform_by_area_with_outward_normals(name):
    """Gauss: the mean over the surface of x_i n_j is V / A where i = j, else 0; and that of n is 0."""
    random, u = draws(3)
    sizes = {"sphere": [()], "box": [(3,)]}.get(name, [(), ()])
    sizes = [halves(random, 3, width) for width in sizes]
    if name == "torus":
        sizes[1] = sizes[0] * random.uniform(0.2, 0.9, 3)
    area, points, normals = getattr(shapes, name)(*sizes, u)
    assert np.linalg.norm(normals, axis=-1) == pytest.approx(1, abs=1e-12)
    moments = np.einsum("spi,spj->sij", points, normals) / points.shape[1]
    expected = (volumes(name, sizes) / area)[:, None, None] * np.eye(3)
    assert abs(moments - expected).max() < 0.02
    assert abs(normals.mean(1)).max() < 0.02


def test_the_side_and_the_ends_have_points_as_their_areas():
    _, u = draws(1, 40_000)
    unit = np.array([1.0])
    _, points, normals = shapes.cylinder(unit, unit, u)
    ends = abs(normals[0, :, 2]) == 1
    assert ends.mean() == pytest.approx(1 / 3, abs=0.01)  # 2 pi of 2 pi + 4 pi
    assert kstest(np.hypot(*points[0, ends, :2].T) ** 2, "uniform").pvalue > 1e-3
    assert kstest(points[0, ~ends, 2], "uniform", (-1, 2)).pvalue > 1e-3
    _, points, normals = shapes.cone(unit, unit, u)
    base = normals[0, :, 2] == -1
    assert base.mean() == pytest.approx(1 / (1 + 5**0.5), abs=0.01)
    from_apex = (1 - points[0, ~base, 2]) / 2
    assert kstest(from_apex**2, "uniform").pvalue > 1e-3
    assert np.hypot(*points[0, ~base, :2].T) == pytest.approx(from_apex)


@pytest.mark.parametrize("name", shapes.CATEGORIES[5:])
def test_a_composite_is_closed_and_has_points_as_its_areas(name):
    random, u = draws(4)
    size = random.random((4, shapes.SIZES))
    area, points, normals = shapes.MAKERS[name](size, u)
    assert abs(normals.mean(1)).max() < 0.03
    parts = {
        "cone_on_box": lambda: (0.4 + 0.6 * size[:, 2], shapes.box(0.4 + 0.6 * size[:, :3], u)[0]),
        "sphere_on_cylinder": lambda: (
            0.6 + 0.4 * size[:, 1],
            shapes.cylinder(0.2 + 0.2 * size[:, 0], 0.6 + 0.4 * size[:, 1], u)[0],
        ),
    }
    if name in parts:
        top, below = parts[name]()
        over = points[..., 2] - top[:, None]
        of_first = (over < -1e-9) | ((over < 1e-9) & (normals[..., 2] > -0.5))  # where they touch, they have both faces
        assert of_first.mean(1) == pytest.approx(below / area, abs=0.02)


@pytest.mark.parametrize("asymmetry", [0.1, 0.4, 0.9])
def test_normals_of_lopsided_shapes_stay_normal(asymmetry):
    """A small step along the surface is at right angles to the normal, before and after."""
    random, u = draws(2, 500)
    for name in ("_torus", "_sphere_on_cylinder", "_cone"):
        _, points, normals = shapes.MAKERS[name[1:]](random.random((2, shapes.SIZES)), u)
        along = np.cross(normals, random.standard_normal(normals.shape))
        both = np.concatenate([points, points + 1e-7 * along], 1)  # in one call, as the reach along z counts
        moved, turned = shapes.lopsided(both, np.concatenate([normals, normals], 1), asymmetry)
        step = (moved[:, 500:] - moved[:, :500]) / 1e-7
        assert np.linalg.norm(turned, axis=-1) == pytest.approx(1)
        assert abs((step * turned[:, :500]).sum(-1)).max() < 1e-4 * np.linalg.norm(step, axis=-1).max()


def test_only_asymmetry_makes_shapes_lopsided():
    """How far from its reflection at the middle a box is: the longest way between the nearest points of both."""

    def lopsided(asymmetry):
        shape_set = made(32, output_points=600, asymmetry=asymmetry)
        box = shape_set.complete[shape_set.labels == shapes.CATEGORIES.index("box")]
        squares = ((box[:, :, None] + box[:, None]) ** 2).sum(-1)  # -(-p) = p
        return np.sqrt(squares.min(1)).max(1)

    assert lopsided(0.0).max() < 0.15 < lopsided(0.4).min()
    plain, same, other = made(), made(asymmetry=0.0), made(asymmetry=0.4)
    assert np.array_equal(plain.complete, same.complete) and np.array_equal(plain.directions, other.directions)
    for wrong in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="asymmetry"):
            made(asymmetry=wrong)


def test_shapes_fill_the_unit_cube_about_its_centre():
    shape_set = made(80, asymmetry=0.3)
    whole = np.concatenate([shape_set.complete, shape_set.pool], 1)
    width = (whole.max(1) - whole.min(1)).max(1)
    assert abs(whole).max() <= 0.5
    assert width.min() >= shapes.LEAST_WIDTH - 1e-4 and width.max() <= 1 + 1e-4 and np.ptp(width) > 0.3
    assert abs(whole.max(1) + whole.min(1)).max() < 1e-4
    assert shape_set.labels.tolist() == [i % 8 for i in range(80)]


def test_a_view_is_the_half_that_faces_it():
    shape_set = made(160, input_points=256, views=4)
    shares = np.array([[len(shape_set.seen(shape, view)) / 768 for view in range(4)] for shape in range(160)])
    assert shares.mean() == pytest.approx(0.5, abs=0.01)
    symmetric = np.isin(
        shape_set.labels, [shapes.CATEGORIES.index(name) for name in ("sphere", "box", "cylinder", "torus")]
    )
    assert abs(shares[symmetric] - 0.5).max() < 0.09
    assert shares.min() > 0.1
    for shape in range(0, 160, 8):  # spheres: what is seen is above the plane through the middle
        above = shape_set.seen(shape, 0) @ shape_set.directions[shape, 0]
        assert above.min() > -1e-2


def test_a_view_is_never_empty():
    shape_set = made(400, input_points=1, views=2)
    sizes = [len(shape_set.seen(shape, view)) for shape in range(400) for view in range(2)]
    assert min(sizes) == 1 and max(sizes) == shapes.POOL


def test_views_and_poses_differ():
    shape_set = made(16)
    assert len({direction.tobytes() for directions in shape_set.directions for direction in directions}) == 16 * 3
    assert np.linalg.norm(shape_set.directions, axis=-1) == pytest.approx(1, abs=1e-6)
    turns = shapes.rotations(np.random.Generator(np.random.PCG64(1)).normal(size=(4000, 4)))
    assert turns @ turns.swapaxes(1, 2) == pytest.approx(np.broadcast_to(np.eye(3), turns.shape), abs=1e-12)
    assert np.linalg.det(turns) == pytest.approx(1)
    for axis in range(3):  # a turned axis is anywhere on the sphere
        assert kstest(turns[:, axis, 2], "uniform", (-1, 2)).pvalue > 1e-3


def test_a_shape_is_a_function_of_seed_and_number():
    few, many = made(9), made(40)
    for array, longer in zip(few, many, strict=True):
        assert (array == longer[:9]).all()
    assert (made(3, seed=(1, 0)).complete != few.complete[:3]).any(axis=(1, 2)).all()
    assert (made(3, seed=(0, 1)).complete != few.complete[:3]).any(axis=(1, 2)).all()
    assert (few.complete * 2**16 % 1 == 0).all()


def test_chunks_do_not_show(monkeypatch):
    whole = made(40)
    monkeypatch.setattr(shapes, "CHUNK", 1)
    for array, chunked in zip(whole, made(40), strict=True):
        assert (array == chunked).all()
