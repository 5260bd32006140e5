"""Generated shapes to complete: five simple surfaces and three composites of two, each in a random pose.

Points are uniform by area; where the two parts of a composite touch, it has the faces of both. From a direction
those points are seen whose normal faces it, half of any closed surface on average. Occlusion of one part by another, as
in a torus or a composite, is left out. A shape is turned at random and scaled so that it is 0.6 to 1 wide
where it is widest and its bounding box is centred at 0, so it lies in [-0.5, 0.5]^3. It is a function of the seed, its
number and the settings alone. Coordinates are multiples of 2^-16, so that the last digit of a machine's sine changes
none.

All of these shapes are symmetric: seen from one side, most of the other side is a reflection of it. `asymmetry` a makes
them lopsided before they are turned: wider towards one end by the factor 1 + a z / h, narrower towards the other one,
and bent sideways by a z^2 / h, where h is how far they reach along z. Points are no longer uniform by area then.

    S shapes, P points, U numbers that a point is made of, V views
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

POOL = 3  # points that views are cut from, per point of a view
SIZES = 4  # random numbers per shape for its proportions
CHUNK = 1 << 19  # points made at once
GRID = 1 << 16
LEAST_WIDTH = 0.6

Surface = tuple[np.ndarray, np.ndarray, np.ndarray]  # area (S,), points (S, P, 3), normals (S, P, 3) of length 1


class GeneratedShapes(NamedTuple):
    """Generated shapes; all but labels float32."""

    complete: np.ndarray  # (S, P, 3)
    pool: np.ndarray  # (S, POOL x input points, 3)
    normals: np.ndarray  # of the pool
    directions: np.ndarray  # (S, V, 3), towards the viewers
    labels: np.ndarray  # (S,) int64, in CATEGORIES

    def seen(self, shape: int, view: int) -> np.ndarray:
        """The points of the pool, (n, 3), that face a view's direction; of a tiny pool at least one."""
        facing = self.normals[shape] @ self.directions[shape, view]
        return self.pool[shape][facing > min(0, facing.max() - 1e-6)]

    @property
    def views(self) -> int:
        return self.directions.shape[1]

    def pair(self, shape: int, view: int) -> tuple[np.ndarray, np.ndarray]:
        return self.seen(shape, view), self.complete[shape]

    def fingerprint(self) -> str:
        digest = hashlib.sha256(self.labels.astype("<i8"))
        for part in (self.complete, self.pool):  # smaller digits differ between machines
            digest.update(part.astype("<f4", copy=False))
        return digest.hexdigest()


def sphere(size: np.ndarray, u: np.ndarray) -> Surface:
    """Radius `size` (S,)."""
    height = 1 - 2 * u[..., 1]
    normals = _around(2 * np.pi * u[..., 2], np.sqrt(1 - height**2), height)
    return 4 * np.pi * size**2, size[:, None, None] * normals, normals


def box(half: np.ndarray, u: np.ndarray) -> Surface:
    """Half of its edges (S, 3)."""
    faces = half.prod(1, keepdims=True) / half  # (S, 3), of those across each axis, up to a factor
    edges = np.cumsum(faces, 1) / faces.sum(1, keepdims=True)
    axis = (u[..., 0, None] >= edges[:, None, :2]).sum(-1)
    across = axis[..., None] == np.arange(3)
    position = 2 * u[..., 1:4] - 1
    sign = np.where(position < 0, -1.0, 1.0)
    return 8 * faces.sum(1), np.where(across, sign, position) * half[:, None], np.where(across, sign, 0.0)


def cylinder(radius: np.ndarray, half: np.ndarray, u: np.ndarray) -> Surface:
    """Radius and half of its height, (S,), along z; with both ends."""
    radius, half = radius[:, None], half[:, None]
    angle = 2 * np.pi * u[..., 1]
    on_side = u[..., 0] * (2 * half + radius) < 2 * half
    end = np.where(u[..., 3] < 0.5, -1.0, 1.0)
    side = _around(angle, radius, (2 * u[..., 2] - 1) * half), _around(angle, 1.0, 0.0)
    ends = _around(angle, radius * np.sqrt(u[..., 2]), end * half), _around(angle, 0.0, end)
    points, normals = (np.where(on_side[..., None], a, b) for a, b in zip(side, ends, strict=True))
    return (2 * np.pi * radius * (2 * half + radius))[:, 0], points, normals


