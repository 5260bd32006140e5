"""Panels of bubbles: speed against accuracy. The width of a bubble is its memory; inside is the marker of its model.

Lengths are in points (1/72 inch): labels and bubbles are the same in PNG and PDF.
"""

from collections.abc import Mapping
from typing import Any

from harness.report.plots import style
from harness.report.plots.file import Sources
from harness.report.plots.labels import Disc, annotate
from harness.report.plots.style import Axes, Figure
from harness.report.scores import messages, tradeoff
from harness.report.spec.figure import FigureSpec

COLUMNS = 2
LARGEST = 15.0  # radius of the most memory in the figure
MARKER = 4.0  # points, of the model
KEY = (0.1, 0.5, 1.0)  # memory of the bubbles in the legend
EDGE = {"markeredgecolor": "0.2", "markeredgewidth": 0.6}


def data(figure: FigureSpec, sources: Sources) -> dict[str, Any]:
    every = tradeoff.panels(figure, sources.cells, sources.paper)
    panels = [panel for panel in every if panel["series"]] or every
    for panel in panels:  # labels tell the rows of one model apart
        panel["series"] = [line | {"look": style.look(line["model"], line["role"])} for line in panel["series"]]
        panel["message"] = messages.of_bubbles(panel["title"].splitlines()[0], panel["series"])
    if len(panels) < len(every):
        panels[-1]["notes"].append("No bubble of ours yet, for lack of runs.")
    said = [panel for panel in panels if not panel.get("published")] or panels
    return style.titles(figure.title, said) | {"panels": panels}


def draw(data: Mapping[str, Any]) -> Figure:
    """Two panels in a row."""
    panels = data["panels"]
    columns = min(COLUMNS, len(panels))
    rows = [4.0 if any(panel["series"] for panel in row) else 1.8 for row in style.in_rows(panels, columns)]
    figure, axes = style.figure_of(
        data["title"], (7.5, 0.8 + sum(rows)), rows, columns, len(panels), data.get("subtitle", "")
    )
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
        discs = [
            Disc(line["x"][0], line["y"][0], LARGEST / most * line["size"][0], line["name"], line["role"] == "own")
            for line in panel["series"]
        ]
        annotate(axis, discs)
    return figure


def _draw_bubbles(axis: Axes, panel: style.Panel, scale: float, width: int) -> None:
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


def _draw_size_legend(figure: Figure, scale: float) -> None:
    from matplotlib.lines import Line2D

    circle = {"linestyle": "", "marker": "o", "color": "white", **EDGE}
    sizes = [Line2D([], [], markersize=2 * scale * size, **circle) for size in KEY]
    names = [f"memory {size:g}×" for size in KEY]
    look = {"frameon": False, "borderpad": 1.5, "handlelength": 4}
    figure.legend(sizes, names, loc="outside lower right", ncols=len(KEY), **look)
