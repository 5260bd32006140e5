"""Designs of Pathfinder images, and their geometry: what `pathfinder_kernel` looks up in place of drawing.

Orientations are rows of every table: first the 360 degrees that a seed is drawn from, -180 upwards, then the directions
from a pivot to the R pixels of the ring around it. Sprites are drawn and shrunk by Pillow, as the published ones were.

    O orientations (360 + R), R pixels of the ring, S half width of a sprite, C largest distance from an edge
"""

import functools
import hashlib
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

DEGREES = 360
DIGITS = 9  # of displacements and weights
FLOATS = ("dash_thickness", "continuity", "marker_radius", "target_contrast", "distractor_contrast")


@dataclass(frozen=True)
class Design:
    """Contents of the images; the defaults are LRA's Pathfinder-32, hard. Lengths in pixels, snakes' lengths in dashes.

    Raises ValueError, in one line, for a design that cannot be drawn.
    """

    size: int = 32
    contour_length: int = 14
    distractor_length: int = 4
    distractors: int = 5
    seed_distance: int = 7
    dash_length: int = 2
    dash_thickness: float = 0.5
    margins: tuple[int, ...] = (1,)  # one margin is drawn per image
    continuity: float = 1.0
    marker_radius: float = 1.5
    target_contrast: float = 1.5
    distractor_contrast: float = 2.0
    padding: int = 1
    antialias: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "margins", tuple(self.margins))
        minimums = {"contour_length": 2, "distractor_length": 1, "distractors": 0, "seed_distance": 1, "dash_length": 1}
        for name, least in {**minimums, "padding": 1, "antialias": 1, "size": 8}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)} is less than {least}")
        for name in FLOATS:
            object.__setattr__(self, name, float(getattr(self, name)))  # 3 and 3.0 have one cache key
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)} is not positive")
        if not self.margins or min(self.margins) < 1:
            raise ValueError(f"margins={list(self.margins)}: a dash requires a margin of one pixel or more")
        if self.dash_thickness * self.antialias % 1:
            raise ValueError(f"dash_thickness={self.dash_thickness} is no whole number of pixels at {self.antialias}x")
        if 4 * self.seed_distance + self.dash_length > self.size:
            room = f"4 x seed_distance={self.seed_distance} and a dash"
            raise ValueError(f"size={self.size} leaves no room for {room}: the first one lies 2 x that from every edge")


LRA = Design()
PATHX = Design(
    size=128,
    contour_length=14,
    distractor_length=4,
    distractors=8,  # 35 // 4
    seed_distance=20,
    dash_length=5,
    dash_thickness=1.5,
    margins=(2, 3),
    continuity=1.8,
    marker_radius=3,
    target_contrast=0.9,
    distractor_contrast=0.9,
)


class Tables(NamedTuple):
    """What follows from a design and one of its margins; offsets are (row, column) in pixels."""

    line: np.ndarray  # (O, 2S + 1, 2S + 1) uint8: a dash drawn from the middle pixel; from the ring's pixel inwards
    mask: np.ndarray  # (O, 2S + 1, 2S + 1) uint8: the dash and its margin
    tails: np.ndarray  # (360, most) int64: pixels where the first snake can begin, -1 after the last
    kernel: np.ndarray  # (360, most, 2) int64: from a tail to the pixels that must be free
    count: np.ndarray  # (360, 2) int64: how many tails and how many pixels of the kernel; 0 where no seed can be drawn
    second: np.ndarray  # (360, 2) float64: from the first snake's tail to the second's, in each direction
    reach: np.ndarray  # (360, 4) int64: from a seed's tail to its head and to its pivot
    step: np.ndarray  # (O, 2) int64: from a pivot to the next one
    ring: np.ndarray  # (R, 2) int64: from a pivot to the heads it can have
    weight: np.ndarray  # (O, R) float64: of each head after a dash of each orientation
    disc: np.ndarray  # (pixels, 2) int64: the margin around a pixel
    marker: np.ndarray  # (classes, classes, 2C + 1, 2C + 1) uint8: a disc at each distance from the edges


def digest(design: Design) -> str:
    """sha256, hexadecimal, of all tables, mainly of Pillow's sprites."""
    content = hashlib.sha256()
    for margin in design.margins:
        for table in tables(design, margin):
            content.update(np.ascontiguousarray(table))
    return content.hexdigest()