def cone(radius: np.ndarray, half: np.ndarray, u: np.ndarray) -> Surface:
    """Radius of the base and half of the height, (S,), its apex at z = half; with the base."""
    radius, half = radius[:, None], half[:, None]
    slant = np.hypot(radius, 2 * half)
    angle, reach = 2 * np.pi * u[..., 1], np.sqrt(u[..., 2])
    on_side = u[..., 0] * (slant + radius) < slant
    points = _around(angle, radius * reach, np.where(on_side, half - 2 * half * reach, -half))
    side, base = _around(angle, 2 * half / slant, radius / slant), np.array([0.0, 0.0, -1.0])
    return (np.pi * radius * (slant + radius))[:, 0], points, np.where(on_side[..., None], side, base)


def torus(radius: np.ndarray, tube: np.ndarray, u: np.ndarray) -> Surface:
    """Radius of the ring's middle and of its tube, (S,), around z."""
    radius, tube = radius[:, None], tube[:, None]
    inner = 2 * np.pi * u[..., 2]
    # the area at an angle of the tube grows as 1 + e cos: where that refuses one, the opposite one is short of as many
    accepted = 2 * u[..., 3] < 1 + tube / radius * np.cos(inner)
    inner = np.where(accepted, inner, inner + np.pi)
    angle = 2 * np.pi * u[..., 1]
    points = _around(angle, radius + tube * np.cos(inner), tube * np.sin(inner))
    return (4 * np.pi**2 * radius * tube)[:, 0], points, _around(angle, np.cos(inner), np.sin(inner))


def _around(angle: np.ndarray, reach: np.ndarray | float, height: np.ndarray | float) -> np.ndarray:
    """Cylindrical coordinates -> (S, P, 3)."""
    return np.stack(np.broadcast_arrays(np.cos(angle) * reach, np.sin(angle) * reach, height), -1)


def _joined(first: Surface, second: Surface, lift: np.ndarray, u: np.ndarray) -> Surface:
    """Two surfaces, the second one moved by `lift` (S,) along z; `u` chooses by their areas."""
    of_first = (u[..., 4] * (first[0] + second[0])[:, None] < first[0][:, None])[..., None]
    moved = second[1] + lift[:, None, None] * np.array([0.0, 0.0, 1.0])
    return first[0] + second[0], np.where(of_first, first[1], moved), np.where(of_first, first[2], second[2])


def _cone_on_box(s: np.ndarray, u: np.ndarray) -> Surface:
    half, roof = 0.4 + 0.6 * s[:, :3], 0.3 + 0.4 * s[:, 3]
    return _joined(box(half, u), cone(half[:, :2].min(1), roof, u), half[:, 2] + roof, u)


def _sphere_on_cylinder(s: np.ndarray, u: np.ndarray) -> Surface:
    radius, half, ball = 0.2 + 0.2 * s[:, 0], 0.6 + 0.4 * s[:, 1], 0.4 + 0.3 * s[:, 2]
    return _joined(cylinder(radius, half, u), sphere(ball, u), half + ball, u)


def _torus_round_cylinder(s: np.ndarray, u: np.ndarray) -> Surface:
    half, tube = 0.6 + 0.6 * s[:, 1], 0.15 + 0.2 * s[:, 2]
    ring = torus(1 + 0 * half, tube, u)
    return _joined(cylinder(0.2 + 0.3 * s[:, 0], half, u), ring, (s[:, 3] - 0.5) * half, u)


MAKERS: dict[str, Callable[[np.ndarray, np.ndarray], Surface]] = {
    "sphere": lambda s, u: sphere(0.5 + s[:, 0], u),
    "box": lambda s, u: box(0.3 + s[:, :3], u),
    "cylinder": lambda s, u: cylinder(0.3 + 0.5 * s[:, 0], 0.4 + 0.6 * s[:, 1], u),
    "torus": lambda s, u: torus(1 + 0 * s[:, 0], 0.2 + 0.3 * s[:, 0], u),
    "cone": lambda s, u: cone(0.5 + 0.5 * s[:, 0], 0.4 + 0.6 * s[:, 1], u),
    "cone_on_box": _cone_on_box,
    "sphere_on_cylinder": _sphere_on_cylinder,
    "torus_round_cylinder": _torus_round_cylinder,
}
CATEGORIES = tuple(MAKERS)


