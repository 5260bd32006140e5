"""Figures of matrices and graphs, `across` panels in a row."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from harness.report.plots import graph, style
from harness.report.plots.file import Sources
from harness.report.plots.style import Axes, Figure
from harness.report.scores import matrices
from harness.report.spec.figure import MatrixFigure
from harness.report.stats.grouping import grouped

# by the number of levels; each is darker than the one before, so that they differ in grey, too
PALETTES = {
    1: ("#FFFFFF",),
    2: ("#FFFFFF", "#2F79B5"),
    3: ("#FFFFFF", "#F2CF66", "#2F79B5"),
    4: ("#FFFFFF", "#F2CF66", "#5BA3D6", "#17375E"),
    5: ("#FFFFFF", "#F2CF66", "#5BA3D6", "#B24A00", "#101F38"),
}
WIDTH = 3.7  # inches, of a panel with its margins
NARROWEST = 6.0  # inches, of a figure with a caption
CELL, LOWEST, TALLEST = 0.19, 1.2, 2.75  # inches: of a square, and of a matrix
NOTE = 0.125  # inches, a line of notes
LETTER = 0.05  # inches
FEW_TICKS = 18  # labels that have room below a matrix


class Legend(NamedTuple):
    """`letters`: of the panels whose levels these are."""

    letters: str
    levels: tuple[str, ...]
    colours: tuple[str, ...]


def data(figure: MatrixFigure, sources: Sources) -> dict[str, Any]:
    panels = [panel.model_dump() for panel in matrices.panels(figure, sources.trusted)]
    return {"title": figure.title, "caption": figure.caption, "across": figure.across, "panels": panels}


def draw(data: Mapping[str, Any]) -> Figure:
    panels = data["panels"]
    across = min(data["across"], len(panels))
    wide = max(WIDTH * across, NARROWEST)
    letters = int((wide / across - 0.7) / LETTER)
    tall = []
    for panel in panels:
        is_graph = panel["kind"] == "graph"
        of_axis = graph.height(panel) if is_graph else min(TALLEST, max(LOWEST, CELL * len(panel["values"])))
        tall.append(of_axis + NOTE * len(style.wrapped("\n".join(panel["notes"]), letters).splitlines()) + 0.6)
    heights = list(map(max, style.in_rows(tall, across)))
    caption = style.wrapped(data["caption"], int((wide - 0.2) / LETTER))
    legends = legends_of(panels)
    foot = 0.1 + 0.14 * len(caption.splitlines()) + 0.2 * len(legends)
    figure, axes = style.figure_of(data["title"], (wide, 0.4 + sum(heights) + foot), heights, across, len(panels))
    figure.get_layout_engine().set(rect=(0, foot / figure.get_figheight(), 1, 1 - foot / figure.get_figheight()))
    nodes = {}
    for number, (axis, panel) in enumerate(zip(axes, panels, strict=True)):
        letter = f"({style.letter(number)}) " if len(panels) > 1 else ""
        axis.set_title(letter + panel["title"], fontsize=8.5, loc="left")
        if panel["kind"] == "matrix":
            _draw_matrix(axis, panel)
        else:
            nodes[number] = graph.draw_nodes(axis, panel)
        below = 14
        if panel["kind"] == "matrix":
            label_lines = max((label.count("\n") + 1 for label in panel["column_labels"]), default=1)
            below = 12 + 9 * (label_lines + bool(panel["columns"]))
        style.draw_notes(axis, panel["notes"], letters, below)
    for number, legend in enumerate(reversed(legends)):
        _draw_level_legend(figure, legend, foot - 0.2 * (len(legends) - number), len(legends) > 1)
    figure.text(0.01, 0.05 / figure.get_figheight(), caption, va="bottom", fontsize=6.5, color=style.INK)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the layout is final before edges go around boxes
    for number, texts in nodes.items():
        graph.draw_edges(axes[number], panels[number], texts)
    return figure


def legends_of(panels: Sequence[Mapping[str, Any]]) -> list[Legend]:
    """One for each list of levels, matrices and graphs apart, with the letters of its panels: the levels in them."""
    shown = [(panel["kind"], tuple(panel["levels"])) for panel in panels]
    letters = grouped((levels, style.letter(number)) for number, levels in enumerate(shown) if levels[1])
    used = grouped(
        (levels, level)
        for panel, levels in zip(panels, shown, strict=True)
        for level in (*(node["level"] for node in panel.get("nodes", ())), *itertools.chain(*panel.get("values", ())))
    )
    legends = []
    for (kind, levels), of_panels in letters.items():
        colours = graph.COLOURS if kind == "graph" else PALETTES[len(levels)]
        pairs = enumerate(zip(levels, colours, strict=False))
        kept = zip(*(pair for number, pair in pairs if number in used[kind, levels]), strict=True)
        legends.append(Legend(", ".join(of_panels), *kept))
    return legends


def _draw_matrix(axis: Axes, panel: Mapping[str, Any]) -> None:
    values = panel["values"]
    image = style.squares(axis, values, **_colours(panel))
    for draw_line, places in ((axis.axhline, panel["row_lines"]), (axis.axvline, panel["column_lines"])):
        for number in places:
            draw_line(number - 0.5, color="0.1", linewidth=0.9)
    if panel["numbers"]:
        style.print_numbers(axis, image, values, lambda value: f"{value:,.{0 if value == int(value) else 2}f}")
    axis.tick_params(labelsize=6.5, length=2, pad=2)
    axis.set_xlabel(panel["columns"], fontsize=7, labelpad=2)
    axis.set_ylabel(panel["rows"], fontsize=7, labelpad=2)
    axis.yaxis.set_ticks(*_ticks(panel["row_labels"], len(values), is_row=True))
    axis.xaxis.set_ticks(*_ticks(panel["column_labels"], len(values[0]), is_row=False))
    if not panel["shaded"] and not panel["rows"]:
        axis.tick_params(left=False, labelleft=bool(panel["row_labels"]))
    if not panel["levels"] and not panel["numbers"]:
        bar = axis.figure.colorbar(image, cax=axis.inset_axes((1.02, 0, 0.03, 1)))
        bar.ax.tick_params(labelsize=5.5, length=2, pad=1)
        bar.outline.set_linewidth(0.4)


def _colours(panel: Mapping[str, Any]) -> dict[str, Any]:
    from matplotlib.colors import BoundaryNorm, ListedColormap

    largest = max((abs(value) for row in panel["values"] for value in row if value is not None), default=0) or 1
    if panel["levels"]:
        palette = PALETTES[len(panel["levels"])]
        edges = [level - 0.5 for level in range(len(palette) + 1)]
        return {"cmap": ListedColormap(palette), "norm": BoundaryNorm(edges, len(palette))}
    if not panel["shaded"]:
        return {"cmap": ListedColormap(["#FFFFFF"])}
    if panel["signed"]:
        return {"cmap": "cividis", "vmin": -largest, "vmax": largest}
    return {"cmap": style.sequential(), "vmin": 0, "vmax": largest}


def _ticks(labels: Sequence[str], count: int, *, is_row: bool) -> tuple[list[int], list[str]]:
    """Places and names: all names that are not numbers, and every n-th number."""
    step = 1 if labels and count <= FEW_TICKS else 2 ** math.ceil(math.log2(max(1, count / 8)))
    if labels:
        keep = [i for i in range(count) if is_row or not labels[i].isdigit() or i % step == 0]
        return keep, [labels[i] for i in keep]
    places = list(range(0, count, step))
    return places, [str(i) for i in places]


def _draw_level_legend(figure: Figure, legend: Legend, low: float, is_named: bool) -> None:
    """A row of colours with their meanings, `low` inches from below; with the letters of its panels if `is_named`."""
    from matplotlib.patches import Patch

    shown = list(zip(legend.colours, legend.levels, strict=False))
    handles = [Patch(facecolor=colour, edgecolor="0.3", linewidth=0.6) for colour, _ in shown]
    names = [level for _, level in shown]
    if is_named:
        handles, names = [Patch(visible=False), *handles], [f"({legend.letters})", *names]
    sizes = {"fontsize": 6.5, "handlelength": 1.0, "handleheight": 1.0, "columnspacing": 1.2, "handletextpad": 0.5}
    anchor = {"loc": "lower left", "bbox_to_anchor": (0.01, low / figure.get_figheight()), "borderpad": 0}
    made = figure.legend(handles, names, ncols=len(names), frameon=False, borderaxespad=0, **anchor, **sizes)
    made.set_in_layout(False)
