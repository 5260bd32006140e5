"""Labels beside the points of a panel, without overlapping labels, points or the frame.

adjustText is not used: it pushes labels apart but leaves none out where there is no room, as `is_optional` asks.
Lengths are in points (1/72 inch): labels are at the same place in PNG and PDF.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from harness.report.plots.style import FAINT, INK, Axes, Figure

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
    colour: str = INK


def annotate(figure: Figure, panels: Sequence[tuple[Axes, Sequence[Disc]]]) -> None:
    """Each label as near to its disc as possible without covering another label, a disc or the frame.

    Labels are placed in the final layout, so that the figure has no layout engine from then on.
    """
    if any(disc.label for _, discs in panels for disc in discs):
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    for axis, discs in panels:
        _annotate(axis, sorted(discs, key=lambda disc: (not disc.label, disc.is_optional)))


def _annotate(axis: Axes, discs: Sequence[Disc]) -> None:
    """`discs`: those that need a label, those that may have one, those without."""
    points = 72 / axis.figure.dpi
    frame = Box(*(side * points for side in axis.get_window_extent().extents))
    look = {"textcoords": "offset points", "ha": "center", "va": "center", "fontsize": 7, "annotation_clip": False}
    texts = []
    for disc in (disc for disc in discs if disc.label):
        arrow = {"arrowstyle": "-", "linewidth": 0.5, "color": FAINT, "shrinkA": 0, "shrinkB": disc.radius}
        style_of_disc = {"arrowprops": arrow, "fontweight": "bold" if disc.is_bold else "normal", "color": disc.colour}
        texts.append(axis.annotate(disc.label, (disc.x, disc.y), (0, 0), **look, **style_of_disc))
    extents = [text.get_window_extent() for text in texts]
    sizes = [(extent.width * points, extent.height * points) for extent in extents]
    circles = [(*axis.transData.transform((disc.x, disc.y)) * points, disc.radius) for disc in discs]
    needed = sum(bool(disc.label) and not disc.is_optional for disc in discs)
    offsets = place_labels(circles[: len(texts)], sizes, frame, circles[len(texts) :], needed)
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
    boxes: dict[int, np.ndarray] = {}
    needed = len(discs) if needed is None else needed

    def place(i: int) -> float:
        taken = np.array([box for j, box in boxes.items() if j != i]).reshape(-1, 4)
        near = np.array([*others, *(other for j, other in enumerate(discs) if j != i)]).reshape(-1, 3)
        least = math.inf
        for gap in GAPS:
            if least <= PER_POINT * (discs[i][2] + gap):
                break  # no position further away is cheaper
            around = np.array([_label_box(discs[i], sizes[i], gap, angle) for angle in DIRECTIONS])
            costs = _costs(around, np.array(discs[i]), near, taken, frame)
            if costs.min() < least:
                least, boxes[i] = costs.min(), around[costs.argmin()]
        return least

    for _ in range(SWEEPS):
        for i in range(needed):
            place(i)
    for i in range(needed, len(discs)):
        if place(i) > FREE:
            del boxes[i]
    centres = {i: ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2) for i, box in boxes.items()}
    return [(centres[i][0] - x, centres[i][1] - y) if i in centres else None for i, (x, y, _) in enumerate(discs)]


def _label_box(disc: Circle, size: tuple[float, float], gap: float, angle: float) -> Box:
    """A label whose edge is `gap` away from the disc, in the direction `angle`."""
    x, y = math.cos(angle), math.sin(angle)
    half = min(size[0] / 2 / abs(x) if x else math.inf, size[1] / 2 / abs(y) if y else math.inf)
    x, y = disc[0] + (disc[2] + gap + half) * x, disc[1] + (disc[2] + gap + half) * y
    return Box(x - size[0] / 2, y - size[1] / 2, x + size[0] / 2, y + size[1] / 2)


def _costs(boxes: np.ndarray, disc: np.ndarray, near: np.ndarray, taken: np.ndarray, frame: Box) -> np.ndarray:
    """Of each position (P, 4): its distance in points, and penalties for what it covers, crosses or cuts off.

    `disc` (3,): the label's own; `near` (D, 3): all others; `taken` (T, 4): the boxes of the other labels.
    """
    to_label = (boxes[:, :2] + boxes[:, 2:]) / 2 - disc[:2]
    line = disc[:2] + to_label[:, None] * np.linspace(0, 1, 7)[:, None]  # (P, 7, 2), from the disc to the label
    outside = (boxes[:, :2] < frame[:2]).any(1) | (boxes[:, 2:] > frame[2:]).any(1)
    apart = np.maximum(boxes[:, None, :2] - taken[:, 2:], taken[:, :2] - boxes[:, None, 2:])  # (P, T, 2)
    to_near = _distances(boxes, near[:, :2])  # (P, D)
    crossed = np.linalg.norm(line[:, :, None] - near[:, :2], axis=-1) < near[:, 2]  # (P, 7, D)
    cost = PER_POINT * np.hypot(*to_label.T) + 1000 * outside
    cost += 100 * (apart.max(-1) < 1).sum(1)  # less than a point apart
    cost += 60 * ((to_near < near[:, 2] + 1).sum(1) + (_distances(boxes, disc[None, :2]) < disc[2] + 1)[:, 0])
    cost += 40 * (_distances(taken, line.reshape(-1, 2)).reshape(-1, *line.shape[:2]) < 1).any(2).sum(0)
    cost += np.maximum(0, 6 - to_near + near[:, 2]).sum(1)  # a label near two discs is ambiguous
    return cost + 20 * crossed.any(1).sum(1)


def _distances(boxes: np.ndarray, points: np.ndarray) -> np.ndarray:
    """(B, N), of each point (N, 2) from each box (B, 4); zero inside."""
    outside = np.maximum(boxes[:, None, :2] - points, points - boxes[:, None, 2:])
    return np.linalg.norm(np.maximum(outside, 0), axis=-1)
