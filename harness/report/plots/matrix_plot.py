"""Figures of matrices and graphs as PNG and PDF. The same panels give the same bytes; their digest is in the file.

Every place is given in inches, so that cells and boxes have the size that their text needs.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.report.plots import drawn, graph_plot
from harness.report.plots.bubble_plot import wrapped
from harness.report.scores.matrices import GraphPanel, MatrixFigure, MatrixPanel, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# by the number of levels; each is darker than the one before, so that they differ in grey, too
PALETTES = {
    1: ("#FFFFFF",),
    2: ("#FFFFFF", "#2F79B5"),
    3: ("#FFFFFF", "#F2CF66", "#2F79B5"),
    4: ("#FFFFFF", "#F2CF66", "#5BA3D6", "#17375E"),
    5: ("#FFFFFF", "#F2CF66", "#5BA3D6", "#B24A00", "#101F38"),
}
LETTERS = "abcdefghijklmnopqrstuvwxyz"
NOTHING = "#ECECEC"  # where there is no value
WIDTH = 3.5  # inches, of a panel with its margins
TALLEST = 2.75  # inches, of a matrix
TITLE, LEGEND, TICKS, LABEL, NOTE = 0.3, 0.19, 0.16, 0.15, 0.132  # inches of each line
HEADING = 0.085  # inches, of a letter of the title
SMALL = 6.5  # points
LETTER = 0.55 * SMALL / 72  # inches


class Legend(NamedTuple):
    """`letters`: of the panels whose levels these are."""

    letters: str
    levels: tuple[str, ...]
    colours: tuple[str, ...]


class Place(NamedTuple):
    """Inches: what a panel needs left of its axis and below it, and the size of the axis."""

    left: float
    width: float
    height: float
    below: float


def digest_of(figure: MatrixFigure, panels: Sequence[Panel]) -> str:
    """What these panels show, as 64 hexadecimal digits, which the files hold."""
    content = [figure.title, figure.caption, figure.across, *(panel.model_dump() for panel in panels)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def draw(figure: MatrixFigure, panels: Sequence[Panel], paths: Sequence[Path]) -> None:
    """Draw the panels, `across` in a row, into files."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    across = min(figure.across, len(panels))
    legends = legends_of(panels)
    places = [_place(panel) for panel in panels]
    rows = [range(start, min(start + across, len(panels))) for start in range(0, len(panels), across)]
    heights = [TITLE + max(places[i].height + places[i].below for i in row) for row in rows]
    width = max(WIDTH * across + 0.1, HEADING * len(figure.title))
    caption = wrapped(figure.caption, int((width - 0.3) / LETTER))
    foot = 0.1 + NOTE * len(caption.splitlines())
    total = 0.4 + sum(heights) + 0.15 * len(rows) + foot + 0.05 + LEGEND * len(legends)
    with plt.rc_context({"text.parse_math": False, "font.size": SMALL}):  # a label is text, whatever signs it has
        page = plt.figure(figsize=(width, total))
        page.text(0.5, 1 - 0.22 / total, figure.title, ha="center", va="center", fontsize=10)
        top = total - 0.4
        for row, tall in zip(rows, heights, strict=True):
            for column, i in enumerate(row):
                letter = f"({LETTERS[i % 26]}) " if len(panels) > 1 else ""
                _panel(page, panels[i], places[i], WIDTH * column, top, letter)
            top -= tall + 0.15
        for i, legend in enumerate(reversed(legends)):
            _legend(page, legend, foot + LEGEND * i, len(legends) > 1)
        page.text(0.15 / width, 0.07 / total, caption, va="bottom", fontsize=SMALL, color="0.15", linespacing=1.35)
        digest = digest_of(figure, panels)
        for path in paths:
            drawn.save(page, path, digest, dpi=200)
        plt.close(page)


