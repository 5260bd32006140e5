"""Panels of bubbles: speed against accuracy. The width of a bubble is its memory; inside is the marker of its model.

Lengths are in points (1/72 inch): labels and bubbles are the same in PNG and PDF.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.report.plots import style
from harness.report.scores import tradeoff
from harness.report.spec.figure import FigureSpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from harness.report.plots.file import Sources

COLUMNS = 2
LARGEST = 15.0  # radius of the most memory in the figure
MARKER = 4.0  # points, of the model
KEY = (0.1, 0.5, 1.0)  # memory of the bubbles in the legend
EDGE = {"markeredgecolor": "0.2", "markeredgewidth": 0.6}
DIRECTIONS = [math.tau * turn / 24 for turn in range(24)]
GAPS = (2.0, 6.0, 11.0, 17.0, 24.0, 32.0, 42.0)  # between a bubble and its label
SWEEPS = 4
Disc = tuple[float, float, float]  # x, y, radius


def data(figure: FigureSpec, sources: "Sources") -> dict[str, Any]:
    panels = tradeoff.panels(figure, sources.cells, sources.paper)
    for panel in panels:  # labels tell the rows of one model apart
        panel["series"] = [line | {"look": style.look(line["model"], line["role"])} for line in panel["series"]]
    return {"title": figure.title, "panels": panels}


def draw(data: Mapping[str, Any]) -> "Figure":
    """Two panels in a row."""
    panels = data["panels"]
    columns = min(COLUMNS, len(panels))
    rows = [4.0 if any(panel["series"] for panel in row) else 1.8 for row in style.in_rows(panels, columns)]
    figure, axes = style.figure_of(data["title"], (7.5, 0.8 + sum(rows)), rows, columns, len(panels))
    most = max((line["size"][0] for panel in panels for line in panel["series"]), default=1.0)
    for axis, panel in zip(axes, panels, strict=True):
        if panel["series"]:
            _draw_bubbles(axis, panel, LARGEST / most, 58 * COLUMNS // columns)
        else:
            style.empty(axis, panel, 54 * COLUMNS // columns)
    if any(panel["series"] for panel in panels):
        _draw_size_legend(figure, LARGEST / most)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the layout is final before labels are placed
    for axis, panel in zip(axes, panels, strict=True):
        _labels(axis, panel["series"], LARGEST / most)
    return figure


def _draw_bubbles(axis: "Axes", panel: style.Panel, scale: float, width: int) -> None:
    """Small bubbles stand on large ones. Published numbers are pale."""
    axis.set_title(style.wrapped(panel["title"], width))
    for line in sorted(panel["series"], key=lambda line: -line["size"][0]):
        (x,), (y,) = line["x"], line["y"]
        if "low" in line:
            (low,), (high,) = line["low"], line["high"]
            axis.errorbar(x, y, yerr=[[y - low], [high - y]], color=style.FAINT, linewidth=0.7, zorder=1)
        look, alpha = line["look"], 0.4 if panel.get("published") else 0.75
        axis.plot(x, y, "o", color=look["colour"], markersize=2 * scale * line["size"][0], alpha=alpha, **EDGE)
        axis.plot(x, y, **style.marker_style(look, markersize=MARKER, markeredgewidth=0.4, markeredgecolor="white"))
    axis.axvline(1, color="0.7", linewidth=0.8, linestyle="--", zorder=0)
    axis.margins(0.16)
    axis.set(xlabel=f"{panel['x']} →", ylabel=f"{panel['y']} ↑")
    style.draw_notes(axis, panel["notes"], width)


def _draw_size_legend(figure: "Figure", scale: float) -> None:
    from matplotlib.lines import Line2D

    circle = {"linestyle": "", "marker": "o", "color": "white", **EDGE}
    sizes = [Line2D([], [], markersize=2 * scale * size, **circle) for size in KEY]
    names = [f"memory {size:g}×" for size in KEY]
    look = {"frameon": False, "borderpad": 1.5, "handlelength": 4}
    figure.legend(sizes, names, loc="outside lower right", ncols=len(KEY), **look)


def _labels(axis: "Axes", series: Sequence[Mapping[str, Any]], scale: float) -> None:
    """Each label as near to its bubble as possible without covering another label, a bubble or the frame.

    The labels of the paper's own method are bold.
    """
    from matplotlib.patheffects import withStroke

    points = 72 / axis.figure.dpi
    centres = [axis.transData.transform((line["x"][0], line["y"][0])) * points for line in series]
    discs = [(x, y, scale * line["size"][0]) for (x, y), line in zip(centres, series, strict=True)]
    frame = Box(*(side * points for side in axis.get_window_extent().extents))
    style_of_text = {"textcoords": "offset points", "ha": "center", "va": "center", "fontsize": 7}
    style_of_text["path_effects"] = [withStroke(linewidth=1.5, foreground="white")]
    texts = []
    for line, (_, _, radius) in zip(series, discs, strict=True):
        arrow = {"arrowstyle": "-", "linewidth": 0.5, "color": "0.4", "shrinkA": 0, "shrinkB": radius}
        weight = "bold" if line["role"] == "own" else "normal"
        where = (line["x"][0], line["y"][0])
        look = {"arrowprops": arrow, "annotation_clip": False, "fontweight": weight, **style_of_text}
        texts.append(axis.annotate(line["name"], where, (0, 0), **look))
    extents = [text.get_window_extent() for text in texts]
    sizes = [(extent.width * points, extent.height * points) for extent in extents]
    for text, offset in zip(texts, place_labels(discs, sizes, frame), strict=True):
        text.set_position(offset)


class Box(NamedTuple):
    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: "Box") -> bool:
        """Whether two boxes are less than a point apart."""
        return (
            self.left < other.right + 1
            and other.left < self.right + 1
            and self.bottom < other.top + 1
            and other.bottom < self.top + 1
        )

    def distance(self, x: float, y: float) -> float:
        """From a point; zero inside."""
        return math.hypot(max(self.left - x, 0, x - self.right), max(self.bottom - y, 0, y - self.top))


def place_labels(discs: Sequence[Disc], sizes: Sequence[tuple[float, float]], frame: Box) -> list[tuple[float, float]]:
    """Offset of each label's centre from the centre of its disc. `sizes`: width, height of the labels.

    Each label in turn takes the cheapest position around its disc, given the others; this is repeated a few times.
    """
    boxes: dict[int, Box] = {}
    for _ in range(SWEEPS):
        for i, (disc, size) in enumerate(zip(discs, sizes, strict=True)):
            taken = [box for j, box in boxes.items() if j != i]
            near = [other for j, other in enumerate(discs) if j != i]
            candidates = [_label_box(disc, size, gap, angle) for gap, angle in product(GAPS, DIRECTIONS)]
            boxes[i] = min(candidates, key=lambda box: _cost(box, disc, near, taken, frame))
    centres = [((box.left + box.right) / 2, (box.bottom + box.top) / 2) for _, box in sorted(boxes.items())]
    return [(x - disc[0], y - disc[1]) for (x, y), disc in zip(centres, discs, strict=True)]


def _label_box(disc: Disc, size: tuple[float, float], gap: float, angle: float) -> Box:
    """A label whose edge is `gap` away from the disc, in the direction `angle`."""
    x, y = math.cos(angle), math.sin(angle)
    half = min(size[0] / 2 / abs(x) if x else math.inf, size[1] / 2 / abs(y) if y else math.inf)
    x, y = disc[0] + (disc[2] + gap + half) * x, disc[1] + (disc[2] + gap + half) * y
    return Box(x - size[0] / 2, y - size[1] / 2, x + size[0] / 2, y + size[1] / 2)


def _cost(box: Box, disc: Disc, near: Sequence[Disc], taken: Sequence[Box], frame: Box) -> float:
    """Of a position: its distance in points, and penalties for what it covers, crosses or cuts off."""
    x, y = disc[:2]
    to_x, to_y = (box.left + box.right) / 2 - x, (box.bottom + box.top) / 2 - y
    outside = box.left < frame[0] or box.bottom < frame[1] or box.right > frame[2] or box.top > frame[3]
    cost = 0.3 * math.hypot(to_x, to_y) + 1000 * outside + 100 * sum(box.meets(other) for other in taken)
    line = [(x + to_x * step / 6, y + to_y * step / 6) for step in range(7)]
    cost += 60 * sum(box.distance(*other[:2]) < other[2] + 1 for other in (disc, *near))
    cost += 40 * sum(any(other.distance(*point) < 1 for point in line) for other in taken)
    for other_x, other_y, radius in near:
        cost += max(0, 6 - box.distance(other_x, other_y) + radius)  # a label near two bubbles is ambiguous
        cost += 20 * any(math.dist(point, (other_x, other_y)) < radius for point in line)
    return cost
