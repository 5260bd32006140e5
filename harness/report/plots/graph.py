"""A graph: boxes of text, and lines or arrows from border to border. Extents are in pixels of the figure."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.report.plots.style import Axes, Bbox, Text

COLOURS = ("#FFFFFF", "#F2CF66", "#8CC4EA", "#C9A0C4", "#9AA5B1")  # each dark enough apart from the next in grey
INK, FAINT = "#222222", "#A8A8A8"
LANE = 9  # points between two lines that go around boxes
Panel = Mapping[str, Any]
Lane = tuple[int, int]  # -1, left of all boxes, or 1, right, and a number, 0 next to them


def height(panel: Panel) -> float:
    """Inches that a graph takes: by the number of its rows."""
    return min(4.2, max(2.3, 0.46 * len({round(node["y"], 6) for node in panel["nodes"]})))


def draw_nodes(axis: Axes, panel: Panel) -> dict[str, Text]:
    """The boxes at their places, by their names."""
    axis.axis("off")
    texts = {}
    for node in panel["nodes"]:
        box = {"boxstyle": "round,pad=0.55", "facecolor": COLOURS[node["level"]], "edgecolor": INK, "linewidth": 0.8}
        style = {"ha": "center", "va": "center_baseline", "fontsize": 7, "color": INK, "bbox": box}
        texts[node["name"]] = axis.text(node["x"], node["y"], node["text"], **style)
        # unseen: it keeps room for the lines that go around the boxes
        axis.text(node["x"], node["y"], f"————{node['text']}————", ha="center", fontsize=7, alpha=0)
    axis.margins(0.08, 0.02)
    axis.scatter(*zip(*(text.get_position() for text in texts.values()), strict=True), s=0)
    axis.set(xlim=axis.get_xlim(), ylim=axis.get_ylim())  # final: edges do not change them
    return texts


def draw_edges(axis: Axes, panel: Panel, texts: Mapping[str, Text]) -> None:
    """The lines between the boxes, whose places are final.

    An arrow is faint if its weight is 0; a line without a direction is as wide as its weight.
    """
    boxes = {name: text.get_bbox_patch() for name, text in texts.items()}
    extents = {name: box.get_window_extent() for name, box in boxes.items()}
    around = lanes_of(panel, extents)
    to_data = axis.transData.inverted()
    for edge in panel["edges"]:
        start, end, weight = edge["start"], edge["end"], edge["weight"]
        is_faint = panel["directed"] and weight == 0
        line = {"color": FAINT if is_faint else INK, "linewidth": 0.7 if panel["directed"] else 0.25 + 2.6 * weight}
        look = line | {"mutation_scale": 7, "shrinkA": 0, "shrinkB": 0, "patchB": boxes[end]}
        look["arrowstyle"] = "-|>" if panel["directed"] else "-"
        first, last = texts[start].get_position(), texts[end].get_position()
        if (start, end) in around:
            # out of the side of a box, along a lane outside of all boxes, and into the side of the other box
            side, lane = around[start, end]
            outermost = max(side * (box.x1 if side > 0 else box.x0) for box in extents.values())
            corner = side * (outermost + LANE * (lane + 0.8) * axis.figure.dpi / 72)
            (x, _), (y_first, y_last) = to_data.transform((corner, 0)), (first[1], last[1])
            axis.plot([first[0], x, x], [y_first, y_first, y_last], **line, zorder=1, clip_on=False)
            first = (x, y_last)
        else:
            look["patchA"] = boxes[start]
        axis.annotate("", last, first, arrowprops=look, annotation_clip=False, zorder=1 if is_faint else 2)


def lanes_of(panel: Panel, extents: Mapping[str, Bbox]) -> dict[tuple[str, str], Lane]:
    """Edges whose straight line would go through a box. All that leave a node on one side share a lane.

    The side is the one that has fewer boxes.
    """
    from matplotlib.path import Path

    around: dict[tuple[str, str], Lane] = {}
    taken: dict[tuple[str, int], int] = {}
    for edge in panel["edges"]:
        start, end = edge["start"], edge["end"]
        ends = [_middle(extents[name]) for name in (start, end)]
        others = [box for name, box in extents.items() if name not in (start, end)]
        if any(Path(ends).intersects_bbox(box, filled=False) for box in others):
            side = _free_side(ends, others)
            lane = taken.setdefault((start, side), sum(at == side for _, at in taken))
            around[start, end] = side, lane
    return around


def _middle(box: Bbox) -> tuple[float, float]:
    return (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2


def _free_side(ends: Sequence[tuple[float, float]], others: Sequence[Bbox]) -> int:
    """1 to pass on the right, -1 on the left: where there are fewer boxes beside the line."""
    (start, end), middle = sorted(y for _, y in ends), (ends[0][0] + ends[1][0]) / 2
    beside = [x - middle for x, y in map(_middle, others) if start <= y <= end and abs(x - middle) > LANE]
    return 1 if sum(x > 0 for x in beside) <= sum(x < 0 for x in beside) else -1
