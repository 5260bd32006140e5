"""A graph in an axis whose unit is an inch: boxes of text, and lines or arrows from border to border."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.report.scores.matrices import Edge, GraphPanel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#FFFFFF", "#F2CF66", "#8CC4EA", "#C9A0C4", "#9AA5B1")  # each dark enough apart from the next in grey
INK, FAINT = "#222222", "#A8A8A8"
FONT = 7.0  # points
LETTER = 0.6 * FONT / 72  # inches, a letter's mean width
BOX = 0.24  # inches, the height of a box
LINE = 0.125  # inches, every further line of its text
LANE = 0.13  # inches between two lines that go around boxes
Lane = tuple[int, int]  # -1, left of all boxes, or 1, right, and a number, 0 next to them


@dataclass(frozen=True)
class Box:
    """In inches, x and y its middle."""

    x: float
    y: float
    width: float
    height: float

    def border(self, towards: "Box") -> tuple[float, float]:
        """Where the line to the middle of another box leaves this one."""
        dx, dy = towards.x - self.x, towards.y - self.y
        reach = min(
            self.width / 2 / abs(dx) if dx else math.inf,
            self.height / 2 / abs(dy) if dy else math.inf,
        )
        return self.x + reach * dx, self.y + reach * dy

    def is_crossed(self, a: "Box", b: "Box") -> bool:
        """Whether the line between two others goes through this one."""
        for step in range(1, 40):
            x, y = a.x + (b.x - a.x) * step / 40, a.y + (b.y - a.y) * step / 40
            if abs(x - self.x) < self.width / 2 and abs(y - self.y) < self.height / 2:
                return True
        return False


def height(panel: GraphPanel) -> float:
    """Inches that a graph takes: by the number of its rows."""
    rows = len({round(node.y, 6) for node in panel.nodes})
    return min(4.2, max(2.3, 0.46 * rows))


def boxes(panel: GraphPanel, width: float, tall: float, lanes: tuple[int, int] = (0, 0)) -> dict[str, Box]:
    """The nodes' boxes in an area of these inches: their places scaled so that every box is inside.

    `lanes`: how many lines go around all boxes on the left and on the right.
    """
    sizes = {}
    for node in panel.nodes:
        lines = node.text.split("\n")
        sizes[node.name] = (max(BOX, LETTER * max(map(len, lines)) + 0.12), BOX + LINE * (len(lines) - 1))
    xs, ys = [node.x for node in panel.nodes], [node.y for node in panel.nodes]
    left = max((w / 2 for node in panel.nodes for w in [sizes[node.name][0]] if node.x == min(xs)), default=0)
    right = max((w / 2 for node in panel.nodes for w in [sizes[node.name][0]] if node.x == max(xs)), default=0)
    left, right = left + LANE * lanes[0], right + LANE * lanes[1]
    room_x, room_y = width - left - right - 0.1, tall - BOX - 0.1
    scale_x = room_x / (max(xs) - min(xs)) if max(xs) > min(xs) else 0
    scale_y = room_y / (max(ys) - min(ys)) if max(ys) > min(ys) else 0
    start_x = left + 0.05 if scale_x else width / 2
    start_y = BOX / 2 + 0.05 if scale_y else tall / 2
    return {
        node.name: Box(
            start_x + (node.x - min(xs)) * scale_x, start_y + (node.y - min(ys)) * scale_y, *sizes[node.name]
        )
        for node in panel.nodes
    }


def layout(panel: GraphPanel, width: float, tall: float) -> tuple[dict[str, Box], dict[tuple[str, str], Lane]]:
    """Boxes of the nodes, and the edges that go around them: (from, to) -> the lane."""
    around = lanes_of(panel, boxes(panel, width, tall))
    lanes = tuple(len({number for side, number in around.values() if side == here}) for here in (-1, 1))
    return boxes(panel, width, tall, lanes), around


def draw(axis: "Axes", panel: GraphPanel, width: float, tall: float) -> None:
    """The graph in an axis of `width` x `tall` inches."""
    from matplotlib.patches import FancyBboxPatch

    placed, around = layout(panel, width, tall)
    for edge in panel.edges:
        if (edge.start, edge.end) in around:
            _around(axis, panel, edge, placed, *around[edge.start, edge.end])
        else:
            _straight(axis, panel, edge, placed)
    for node in panel.nodes:
        box = placed[node.name]
        corner = (box.x - box.width / 2 + 0.04, box.y - box.height / 2 + 0.04)
        axis.add_patch(
            FancyBboxPatch(
                corner,
                box.width - 0.08,
                box.height - 0.08,
                boxstyle="round,pad=0.04,rounding_size=0.05",
                facecolor=COLOURS[node.level],
                edgecolor=INK,
                linewidth=0.8,
                zorder=3,
            )
        )
        axis.text(box.x, box.y, node.text, ha="center", va="center_baseline", fontsize=FONT, color=INK, zorder=4)
    axis.set(xlim=(0, width), ylim=(0, tall))
    axis.axis("off")


def lanes_of(panel: GraphPanel, placed: dict[str, Box]) -> dict[tuple[str, str], Lane]:
    """Edges whose straight line would go through a box. All that leave a node on one side share a lane.

    The side is the one that has fewer boxes.
    """
    found: dict[tuple[str, str], Lane] = {}
    taken: dict[tuple[str, int], int] = {}
    for edge in panel.edges:
        a, b = placed[edge.start], placed[edge.end]
        others = [box for name, box in placed.items() if name not in (edge.start, edge.end)]
        if not any(box.is_crossed(a, b) for box in others):
            continue
        side = _free_side(a, b, others)
        if (edge.start, side) not in taken:
            taken[edge.start, side] = sum(known == side for _, known in taken)
        found[edge.start, edge.end] = side, taken[edge.start, side]
    return found


def _around(axis: "Axes", panel: GraphPanel, edge: Edge, placed: dict[str, Box], side: int, lane: int) -> None:
    """From the side of a box to a lane outside of all boxes, along it, and to the side of the other box."""
    a, b = placed[edge.start], placed[edge.end]
    outside = max(side * box.x + box.width / 2 for box in placed.values()) + LANE * (lane + 0.8)
    start, end = (a.x + side * a.width / 2, a.y), (b.x + side * b.width / 2, b.y)
    corner = side * outside
    axis.plot([start[0], corner, corner], [start[1], start[1], end[1]], color=INK, linewidth=0.7, zorder=2)
    _line(axis, panel, (corner, end[1]), end, edge.weight)


def _straight(axis: "Axes", panel: GraphPanel, edge: Edge, placed: dict[str, Box]) -> None:
    a, b = placed[edge.start], placed[edge.end]
    _line(axis, panel, a.border(b), b.border(a), edge.weight)


def _line(axis: "Axes", panel: GraphPanel, start: tuple[float, float], end: tuple[float, float], weight: float) -> None:
    """An arrow, faint if its weight is 0; without a direction a line as wide as its weight."""
    from matplotlib.patches import FancyArrowPatch

    faint = panel.directed and weight == 0
    arrow = FancyArrowPatch(
        start,
        end,
        arrowstyle="-|>" if panel.directed else "-",
        mutation_scale=7,
        shrinkA=0,
        shrinkB=0.6 if panel.directed else 0,
        linewidth=0.7 if panel.directed else 0.25 + 2.6 * weight,
        color=FAINT if faint else INK,
        zorder=1 if faint else 2,
    )
    axis.add_patch(arrow)


def _free_side(a: Box, b: Box, others: Sequence[Box]) -> int:
    """1 to pass on the right, -1 on the left: where there are fewer boxes beside the line."""
    low, high, middle = min(a.y, b.y), max(a.y, b.y), (a.x + b.x) / 2
    beside = [box for box in others if low <= box.y <= high and abs(box.x - middle) > 0.05]
    return 1 if sum(box.x > middle for box in beside) <= sum(box.x < middle for box in beside) else -1