@functools.cache
def tables(design: Design, margin: int) -> Tables:
    length, size = design.dash_length, design.size
    heads = ring(length + margin)  # (R, 2)
    degrees = np.radians(np.arange(DEGREES) - DEGREES // 2)
    inwards = np.arctan2(heads[:, 0], heads[:, 1])  # orientation of a dash whose head is on the ring
    orientations = np.concatenate([degrees, inwards])
    line, mask = zip(*(sprites(design, margin, o) for o in (*degrees, *(inwards + math.pi))), strict=True)
    kernels = [_kernel(sprite, length + margin) for sprite in mask[:DEGREES]]
    kernels = [kernel if _stays_in_sight(kernel) else kernel[:0] for kernel in kernels]
    banded = np.full((size, size), True)
    band = 2 * design.seed_distance
    banded[band : size - band, band : size - band] = False
    tails = [_free(banded, kernel) if len(kernel) else [] for kernel in kernels]
    turn = np.abs(orientations[:, None] - inwards)
    turn = np.minimum(np.minimum(turn, 2 * math.pi - turn) * design.continuity, math.pi / 2)
    head = _up(length, degrees)
    return Tables(
        line=np.stack(line),
        mask=np.stack(mask),
        tails=_rows(tails, ()),
        kernel=_rows(kernels, (2,)),
        count=np.array([(len(pixels), len(kernel)) for pixels, kernel in zip(tails, kernels, strict=True)]),
        second=_displacement(design.seed_distance, np.radians(np.arange(DEGREES))),
        reach=np.concatenate([head, head + _up(-(length + margin), degrees)], axis=1),
        step=_up(length + 2 * margin, orientations),
        ring=heads,
        weight=np.round(np.cos(turn), DIGITS) ** 2,
        disc=disc(margin),
        marker=_markers(design),
    )


def ring(radius: int) -> np.ndarray:
    """Pixels (R, 2) on a circle around (0, 0), in the order of rows: one sample per pixel of arc, rounded down."""
    angles = np.arange(0, 2 * math.pi, 1 / radius)
    return np.unique(np.floor(_displacement(radius, angles)).astype(np.int64), axis=0)


def disc(radius: int) -> np.ndarray:
    """Offsets (n, 2) of the pixels at most `radius` away."""
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1]
    return np.argwhere(y**2 + x**2 <= radius**2) - radius


def sprites(design: Design, margin: int, orientation: float) -> tuple[np.ndarray, np.ndarray]:
    """A dash from the middle pixel, and the dash with its margin: two (2S + 1, 2S + 1) uint8."""
    from PIL import Image, ImageDraw

    scale, reach = design.antialias, design.dash_length + math.ceil(design.dash_thickness) + margin
    middle = reach * scale
    head_y, head_x = (middle + _up(design.dash_length * scale, np.array([orientation])))[0].tolist()
    large = Image.new("L", (2 * middle + 1, 2 * middle + 1))
    width = round(design.dash_thickness * scale)
    ImageDraw.Draw(large).line([(middle, middle), (head_x, head_y)], fill=255, width=width)
    ink = np.asarray(large)
    wide = np.zeros_like(ink)
    for y, x in np.argwhere(ink):
        around = np.clip(disc(margin * scale) + np.array([y, x]), 0, 2 * middle)
        wide[around[:, 0], around[:, 1]] = 255
    return _shrink(ink, 2 * reach + 1), _shrink(wide, 2 * reach + 1)


def _shrink(image: np.ndarray, size: int) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.LANCZOS))


def _markers(design: Design) -> np.ndarray:
    """The disc at every distance up to C from the edges, each in the middle of its sprite (2C + 1, 2C + 1).

    The filter reaches three pixels, and three more see that it is cut off.
    """
    reach = math.ceil(design.marker_radius) + 6
    side, scale = 2 * reach + 1, design.antialias
    out = np.zeros((side, side, side, side), np.uint8)
    grid = np.arange(side * scale)
    for y in range(side):
        for x in range(side):
            far = (grid[:, None] - y * scale) ** 2 + (grid - x * scale) ** 2
            large = np.where(far <= (design.marker_radius * scale) ** 2, np.uint8(255), np.uint8(0))
            around = np.pad(_shrink(large, side), reach)
            out[y, x] = around[y : y + side, x : x + side]
    return out


def _displacement(distance: float, angles: np.ndarray) -> np.ndarray:
    """(rows, columns) (n, 2) of a walk in each direction."""
    return np.round(distance * np.stack([np.sin(angles), np.cos(angles)], axis=1), DIGITS)


def _up(distance: float, angles: np.ndarray) -> np.ndarray:
    return np.ceil(_displacement(distance, angles)).astype(np.int64)


def _kernel(mask: np.ndarray, reach: int) -> np.ndarray:
    """Offsets (n, 2) of the pixels that a seed takes whole, one pixel below and right of where it is drawn.

    The published structuring element has its head there, and is cut off at `reach`.
    """
    offsets = np.argwhere(mask == 255) - len(mask) // 2 + 1
    return offsets[(np.abs(offsets) <= reach).all(1)]


def _free(taken: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Pixels, as row x W + column, around which the kernel finds nothing taken; outside the image nothing is."""
    size, reach = len(taken), np.abs(kernel).max()
    padded = np.pad(taken, reach)
    return np.flatnonzero(~np.any([padded[y : y + size, x : x + size] for y, x in kernel + reach], axis=0))


def _stays_in_sight(kernel: np.ndarray) -> bool:
    """Whether the kernel touches the image from each of its corners, hence from each of its pixels."""
    return all(((kernel * signs >= 0).all(1)).any() for signs in ((1, 1), (1, -1), (-1, 1), (-1, -1)))


def _rows(lists: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """Lists of different lengths as one int64 array, filled up with zeros."""
    out = np.zeros((len(lists), max(1, *map(len, lists)), *shape), np.int64)
    for row, values in zip(out, lists, strict=True):
        row[: len(values)] = values
    return out