def legends_of(panels: Sequence[Panel]) -> list[Legend]:
    """One for each list of levels, matrices and graphs apart, with the letters of its panels."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for i, panel in enumerate(panels):
        if panel.levels:
            found.setdefault((panel.kind, panel.levels), []).append(LETTERS[i % 26])
    colours = {levels: graph_plot.COLOURS if kind == "graph" else PALETTES[len(levels)] for kind, levels in found}
    return [Legend(", ".join(letters), levels, colours[levels]) for (_, levels), letters in found.items()]


def _place(panel: Panel) -> Place:
    notes = wrapped("\n".join(panel.notes), int((WIDTH - 0.25) / LETTER)).splitlines()
    below = 0.1 + NOTE * len(notes)
    if isinstance(panel, GraphPanel):
        return Place(0.1, WIDTH - 0.3, graph_plot.height(panel), below)
    rows, columns = len(panel.values), len(panel.values[0])
    left = 0.32 + (LABEL if panel.rows else 0)
    if panel.row_labels:
        left = 0.2 + (LABEL if panel.rows else 0) + 1.1 * LETTER * max(map(len, panel.row_labels))
    room = WIDTH - left - (0.2 if _is_plain(panel) else 0.6)  # a colour bar stands on the right
    cell = min(room / columns, TALLEST / rows, 0.42)
    # few rows or columns become wider than they are tall, or taller, so that they can be seen
    wide = min(room / columns, max(cell, min(0.6, 1.5 / columns)))
    tall = min(TALLEST / rows, max(cell, min(0.3, 1.2 / rows)))
    below += TICKS * _lines(panel.column_labels) + (LABEL if panel.columns else 0)
    return Place(left, wide * columns, tall * rows, below)


def _lines(labels: Sequence[str]) -> int:
    return max((label.count("\n") + 1 for label in labels), default=1)


def _is_plain(panel: MatrixPanel) -> bool:
    """Whether it needs no colour bar."""
    return bool(panel.levels) or panel.numbers


def _panel(page: "Figure", panel: Panel, place: Place, x: float, top: float, letter: str) -> None:
    """A panel whose upper left corner is at `x` and `top`, in inches from the lower left one of the page."""
    width, total = page.get_size_inches()
    x += 0.1
    page.text(x / width, (top - 0.14) / total, letter + panel.title, fontsize=8.5, va="center")
    low = top - TITLE - place.height
    axis = page.add_axes(((x + place.left) / width, low / total, place.width / width, place.height / total))
    if isinstance(panel, GraphPanel):
        graph_plot.draw(axis, panel, place.width, place.height)
    else:
        _matrix(axis, panel, place)
    text = wrapped("\n".join(panel.notes), int((WIDTH - 0.25) / LETTER))
    start = low - place.below + NOTE * len(text.splitlines()) + 0.02
    page.text(x / width, start / total, text, fontsize=SMALL, va="top", color="0.25", linespacing=1.35)


def _matrix(axis: "Axes", panel: MatrixPanel, place: Place) -> None:
    from matplotlib.colors import BoundaryNorm, ListedColormap

    rows, columns = len(panel.values), len(panel.values[0])
    shown = [[math.nan if value is None else value for value in row] for row in panel.values]
    largest = max((abs(value) for row in panel.values for value in row if value is not None), default=0) or 1
    look: dict[str, Any] = {"aspect": "auto", "interpolation": "none"}
    if panel.levels:
        palette = PALETTES[len(panel.levels)]
        look |= {
            "cmap": ListedColormap(palette),
            "norm": BoundaryNorm([i - 0.5 for i in range(len(palette) + 1)], len(palette)),
        }
    elif not panel.shaded:
        look |= {"cmap": ListedColormap(["#FFFFFF"])}
    elif panel.signed:
        look |= {"cmap": "cividis", "vmin": -largest, "vmax": largest}
    else:
        look |= {"cmap": sequential(), "vmin": 0, "vmax": largest}
    axis.set_facecolor(NOTHING)
    image = axis.imshow(shown, **look)
    for i in range(1, rows):
        axis.axhline(i - 0.5, color="0.8", linewidth=0.3)
    for j in range(1, columns):
        axis.axvline(j - 0.5, color="0.8", linewidth=0.3)
    for i in panel.row_lines:
        axis.axhline(i - 0.5, color="0.1", linewidth=0.9)
    for j in panel.column_lines:
        axis.axvline(j - 0.5, color="0.1", linewidth=0.9)
    if panel.numbers:
        _numbers(axis, panel, image)
    axis.tick_params(labelsize=SMALL, length=2, pad=2)
    axis.set_xlabel(panel.columns, fontsize=SMALL + 0.5, labelpad=2)
    axis.set_ylabel(panel.rows, fontsize=SMALL + 0.5, labelpad=2)
    for labels, count, axle in ((panel.row_labels, rows, axis.yaxis), (panel.column_labels, columns, axis.xaxis)):
        step = 1 if labels and place.width / columns > 0.16 else 2 ** math.ceil(math.log2(max(1, count / 8)))
        axle.set_ticks(*_ticks(labels, count, step, axle is axis.yaxis))
    if not panel.shaded and not panel.rows:
        axis.tick_params(left=False, labelleft=bool(panel.row_labels))
    if not _is_plain(panel):
        bar = axis.figure.colorbar(
            image, ax=axis, cax=axis.inset_axes((1 + 0.08 / place.width, 0, 0.1 / place.width, 1))
        )
        bar.ax.tick_params(labelsize=SMALL - 1, length=2, pad=1)
        bar.outline.set_linewidth(0.4)


def _ticks(labels: Sequence[str], count: int, step: int, is_row: bool) -> tuple[list[int], list[str]]:
    """Places and names: all names that are not numbers, and every `step`-th number."""
    if labels:
        keep = [i for i in range(count) if is_row or not labels[i].isdigit() or i % step == 0]
        return keep, [labels[i] for i in keep]
    places = list(range(0, count, step))
    return places, [str(i) for i in places]


def sequential() -> Any:
    """White to dark blue, even in grey."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("white to blue", ["#FFFFFF", "#A9CDE9", "#3D84BF", "#0B2545"])


def _numbers(axis: "Axes", panel: MatrixPanel, image: Any) -> None:
    """Each value in its cell."""
    for i, row in enumerate(panel.values):
        for j, value in enumerate(row):
            if value is None:
                continue
            text = f"{value:,.0f}" if value == int(value) else f"{value:.2f}"
            axis.text(j, i, text, ha="center", va="center", fontsize=SMALL, color=text_colour(image, value))


def text_colour(image: Any, value: float) -> str:
    """Of a number in a square: dark on light and light on dark."""
    red, green, blue, _ = image.cmap(image.norm(value))
    return "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.55 else "black"


def _legend(page: "Figure", legend: Legend, low: float, is_named: bool) -> None:
    """A row of colours with their meanings, `low` inches from below; with the letters of its panels if `is_named`."""
    from matplotlib.patches import Patch

    width, total = page.get_size_inches()
    shown = list(zip(legend.colours, legend.levels, strict=False))
    handles = [Patch(facecolor=colour, edgecolor="0.3", linewidth=0.6) for colour, _ in shown]
    names = [level for _, level in shown]
    if is_named:
        handles, names = [Patch(visible=False), *handles], [f"({legend.letters})", *names]
    page.legend(
        handles,
        names,
        loc="lower left",
        bbox_to_anchor=(0.15 / width, (low + 0.04) / total),
        ncols=len(names),
        fontsize=SMALL,
        frameon=False,
        handlelength=1.0,
        handleheight=1.0,
        columnspacing=1.2,
        borderpad=0,
        borderaxespad=0,
        handletextpad=0.5,
    )
