"""Panels of bubbles as PNG and PDF: speed against accuracy, the radius is memory, every bubble has a label.

Lengths are in points (1/72 inch): labels and radii are the same in both files.
"""

import hashlib
import json
import math
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.report.plots import drawn
from harness.report.scores.tradeoff import Panel
from harness.report.spec.figure import FigureSpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito: colour-blind readers can distinguish these, and they differ in grey
COLOURS = {"other": "#56B4E9", "reference": "#999999", "own": "#D55E00"}
MEANING = {"other": "other models", "reference": "reference", "own": "the paper's own"}
LARGEST = 15.0  # radius of the most memory in the figure
KEY = (0.1, 0.5, 1.0)  # memory of the bubbles in the legend
DIRECTIONS = [math.tau * turn / 24 for turn in range(24)]
GAPS = (2.0, 6.0, 11.0, 17.0, 24.0, 32.0, 42.0)  # between a bubble and its label
SWEEPS = 4
SUFFIXES = ("png", "pdf")
Box = tuple[float, float, float, float]  # left, bottom, right, top


def digest_of(figure: FigureSpec, panels: Sequence[Panel]) -> str:
    """What these panels show, as 64 hexadecimal digits, which the files hold.

    The other bytes of a file differ between versions of matplotlib.
    """
    content = [figure.title, figure.accuracy, figure.table.unit, figure.reference, *(asdict(panel) for panel in panels)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def draw(figure: FigureSpec, panels: Sequence[Panel], paths: Sequence[Path]) -> None:
    """Draw the panels, two in a row, into files. The same panels give the same bytes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    size = (7.5, 0.8 + (4.0 if any(panel.bubbles for panel in panels) else 1.8) * rows)
    page, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axis in grid.flat[len(panels) :]:
        axis.axis("off")
    scale = LARGEST / max((bubble.memory for panel in panels for bubble in panel.bubbles), default=1.0)
    for axis, panel in zip(grid.flat, panels, strict=False):
        _panel(axis, figure, panel, scale, upcast=2 // columns)
    page.suptitle(figure.title, fontsize=10)
    _legend(page, panels, scale)
    page.draw_without_rendering()
    page.set_layout_engine("none")  # the layout is final before labels are placed
    for axis, panel in zip(grid.flat, panels, strict=False):
        _labels(axis, panel, scale)
    digest = digest_of(figure, panels)
    for path in paths:
        drawn.save(page, path, digest, dpi=200)
    plt.close(page)


def _panel(axis: "Axes", figure: FigureSpec, panel: Panel, scale: float, upcast: int) -> None:
    axis.set_title(wrapped(panel.title, 50 * upcast), fontsize=9)
    if not panel.bubbles:
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_color("0.8")
        text = wrapped("\n".join(panel.lines), 54 * upcast)
        axis.text(0.03, 0.97, text, transform=axis.transAxes, fontsize=7.5, va="top", linespacing=1.4)
        return
    for bubble in sorted(panel.bubbles, key=lambda bubble: -bubble.memory):  # the small ones on top
        where = bubble.speed, bubble.accuracy
        look = {"color": COLOURS[bubble.kind], "markersize": 2 * scale * bubble.memory}
        if bubble.half_width is not None:
            axis.errorbar(*where, yerr=bubble.half_width, color="0.6", linewidth=0.7, capsize=1.5, zorder=1)
        axis.plot(*where, "o", alpha=0.75, markeredgecolor="0.2", markeredgewidth=0.6, **look)
    axis.axvline(1, color="0.7", linewidth=0.8, linestyle="--", zorder=0)
    axis.margins(0.16)
    axis.grid(True, alpha=0.3)
    axis.tick_params(labelsize=8)
    axis.set_xlabel(f"speed relative to {figure.reference} →", fontsize=8)
    axis.set_ylabel(f"{figure.accuracy}, {figure.table.unit} ↑", fontsize=8)
    text = wrapped("\n".join(panel.lines), 62 * upcast)
    axis.text(0, -0.17, text, transform=axis.transAxes, fontsize=6.5, color="0.25", va="top")


def _legend(page: Any, panels: Sequence[Panel], scale: float) -> None:
    from matplotlib.lines import Line2D

    def entry(color: str, size: float) -> Line2D:
        edge = {"markeredgecolor": "0.2", "markeredgewidth": 0.6}
        return Line2D([], [], linestyle="", marker="o", color=color, markersize=size, **edge)

    kinds = {bubble.kind for panel in panels for bubble in panel.bubbles}
    if not kinds:
        return
    look = {"fontsize": 7, "frameon": False}
    shown = [kind for kind in COLOURS if kind in kinds]
    handles = [entry(COLOURS[kind], 6) for kind in shown]
    page.legend(
        handles,
        [MEANING[kind] for kind in shown],
        loc="outside lower left",
        ncols=3,
        borderpad=1.5,
        handlelength=1,
        **look,
    )
    handles = [entry("white", 2 * scale * memory) for memory in KEY]
    names = [f"memory {memory:g}×" for memory in KEY]
    page.legend(handles, names, loc="outside lower right", ncols=3, borderpad=1.5, handlelength=4, **look)


def wrapped(text: str, width: int) -> str:
    """Every line of the text, cut at words to so many characters."""
    lines = text.splitlines()
    return "\n".join(textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False) for line in lines)


def _labels(axis: "Axes", panel: Panel, scale: float) -> None:
    """Each label as near to its bubble as possible without covering another label, a bubble or the frame."""
    from matplotlib.patheffects import withStroke

    points = 72 / axis.figure.dpi
    centres = [axis.transData.transform((c.speed, c.accuracy)) * points for c in panel.bubbles]
    discs = [(x, y, scale * bubble.memory) for (x, y), bubble in zip(centres, panel.bubbles, strict=True)]
    frame = tuple(side * points for side in axis.get_window_extent().extents)
    look = {"textcoords": "offset points", "ha": "center", "va": "center", "fontsize": 7}
    look["path_effects"] = [withStroke(linewidth=1.5, foreground="white")]
    texts = []
    for bubble in panel.bubbles:
        line = {"arrowstyle": "-", "linewidth": 0.5, "color": "0.4", "shrinkA": 0, "shrinkB": scale * bubble.memory}
        where = (bubble.speed, bubble.accuracy)
        texts.append(axis.annotate(bubble.label, where, (0, 0), arrowprops=line, annotation_clip=False, **look))
    sizes = [(e.width * points, e.height * points) for e in (text.get_window_extent() for text in texts)]
    for text, (x, y) in zip(texts, place_labels(discs, sizes, frame), strict=True):
        text.set_position((x, y))


def place_labels(
    discs: Sequence[tuple[float, float, float]], sizes: Sequence[tuple[float, float]], frame: Box
) -> list[tuple[float, float]]:
    """Offset of each label's centre from the centre of its disc.

    `discs`: x, y, radius; `sizes`: width, height of the labels.

    Each label in turn takes the cheapest position around its disc, given the others; this is repeated a few times.
    """
    offsets = [
        [_offset(disc[2], size, *way) for way in product(GAPS, DIRECTIONS)]
        for disc, size in zip(discs, sizes, strict=True)
    ]
    chosen = [each[0] for each in offsets]
    boxes: list[Box | None] = [None] * len(discs)
    for _ in range(SWEEPS):
        for i, disc in enumerate(discs):
            others = [box for j, box in enumerate(boxes) if box and j != i]
            chosen[i] = min(offsets[i], key=lambda to: _cost(to, disc, sizes[i], discs, others, frame))
            boxes[i] = _box(disc, chosen[i], sizes[i])
    return chosen


def _offset(radius: float, size: tuple[float, float], gap: float, angle: float) -> tuple[float, float]:
    """Offset of a label whose edge is `gap` away from the disc, in the direction `angle`."""
    x, y = math.cos(angle), math.sin(angle)
    half = min(size[0] / 2 / abs(x) if x else math.inf, size[1] / 2 / abs(y) if y else math.inf)
    return (radius + gap + half) * x, (radius + gap + half) * y


def _box(disc: tuple[float, float, float], to: tuple[float, float], size: tuple[float, float]) -> Box:
    x, y = disc[0] + to[0], disc[1] + to[1]
    return x - size[0] / 2, y - size[1] / 2, x + size[0] / 2, y + size[1] / 2


def _cost(
    to: tuple[float, float],
    disc: tuple[float, float, float],
    size: tuple[float, float],
    discs: Sequence[tuple[float, float, float]],
    others: Sequence[Box],
    frame: Box,
) -> float:
    """Cost of a position: its distance in points, and penalties for what it covers, crosses or cuts off."""
    left, bottom, right, top = box = _box(disc, to, size)
    cost = 0.3 * math.hypot(*to)
    cost += 1000 * (left < frame[0] or bottom < frame[1] or right > frame[2] or top > frame[3])
    cost += 100 * sum(_meet(box, other) for other in others)
    cost += 60 * sum(_distance(box, x, y) < radius + 1 for x, y, radius in discs)
    way = [(disc[0] + to[0] * step / 6, disc[1] + to[1] * step / 6) for step in range(7)]
    cost += 40 * sum(any(_distance(other, x, y) < 1 for x, y in way) for other in others)
    near = [other for other in discs if other != disc]
    cost += sum(
        max(0, 6 - _distance(box, x, y) + radius) for x, y, radius in near
    )  # a label near two bubbles is ambiguous
    return cost + 20 * sum(any(math.dist((x, y), other[:2]) < other[2] for x, y in way) for other in near)


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] + 1 and other[0] < one[2] + 1 and one[1] < other[3] + 1 and other[1] < one[3] + 1


def _distance(box: Box, x: float, y: float) -> float:
    """Distance from a point to a box; zero inside."""
    return math.hypot(max(box[0] - x, 0, x - box[2]), max(box[1] - y, 0, y - box[3]))
