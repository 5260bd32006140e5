"""Labels beside the points of a panel, where they cover no other label, no point and not the frame.

Lengths are in points (1/72 inch): labels are at the same place in PNG and PDF.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from harness.report.plots.style import Axes

DIRECTIONS = [math.tau * turn / 24 for turn in range(24)]
GAPS = (2.0, 6.0, 11.0, 17.0, 24.0, 32.0, 42.0)  # between a disc and its label
SWEEPS = 4
PER_POINT = 0.3  # cost of a label's distance
FREE = 18  # a position that costs more covers something or is ambiguous
Circle = tuple[float, float, float]  # x, y, radius


class Disc(NamedTuple):
    """A point of a panel. `x`, `y`: in its units; `radius`: in points; `label`: empty for none.

    `is_optional`: without a label where it would cover something.
    """

    x: float
    y: float
    radius: float
    label: str
    is_bold: bool = False
    is_optional: bool = False
    colour: str = "0.15"


def annotate(axis: Axes, discs: Sequence[Disc]) -> None:
    """Each label as near to its disc as possible without covering another label, a disc or the frame.

    The layout of the figure is final before this is called.
    """
    from matplotlib.patheffects import withStroke

    points = 72 / axis.figure.dpi
    named, others = ([disc for disc in discs if bool(disc.label) is is_named] for is_named in (True, False))
    named.sort(key=lambda disc: disc.is_optional)
    frame = Box(*(side * points for side in axis.get_window_extent().extents))
    look = {"textcoords": "offset points", "ha": "center", "va": "center", "fontsize": 7, "annotation_clip": False}
    look["path_effects"] = [withStroke(linewidth=1.5, foreground="white")]
    texts = []
    for disc in named:
        arrow = {"arrowstyle": "-", "linewidth": 0.5, "color": "0.4", "shrinkA": 0, "shrinkB": disc.radius}
        style_of_disc = {"arrowprops": arrow, "fontweight": "bold" if disc.is_bold else "normal", "color": disc.colour}
        texts.append(axis.annotate(disc.label, (disc.x, disc.y), (0, 0), **look, **style_of_disc))
    extents = [text.get_window_extent() for text in texts]
    sizes = [(extent.width * points, extent.height * points) for extent in extents]
    circles, free = (
        [(*axis.transData.transform((disc.x, disc.y)) * points, disc.radius) for disc in part]
        for part in (named, others)
    )
    offsets = place_labels(circles, sizes, frame, free, sum(not disc.is_optional for disc in named))
    for text, offset in zip(texts, offsets, strict=True):
        if offset is None:
            text.remove()
        else:
            text.set_position(offset)


class Box(NamedTuple):
    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: "Box") -> bool:
        """Whether two boxes are less than a point apart."""
        apart = max(self.left - other.right, other.left - self.right)
        return max(apart, self.bottom - other.top, other.bottom - self.top) < 1

    def distance(self, x: float, y: float) -> float:
        """From a point; zero inside."""
        return math.hypot(max(self.left - x, 0, x - self.right), max(self.bottom - y, 0, y - self.top))


def place_labels(
    discs: Sequence[Circle],
    sizes: Sequence[tuple[float, float]],
    frame: Box,
    others: Sequence[Circle] = (),
    needed: int | None = None,
) -> list[tuple[float, float] | None]:
    """Offset of each label's centre from the centre of its disc. `sizes`: width, height of the labels. `others`: discs
    without a label. `needed`: how many labels, the first ones, have a place in any case; another is None where it would
    cover something.

    Each label in turn takes the cheapest position around its disc, given the others; this is repeated a few times.
    """
    boxes: dict[int, Box] = {}
    needed = len(discs) if needed is None else needed

    def place(i: int) -> float:
        taken = [box for j, box in boxes.items() if j != i]
        near = [*others, *(other for j, other in enumerate(discs) if j != i)]
        least = math.inf
        for gap in GAPS:
            if least <= PER_POINT * (discs[i][2] + gap):
                break  # no position further away is cheaper
            for angle in DIRECTIONS:
                box = _label_box(discs[i], sizes[i], gap, angle)
                if (cost := _cost(box, discs[i], near, taken, frame)) < least:
                    least, boxes[i] = cost, box
        return least

    for _ in range(SWEEPS):
        for i in range(needed):
            place(i)
    for i in range(needed, len(discs)):
        if place(i) > FREE:
            del boxes[i]
    centres = {i: ((box.left + box.right) / 2, (box.bottom + box.top) / 2) for i, box in boxes.items()}
    return [(centres[i][0] - x, centres[i][1] - y) if i in centres else None for i, (x, y, _) in enumerate(discs)]


def _label_box(disc: Circle, size: tuple[float, float], gap: float, angle: float) -> Box:
    """A label whose edge is `gap` away from the disc, in the direction `angle`."""
    x, y = math.cos(angle), math.sin(angle)
    half = min(size[0] / 2 / abs(x) if x else math.inf, size[1] / 2 / abs(y) if y else math.inf)
    x, y = disc[0] + (disc[2] + gap + half) * x, disc[1] + (disc[2] + gap + half) * y
    return Box(x - size[0] / 2, y - size[1] / 2, x + size[0] / 2, y + size[1] / 2)


def _cost(box: Box, disc: Circle, near: Sequence[Circle], taken: Sequence[Box], frame: Box) -> float:
    """Of a position: its distance in points, and penalties for what it covers, crosses or cuts off."""
    x, y = disc[:2]
    to_x, to_y = (box.left + box.right) / 2 - x, (box.bottom + box.top) / 2 - y
    outside = box.left < frame[0] or box.bottom < frame[1] or box.right > frame[2] or box.top > frame[3]
    cost = PER_POINT * math.hypot(to_x, to_y) + 1000 * outside + 100 * sum(box.meets(other) for other in taken)
    line = [(x + to_x * step / 6, y + to_y * step / 6) for step in range(7)]
    cost += 60 * sum(box.distance(*other[:2]) < other[2] + 1 for other in (disc, *near))
    cost += 40 * sum(any(other.distance(*point) < 1 for point in line) for other in taken)
    for other_x, other_y, radius in near:
        cost += max(0, 6 - box.distance(other_x, other_y) + radius)  # a label near two bubbles is ambiguous
        cost += 20 * any(math.dist(point, (other_x, other_y)) < radius for point in line)
    return cost
