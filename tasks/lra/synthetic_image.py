"""Generated pictures in place of CIFAR-10: one of ten shapes, of any position, size and colour, under noise.

disc, ring, square, frame, triangle, diamond, plus, cross, horizontal stripes, vertical stripes: all are equally
frequent. `noise` is the largest change of a colour value, up or down, at each pixel (0: none; 255 leaves little). More
noise requires more distant pixels to tell the shape. A `silhouette` is white on black, without colour or noise: a
recipe that masks black pixels (X4) sees the shape alone, and few levels have to be learned.
"""

import numpy as np

from tasks.checks import Progress
from tasks.lra.random_stream import RandomStream

VERSION = 1  # part of the cache key: raise it when the same seed gives other examples
SIDE = 32
CLASSES = 10
BLOCK = 1000  # images drawn at once
CONTRAST = 64  # least difference in level of shape and ground
WHITE = 255
TINT = 24  # largest difference of a colour from its level, alike for both


def check(noise: int, silhouette: bool = False) -> None:
    """Raises ValueError for undefined noise."""
    if not 0 <= noise <= 255:
        raise ValueError(f"noise={noise} is not between 0 and 255")


def generate(
    count: int, *, seed: tuple[int, ...], noise: int, silhouette: bool = False, progress: Progress
) -> tuple[np.ndarray, np.ndarray]:
    """Colours (count, SIDE, SIDE, 3) uint8 and classes (count,) uint8."""
    check(noise)
    colours, labels = np.empty((count, SIDE, SIDE, 3), np.uint8), np.empty(count, np.uint8)
    for start in range(0, count, BLOCK):
        part = slice(start, min(start + BLOCK, count))
        colours[part], labels[part] = _block(RandomStream(*seed, start), part.stop - start, noise, silhouette)
        progress("generating images", part.stop, count)
    return colours, labels


def _block(random: RandomStream, count: int, noise: int, silhouette: bool) -> tuple[np.ndarray, np.ndarray]:
    label = random.balanced_classes(CLASSES, count)
    radius = 5 + random.integers(8, count)  # half of the side of the square around the shape
    row, column = (radius + random.integers(SIDE - 2 * radius, count) for _ in range(2))
    ground = random.integers(256, count)
    # CONTRAST or more away, on either side of the circle of the 256 levels
    shape = (ground + CONTRAST + random.integers(257 - 2 * CONTRAST, count)) % 256
    tint = random.integers(2 * TINT + 1, (count, 1, 1, 3)) - TINT
    grid = np.arange(SIDE)
    y, x = grid[:, None] - row[:, None, None], grid - column[:, None, None]  # (count, SIDE, 1), (count, 1, SIDE)
    inside = masks(y, x, radius[:, None, None])[label, np.arange(count)]  # (count, SIDE, SIDE)
    if silhouette:
        return np.where(inside[..., None], [WHITE] * 3, 0).astype(np.uint8), label.astype(np.uint8)
    levels = np.where(inside, shape[:, None, None], ground[:, None, None])
    colours = levels[..., None] + tint + random.integers(2 * noise + 1, (count, SIDE, SIDE, 3)) - noise
    return colours.clip(0, 255).astype(np.uint8), label.astype(np.uint8)


def masks(y: np.ndarray, x: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Where each shape of half side r covers a point (y, x) from its centre: bool (CLASSES, ...), by class."""
    y, x = np.broadcast_arrays(y, x)
    far, near, round_, line = np.maximum(abs(y), abs(x)), np.minimum(abs(y), abs(x)), y * y + x * x, r // 4 + 1
    square, disc = far <= r, round_ <= r * r
    return np.stack(
        [
            disc,
            disc & (round_ >= (r - line) ** 2),
            square,
            square & (far > r - line),
            square & (2 * abs(x) <= y + r),
            abs(y) + abs(x) <= r,
            square & (near < line),
            square & (far - near < line),
            square & ((y + r) // line % 2 == 0),
            square & ((x + r) // line % 2 == 0),
        ]
    )
