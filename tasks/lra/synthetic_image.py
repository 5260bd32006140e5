"""Generated pictures in place of CIFAR-10: one of ten shapes, of any position, size and colour, under noise.

disc, ring, square, frame, triangle, diamond, plus, cross, horizontal stripes, vertical stripes: all are equally
frequent, and each is 11 to 25 pixels high and, independently, as many wide. `noise` is the largest change of a colour
value, up or down, at each pixel (0: none; 255 leaves little). More noise requires more distant pixels to tell the
shape. A `silhouette` is white on black, without colour or noise: a recipe that masks black pixels (X4) sees the shape
alone, and few levels have to be learned.

A picture is later averaged over squares of `block` x `block` pixels. What it then shows of its shape, moved to the
corner, is its form. No form occurs in two splits (tasks/synthetic.py): a picture that has a form of another split is
drawn again.
"""

import numpy as np

from tasks.checks import Progress, no_progress
from tasks.lra import synthetic
from tasks.lra.synthetic import RandomStream

VERSION = 2  # part of the cache key: raise it when the same seed gives other examples
SIDE = 32
CLASSES = 10
BLOCK = 1000  # images drawn at once
CONTRAST = 64  # least difference in level of shape and ground
WHITE = 255
TINT = 24  # largest difference of a colour from its level, alike for both


def check(noise: int, silhouette: bool = False, block: int = 1) -> None:
    """Raises ValueError for undefined noise, or for squares that no picture is cut into."""
    if not 0 <= noise <= 255:
        raise ValueError(f"noise={noise} is not between 0 and 255")
    if block < 1 or SIDE % block:
        raise ValueError(f"block={block} does not divide {SIDE}")


def generate(
    count: int, *, seed: tuple[int, ...], noise: int, silhouette: bool = False, block: int = 1, progress: Progress
) -> tuple[np.ndarray, np.ndarray]:
    """Colours (count, SIDE, SIDE, 3) uint8 and classes (count,) uint8, of the split that the seed ends with."""
    check(noise, silhouette, block)
    colours, labels = np.empty((count, SIDE, SIDE, 3), np.uint8), np.empty(count, np.uint8)
    drawn = 0
    for start in range(0, count, BLOCK):
        part = slice(start, min(start + BLOCK, count))
        random, grain = RandomStream(*seed, start), RandomStream(*seed, start, 1)
        labels[part] = random.balanced_classes(CLASSES, part.stop - start)

        def draw(rejected: np.ndarray, part: slice = part, streams: tuple = (random, grain)) -> list[bytes]:
            colours[part][rejected], inside = _pictures(*streams, labels[part][rejected], noise, silhouette)
            return forms(inside, block)

        drawn += synthetic.rejecting(part.stop - start, seed[-1], draw, "generating images", no_progress)
        progress(f"generating images, {drawn:,} drawn", part.stop, count)
    return colours, labels


def forms(inside: np.ndarray, block: int) -> list[bytes]:
    """What pictures show of their shapes, bool (n, SIDE, SIDE), wherever it stands: moved to the corner."""
    small = SIDE // block
    covered = inside.reshape(len(inside), small, block, small, block).sum((2, 4))
    return [corner(picture) for picture in covered]


def corner(picture: np.ndarray) -> bytes:
    """A picture (H, W) from its first to its last row and column that is not 0 throughout, and its height and width."""
    rows, columns = (np.flatnonzero(picture.any(axis)) for axis in (1, 0))
    if not len(rows):
        return b""
    cut = picture[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return bytes(cut.shape) + np.ascontiguousarray(cut).tobytes()


def _pictures(
    random: RandomStream, grain: RandomStream, label: np.ndarray, noise: int, silhouette: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Pictures (n, SIDE, SIDE, 3) of these classes, and where their shapes are, bool (n, SIDE, SIDE).

    Noise has a stream of its own, so that silhouettes have the same shapes.
    """
    count = len(label)
    height, width = 5 + random.integers(8, (2, count))  # half of the sides of the box around the shape
    row, column = (radius + random.integers(SIDE - 2 * radius, count) for radius in (height, width))
    ground = random.integers(256, count)
    # CONTRAST or more away, on either side of the circle of the 256 levels
    shape = (ground + CONTRAST + random.integers(257 - 2 * CONTRAST, count)) % 256
    tint = random.integers(2 * TINT + 1, (count, 1, 1, 3)) - TINT
    grid = np.arange(SIDE)
    y, x = grid[:, None] - row[:, None, None], grid - column[:, None, None]  # (count, SIDE, 1), (count, 1, SIDE)
    shapes = masks(y, x, height[:, None, None], width[:, None, None])
    inside = shapes[label, np.arange(count)]  # (count, SIDE, SIDE)
    if silhouette:
        return np.where(inside[..., None], [WHITE] * 3, 0).astype(np.uint8), inside
    levels = np.where(inside, shape[:, None, None], ground[:, None, None])
    colours = levels[..., None] + tint + grain.integers(2 * noise + 1, (count, SIDE, SIDE, 3)) - noise
    return colours.clip(0, 255).astype(np.uint8), inside


def masks(y: np.ndarray, x: np.ndarray, h: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Where each shape of half height h and half width w covers a point (y, x) from its centre: bool (CLASSES, ...).

    In integers: coordinates of a shape of another height than width are scaled by the other side.
    """
    y, x, h, w = np.broadcast_arrays(y, x, h, w)
    high, wide, line = abs(y), abs(x), np.minimum(h, w) // 4 + 1
    box = (high <= h) & (wide <= w)
    scaled_y, scaled_x, largest = high * w, wide * h, np.maximum(h, w)
    disc = scaled_y**2 + scaled_x**2 <= (h * w) ** 2
    hole_h, hole_w = h - line, w - line
    return np.stack(
        [
            disc,
            disc & ((high * hole_w) ** 2 + (wide * hole_h) ** 2 >= (hole_h * hole_w) ** 2),
            box,
            box & ((high > hole_h) | (wide > hole_w)),
            box & (2 * scaled_x <= (y + h) * w),
            scaled_y + scaled_x <= h * w,
            box & ((high < line) | (wide < line)),
            box & (abs(scaled_y - scaled_x) < line * largest),
            box & ((y + h) // line % 2 == 0),
            box & ((x + w) // line % 2 == 0),
        ]
    )
