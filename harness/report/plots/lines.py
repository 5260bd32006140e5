"""Panels of lines: scores against what changes, cost against length, and learning curves.

The axes of a cost are logarithmic, with powers of two and round numbers as ticks."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness.report.plots import style
from harness.report.plots.file import Sources
from harness.report.plots.style import Axes, Figure
from harness.report.scores import lines
from harness.report.spec.figure import LineFigure

COLUMNS = 2
WIDTH, HEIGHT = 3.75, 3.3  # of a panel, inches
WITH_FRONT = 4.2  # height of a panel with a Pareto front
LETTERS = 58  # of a line of notes
LEGEND_LETTERS = 21  # of a name in a column of the legend, of an inch
LEGEND_LINE = 0.17  # inches
NARROW = 2.0  # a range below this factor is widened, so that what is nearly the same looks so
FLAT = 12.0  # a range below this factor has more ticks
DECADES = 1000.0  # a range above this factor has powers of ten as ticks, below it 1, 2, 5
LOG_FROM = 20  # values so many times apart ask for a logarithmic scale
ALIKE = 0.015  # of the range of the scores: curves that are nowhere further apart are drawn as one
MOST_TICKS = 6  # of a logarithmic x axis: millions of tokens have room
FEW = 4  # curves that are drawn one by one
SHOWN = 6  # names of a curve that stands for several


def data(figure: LineFigure, sources: Sources) -> dict[str, Any]:
    panels = lines.panels(figure, sources.cells, sources.measurements, sources.selected)
    if figure.points:
        panels = [panel | {"series": _together(panel["series"])} for panel in panels]
    share = len({panel["y"] for panel in panels}) == 1
    return style.titles(figure.title, panels) | {"panels": style.with_looks(panels), "share_y": share}


def _together(series: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Curves that lie on each other become one, which looks like the first of them, a reference if there is one."""
    scores = [y for line in series for y in line["y"]]
    if len(series) <= FEW:
        return list(series)
    near = (max(scores) - min(scores)) * ALIKE
    groups: list[list[Mapping[str, Any]]] = []
    for line in sorted(series, key=lambda line: line["role"] != "reference"):
        for group in groups:
            ends = zip(group[0]["y"], line["y"], strict=False)
            if group[0]["x"] == line["x"] and all(abs(a - b) <= near for a, b in ends):
                group.append(line)
                break
        else:
            groups.append([line])
    return [group[0] | {"name": _names([line["name"] for line in group])} for group in groups]


def _names(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:SHOWN])} and {more} more"


def draw(data: Mapping[str, Any]) -> Figure:
    """Two panels in a row, with one legend for all below them."""
    panels = data["panels"]
    columns = min(COLUMNS, len(panels))
    height = WITH_FRONT if any(panel.get("front") for panel in panels) else HEIGHT
    letters = LETTERS * COLUMNS // columns
    note_lines = max(len(style.wrapped("\n".join(panel["notes"]), letters).splitlines()) for panel in panels)
    rows = [height] * math.ceil(len(panels) / columns)
    wide = COLUMNS * WIDTH
    names = {line["name"] for panel in panels for line in panel["series"] if line.get("shown", True)}
    in_legend = max(1, int(wide * LEGEND_LETTERS) // (max(map(len, names), default=20) + 8))
    legend = LEGEND_LINE * math.ceil((len(names) + 2) / in_legend)
    tall = 0.7 + sum(rows) + 0.11 * note_lines * len(rows) + legend
    shared = {"sharey": data.get("share_y", False), "subtitle": data.get("subtitle", "")}
    figure, axes = style.figure_of(data["title"], (wide, tall), rows, columns, len(panels), **shared)
    for number, (axis, panel) in enumerate(zip(axes, panels, strict=True)):
        if not panel["series"]:
            axis.axis("off")
            continue
        draw_panel(axis, panel)
        if number % columns and data.get("share_y"):
            axis.set_ylabel("")
        beside = panels[number - 1]["notes"] if number % columns else []
        style.draw_notes(axis, [note for note in panel["notes"] if note not in beside], letters)
    # one legend for all axes, below them: each label once
    pairs = [pair for axis in figure.axes for pair in zip(*axis.get_legend_handles_labels(), strict=True)]
    if handles := {label: handle for handle, label in pairs}:
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=in_legend, frameon=False)
    return figure