def memory(count: int, *, input_points: int, output_points: int) -> int:
    """Bytes that this number of shapes takes."""
    return count * 12 * (output_points + 2 * POOL * input_points)


def check(asymmetry: float) -> None:
    """Raises ValueError for an asymmetry that turns a shape inside out."""
    if not 0 <= asymmetry < 1:
        raise ValueError(f"asymmetry={asymmetry} is not between 0 and 1, 1 excluded")


def generate(
    count: int,
    *,
    seed: Sequence[int],
    input_points: int,
    output_points: int,
    views: int,
    asymmetry: float = 0.0,
) -> GeneratedShapes:
    """`count` shapes, of each category in turn."""
    check(asymmetry)
    pool = POOL * input_points
    points = output_points + pool
    made = GeneratedShapes(
        np.empty((count, output_points, 3), np.float32),
        np.empty((count, pool, 3), np.float32),
        np.empty((count, pool, 3), np.float32),
        np.empty((count, views, 3), np.float32),
        np.arange(count) % len(CATEGORIES),
    )
    step = max(1, CHUNK // points)
    for label, maker in enumerate(MAKERS.values()):
        of_label = np.flatnonzero(made.labels == label)
        for part in (of_label[start : start + step] for start in range(0, len(of_label), step)):
            surface, normals, directions = _posed(maker, part, seed, points, views, asymmetry)
            made.complete[part], made.pool[part] = surface[:, :output_points], surface[:, output_points:]
            made.normals[part], made.directions[part] = normals[:, output_points:], directions
    return made


def _posed(
    maker: Callable[[np.ndarray, np.ndarray], Surface],
    part: np.ndarray,
    seed: Sequence[int],
    points: int,
    views: int,
    asymmetry: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points and normals (S, P, 3), and directions (S, V, 3), of the shapes of these numbers, all of one category."""
    u, size, turn = np.empty((len(part), points, 5)), np.empty((len(part), SIZES)), np.empty((len(part), 4))
    width, directions = np.empty((len(part), 1, 1)), np.empty((len(part), views, 3))
    for row, number in enumerate(part.tolist()):
        draw = np.random.Generator(np.random.PCG64([*seed, number]))
        draw.random(out=size[row])
        draw.standard_normal(out=turn[row])
        width[row] = draw.uniform(LEAST_WIDTH, 1)
        draw.standard_normal(out=directions[row])
        draw.random(out=u[row])
    _, cloud, normals = maker(size, u)
    if asymmetry:
        cloud, normals = lopsided(cloud, normals, asymmetry)
    rotation = rotations(turn).swapaxes(1, 2)
    cloud, normals = cloud @ rotation, normals @ rotation
    low, high = cloud.min(1, keepdims=True), cloud.max(1, keepdims=True)
    cloud = (cloud - (low + high) / 2) * (width / (high - low).max(2, keepdims=True))
    return np.round(cloud * GRID) / GRID, normals, directions / np.linalg.norm(directions, axis=-1, keepdims=True)


def lopsided(points: np.ndarray, normals: np.ndarray, asymmetry: float) -> tuple[np.ndarray, np.ndarray]:
    """Points and normals (S, P, 3), wider towards one end along z and bent towards x.

    (x, y, z) -> (s x + a z^2 / h, s y, z), s = 1 + a z / h. Normals follow the transposed inverse of its Jacobian,
    whose rows are (s, 0, a x / h + 2 a z / h), (0, s, a y / h) and (0, 0, 1).
    """
    x, y, z = np.moveaxis(points, -1, 0)  # (S, P)
    slope = asymmetry / np.abs(z).max(1, keepdims=True)
    scale = 1 + slope * z
    moved = np.stack([scale * x + slope * z**2, scale * y, z], -1)
    nx, ny, nz = np.moveaxis(normals, -1, 0)
    nx, ny = nx / scale, ny / scale
    turned = np.stack([nx, ny, nz - slope * ((x + 2 * z) * nx + y * ny)], -1)
    return moved, turned / np.linalg.norm(turned, axis=-1, keepdims=True)


def rotations(quaternions: np.ndarray) -> np.ndarray:
    """Rotations (S, 3, 3) of quaternions (S, 4) of any length: uniform if these are normally distributed."""
    return Rotation.from_quat(quaternions[:, [1, 2, 3, 0]]).as_matrix()  # of scipy, whose scalar comes last
