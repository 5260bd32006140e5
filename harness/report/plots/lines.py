"""Panels of lines: scores against what changes, cost against length, and learning curves.

The axes of a cost are logarithmic, with the measured lengths and round numbers as ticks."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.report.plots import style
from harness.report.plots.labels import Disc, annotate
from harness.report.scores import lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from harness.report.plots.file import Sources

COLUMNS = 2
WIDTH, HEIGHT, EMPTY = 3.75, 3.3, 1.2  # of a panel, inches
WITH_NAMES, NAMES_BESIDE = 4.2, 3  # height of a panel whose points have names, and columns of its legend
INSIDE = 4  # series whose legend has room among the lines of a panel
LETTERS = 58  # of a line of notes
BESIDE = 2.6  # inches of a legend that has not
CLOSE = 0.09  # part of the axis: a tick that is nearer to the one before has no room for its label
NARROW = 2.0  # a range below this factor is widened, so that what is nearly the same looks so
DECADES = 1000.0  # a range above this factor has powers of ten as ticks, below it 1, 2, 5
LINE = 0.065  # part of the axis that a line of the legend takes
APART = 0.04  # part of the scores of a front between two points with a name
POINT = 3.0  # radius of a marker, points
LOG_FROM = 20  # values so many times apart ask for a logarithmic scale


def data(figure: lines.LineFigure, sources: "Sources") -> dict[str, Any]:
    return {
        "title": figure.title,
        "panels": style.with_looks(lines.panels(figure, sources.cells, sources.measurements)),
        "share_y": True,
    }


def draw(data: Mapping[str, Any]) -> "Figure":
    """Two panels in a row; panels with a front, whose points have names, are as wide as the figure. All have one legend
    below them, or with `own_legends` each its own."""
    panels = data["panels"]
    has_front = any(panel.get("front") for panel in panels)
    columns = 1 if has_front else min(COLUMNS, len(panels))
    height, in_legend = (WITH_NAMES, NAMES_BESIDE) if has_front else (HEIGHT, 2 * COLUMNS)
    names = {line["name"] for panel in panels for line in panel["series"]}
    own_legends = data.get("own_legends", False)
    crowded = own_legends and any(len(panel["series"]) > INSIDE for panel in panels)
    letters = LETTERS * COLUMNS // columns
    note_lines = max(len(style.wrapped("\n".join(panel["notes"]), letters).splitlines()) for panel in panels)
    rows = [height if any(panel["series"] for panel in row) else EMPTY for row in style.in_rows(panels, columns)]
    tall = 0.7 + sum(rows) + 0.11 * note_lines * rows.count(height)
    if not own_legends:
        tall += style.legend_height(len(names) + 1 + has_front, in_legend)
    wide = COLUMNS * WIDTH + crowded * columns * BESIDE
    is_filled = all(panel["series"] for panel in panels)  # an empty panel has no ticks to share
    shared = {"sharey": data.get("share_y", False) and is_filled}
    figure, axes = style.figure_of(data["title"], (wide, tall), rows, columns, len(panels), **shared)
    for number, (axis, panel) in enumerate(zip(axes, panels, strict=True)):
        if not panel["series"]:
            style.empty(axis, panel, letters)
            continue
        draw_panel(axis, panel, own_legends)
        if number % columns and data.get("share_y"):
            axis.set_ylabel("")
        if own_legends:
            anchor = {"bbox_to_anchor": (1.01, 1)} if crowded else {}
            axis.legend(loc="upper left", frameon=not crowded, **anchor)
        style.draw_notes(axis, panel["notes"], letters)
    if not own_legends:
        style.shared_legend(figure, in_legend)
    if has_front:
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the layout is final before labels are placed
        for axis, panel in zip(axes, panels, strict=True):
            _label_front(axis, panel)
    return figure


def _label_front(axis: "Axes", panel: style.Panel) -> None:
    """The names of points on the front, beside all points."""
    points = {point for line in panel["series"] for point in zip(line["x"], line["y"], strict=True)}
    named = [Disc(x, y, POINT, label) for x, y, label in named_points(panel.get("front", ()), panel.get("chance"))]
    places = {(disc.x, disc.y) for disc in named}
    if named:
        annotate(axis, [*named, *(Disc(x, y, POINT, "") for x, y in sorted(points - places))])


def named_points(front: Sequence[tuple[float, float, str]], chance: float | None) -> list[tuple[float, float, str]]:
    """The points of a front that are clearly apart from chance and from the named one before: names need room."""
    if not front:
        return []
    scores = [y for _, y, _ in front]
    named, last = [], chance
    for point in front:
        if last is None or abs(point[1] - last) >= APART * (max(scores) - min(scores)):
            named.append(point)
            last = point[1]
    return named


def draw_panel(axis: "Axes", panel: style.Panel, own_legend: bool = False) -> None:
    for line in panel["series"]:
        _draw_line(axis, line, panel.get("band", False), is_pale=bool(panel.get("front")))
    if any(any(line.get("hollow", ())) for line in panel["series"]):
        axis.plot([], [], "o", color=style.SOFT, markerfacecolor="white", label="hollow: extrapolated or added up")
    if panel.get("front"):
        x, y, _ = zip(*panel["front"], strict=True)
        axis.step(x, y, where="post", color=style.INK, linewidth=2.5, alpha=0.35, zorder=1, label="Pareto front")
    if "chance" in panel:
        axis.axhline(panel["chance"], color=style.FAINT, linewidth=0.8, linestyle=":", label="chance")
    axis.set_title(panel["title"], loc=panel.get("side", "center"))
    axis.set(xlabel=panel["x"], ylabel=panel["y"])
    if panel["log_x"] and panel["log_y"]:
        shown = [(line, key) for line in panel["series"] for key in ("low", "y", "high") if key in line]
        points = [point for line, key in shown for point in zip(line["x"], line[key], strict=True)]
        inside = own_legend and len(panel["series"]) <= INSIDE
        cost_axes(axis, points, legend=len(axis.get_legend_handles_labels()[0]) if inside else 0)
    elif panel["log_x"]:
        _powers_of_two(axis, {x for line in panel["series"] for x in line["x"]})
    elif panel["log_y"]:
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.4g}")


def _draw_line(axis: "Axes", line: Mapping[str, Any], band: bool, is_pale: bool = False) -> None:
    """`is_pale`: with thin, translucent strokes, except for the reference."""
    look, x, y = line["look"], line["x"], line["y"]
    paleness = {"alpha": 0.45, "linewidth": 0.7, "markersize": 3.5} if is_pale and line["role"] != "reference" else {}
    colour = look["colour"]
    for thin_x, thin_y in line.get("thin", ()):
        axis.plot(thin_x, thin_y, look["dash"], color=colour, linewidth=0.6, alpha=0.4)
    if band:
        axis.fill_between(x, line["low"], line["high"], color=colour, alpha=0.18, linewidth=0)
    elif "low" in line:
        ends = list(zip(line["low"], y, line["high"], strict=True))
        bars = [[mean - low for low, mean, _ in ends], [high - mean for _, mean, high in ends]]
        axis.errorbar(x, y, yerr=bars, fmt="none", ecolor=colour, elinewidth=0.7, alpha=paleness.get("alpha"))
    marked = line.get("marked", True) or len(x) == 1
    marker = {"marker": look["marker"]} if marked else {}
    label = f"{line['name']} (n^{line['exponent']})" if line.get("exponent") else line["name"]
    axis.plot(x, y, look["dash"], color=colour, label=label, **marker, **paleness)
    hollow = [(a, b) for a, b, is_hollow in zip(x, y, line.get("hollow", ()), strict=False) if is_hollow]
    if hollow:
        axis.plot(*zip(*hollow, strict=True), **style.marker_style(look, hollow=True))


def _powers_of_two(axis: "Axes", places: set[float]) -> None:
    if 0 in places:  # a control keeps nothing, which has no logarithm
        least, most = min(places - {0}, default=1), max(*places, 1)
        axis.set_xscale("symlog", base=2, linthresh=least)
        axis.set_xlim(-least / 4, 1.4 * most)
    else:
        axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def spread(values: list[float]) -> bool:
    """Whether positive values are so far apart that a logarithmic scale shows them better."""
    finite = [value for value in values if math.isfinite(value)]
    return bool(finite) and min(finite) > 0 and max(finite) > LOG_FROM * min(finite)


def cost_axes(axis: "Axes", points: Sequence[tuple[float, float]], legend: int = 0) -> None:
    """Give `axis` its scales, ranges and ticks for these (size, cost).

    `legend`: lines of a legend, for which the upper part is kept free.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axis.set(xscale="log", yscale="log")
    sizes, costs = [size for size, _ in points], [cost for _, cost in points]
    low, high = min(costs), max(costs)
    if high < NARROW * low:
        low, high = low / NARROW, high * NARROW
    low, high = low / 1.1, high * 1.1
    high = low * (high / low) ** (1 / max(0.3, 1 - LINE * legend))
    axis.set_ylim(low, high)
    axis.yaxis.set_major_locator(
        MaxNLocator(5) if high < 5 * low else LogLocator(subs=(1, 2, 5) if high < DECADES * low else (1,))
    )
    axis.xaxis.set_major_locator(FixedLocator(_apart(sorted(set(sizes)))))
    for part in (axis.xaxis, axis.yaxis):
        part.set_minor_locator(NullLocator())
        part.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _apart(sizes: Sequence[float]) -> list[float]:
    """The sizes whose labels have room on a logarithmic axis; the last one always."""
    least = (sizes[-1] / sizes[0]) ** CLOSE
    kept = [sizes[-1]]
    for size in reversed(sizes[:-1]):
        if kept[-1] >= size * least:
            kept.append(size)
    return kept[::-1]