def draw_panel(axis: Axes, panel: style.Panel) -> None:
    from matplotlib.ticker import LogLocator

    for line in panel["series"]:
        if "front" in panel:
            _draw_points(axis, line)
        else:
            _draw_line(axis, line, panel.get("band", False))
    if any(any(line.get("hollow", ())) for line in panel["series"]):
        axis.plot([], [], "o", color=style.SOFT, markerfacecolor="none", label="hollow: extrapolated or added up")
    if panel.get("front"):
        x, y = zip(*((x, y) for x, y, _ in panel["front"] if x), strict=True)
        axis.step(x, y, where="post", color=style.INK, linewidth=2.5, alpha=0.25, zorder=1, label="Pareto front")
    scores = [y for line in panel["series"] for y in line["y"]]
    low, high, chance = min(scores), max(scores), panel.get("chance", math.inf)
    # a line of guessing further off than the scores are apart would press the points of a front together
    if max(low - chance, chance - high) <= high - low or ("chance" in panel and "front" not in panel):
        axis.axhline(panel["chance"], color=style.FAINT, linewidth=0.8, linestyle=(0, (1, 3)), label="chance")
    axis.set_title(panel["title"], loc=panel.get("side", "center"))
    axis.set(xlabel=panel["x"], ylabel=panel["y"])
    if panel["log_x"]:
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_locator(LogLocator(base=2, numticks=MOST_TICKS))
        if "ticks" in panel:
            axis.set_xticks(panel["ticks"], minor=False)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    if panel["log_x"] and panel["log_y"]:
        shown = [(line, key) for line in panel["series"] for key in ("low", "y", "high") if key in line]
        cost_axis(axis, [cost for line, key in shown for cost in line[key]])
    elif panel["log_y"]:
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.4g}")
    if "front" in panel:
        axis.margins(x=0.12, y=0.08)
    if "limits" in panel:
        low, high = panel["limits"]
        axis.set_ylim(low - 0.03 * (high - low), high + (0.08 if "front" in panel else 0.05) * (high - low))


def _draw_points(axis: Axes, line: Mapping[str, Any]) -> None:
    """The sizes of a model, in its colour and with its name in the legend if it is `shown`; what keeps nothing is a
    level, for a logarithm lacks 0."""
    look = line["look"] | ({} if line["shown"] else {"colour": style.MUTED})
    colour, is_reference = look["colour"], line["role"] == "reference"
    places = list(zip(line["x"], line["y"], line["low"], line["high"], strict=True))
    for _, y, _, _ in (place for place in places if not place[0]):
        axis.axhline(y, color=colour, linewidth=0.8, linestyle="--", label=f"{line['name']} (keeps nothing)", zorder=1)
    points = [place for place in places if place[0]]
    if points:
        x, y, low, high = map(list, zip(*points, strict=True))
        axis.errorbar(x, y, yerr=_bars(low, y, high), fmt="none", ecolor=colour, elinewidth=0.7, alpha=0.5)
        wide = {"linewidth": 1.4 if is_reference else 0.7, "alpha": 1.0 if line["shown"] else 0.8}
        order = {"zorder": 3 if line["shown"] else 2, "markersize": 5 if line["shown"] else 3.5}
        label = line["name"] if line["shown"] else "other models"
        axis.plot(x, y, look["dash"], color=colour, marker=look["marker"], label=label, **wide, **order)


def _draw_line(axis: Axes, line: Mapping[str, Any], band: bool) -> None:
    look, x, y = line["look"], line["x"], line["y"]
    colour = look["colour"]
    for thin_x, thin_y in line.get("thin", ()):
        axis.plot(thin_x, thin_y, look["dash"], color=colour, linewidth=0.6, alpha=0.4)
    if band and "low" in line:
        axis.fill_between(x, line["low"], line["high"], color=colour, alpha=0.18, linewidth=0)
    elif "low" in line:
        axis.errorbar(x, y, yerr=_bars(line["low"], y, line["high"]), fmt="none", ecolor=colour, elinewidth=0.7)
    marked = line.get("marked", True) or len(x) == 1
    marker = {"marker": look["marker"]} if marked else {}
    axis.plot(x, y, look["dash"], color=colour, label=line["name"], **marker)
    hollow = [(a, b) for a, b, is_hollow in zip(x, y, line.get("hollow", ()), strict=False) if is_hollow]
    if hollow:
        axis.plot(*zip(*hollow, strict=True), **style.marker_style(look, hollow=True))


def _bars(low: Sequence[float], y: Sequence[float], high: Sequence[float]) -> list[list[float]]:
    """Lengths of error bars below and above."""
    return [[b - a for a, b in zip(start, end, strict=True)] for start, end in ((low, y), (y, high))]


def spread(values: list[float]) -> bool:
    """Whether positive values are so far apart that a logarithmic scale shows them better."""
    finite = [value for value in values if math.isfinite(value)]
    return bool(finite) and min(finite) > 0 and max(finite) > LOG_FROM * min(finite)


def cost_axis(axis: Axes, costs: Sequence[float]) -> None:
    """Give the y axis its scale, range and ticks for these costs."""
    from matplotlib.ticker import LogLocator, NullLocator

    low, high = min(costs), max(costs)
    if high < NARROW * low:
        low, high = low / NARROW, high * NARROW
    axis.set(yscale="log", ylim=(low / 1.1, high * 1.1))
    subs = (1, 1.5, 2, 3, 5, 7) if high < FLAT * low else (1, 2, 5) if high < DECADES * low else (1,)
    axis.yaxis.set_major_locator(LogLocator(subs=subs))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
