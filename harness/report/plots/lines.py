"""Panels of lines: scores against what changes, cost against length, and learning curves.

The axes of a cost are logarithmic, with the measured lengths and round numbers as ticks."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness.report.plots import style
from harness.report.plots.file import Sources
from harness.report.plots.labels import Disc, annotate
from harness.report.plots.style import Axes, Figure
from harness.report.scores import lines
from harness.report.spec.figure import LineFigure

COLUMNS = 2
WIDTH, HEIGHT, EMPTY = 3.75, 3.3, 1.2  # of a panel, inches
WITH_NAMES = 4.2  # height of a panel whose points have names
LETTERS = 58  # of a line of notes
LEGEND_LETTERS = 21  # of a name in a column of the legend, of an inch
LEGEND_LINE = 0.17  # inches
CLOSE = 0.12  # part of the axis: a tick that is nearer to the one before has no room for its label
NARROW = 2.0  # a range below this factor is widened, so that what is nearly the same looks so
FLAT = 12.0  # a range below this factor has more ticks
DECADES = 1000.0  # a range above this factor has powers of ten as ticks, below it 1, 2, 5
POINT = 3.0  # radius of a marker, points
LOG_FROM = 20  # values so many times apart ask for a logarithmic scale
ALIKE = 0.015  # of the range of the scores: curves that are nowhere further apart are drawn as one
EXPONENT_APART, FOR_EXPONENTS = 0.035, 0.1  # of the y axis, of the x axis
FURTHEST = 2  # letters between the end of a line and its exponent
PER_BAR, BAR_PANEL = 0.19, 0.95  # inches of a row, and of what is around the rows
FEW = 4  # curves that are drawn one by one
SHOWN = 6  # names of a curve that stands for several
AT_THE_END = {"textcoords": "offset points", "va": "center", "fontsize": 6, "annotation_clip": False}


def data(figure: LineFigure, sources: Sources) -> dict[str, Any]:
    panels = lines.panels(figure, sources.cells, sources.measurements)
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
    """Two panels in a row, with one legend for all below them. Points of a panel with a front have their names."""
    panels = data["panels"]
    has_front = any(panel.get("front") for panel in panels)
    columns = min(COLUMNS, len(panels))
    height = WITH_NAMES if has_front else HEIGHT
    letters = LETTERS * COLUMNS // columns
    note_lines = max(len(style.wrapped("\n".join(panel["notes"]), letters).splitlines()) for panel in panels)
    if one_size := is_one_size(panels):
        height = BAR_PANEL + PER_BAR * max(len(panel["series"]) for panel in panels)
    rows = [height if any(panel["series"] for panel in row) else EMPTY for row in style.in_rows(panels, columns)]
    wide = COLUMNS * WIDTH
    names = set() if has_front or one_size else {line["name"] for panel in panels for line in panel["series"]}
    in_legend = max(1, int(wide * LEGEND_LETTERS) // (max(map(len, names), default=20) + 8))
    legend = LEGEND_LINE * math.ceil((len(names) + 2) / in_legend)
    tall = 0.7 + sum(rows) + 0.11 * note_lines * rows.count(height) + legend
    is_filled = all(panel["series"] for panel in panels)  # an empty panel has no ticks to share
    shared = {"sharey": data.get("share_y", False) and is_filled, "subtitle": data.get("subtitle", "")}
    figure, axes = style.figure_of(data["title"], (wide, tall), rows, columns, len(panels), **shared)
    for number, (axis, panel) in enumerate(zip(axes, panels, strict=True)):
        if not panel["series"]:
            style.empty(axis, panel, letters)
            continue
        (_draw_bars if one_size else draw_panel)(axis, panel)
        if number % columns and data.get("share_y"):
            axis.set_ylabel("")
        beside = panels[number - 1]["notes"] if number % columns else []
        style.draw_notes(axis, [note for note in panel["notes"] if note not in beside], letters)
    # one legend for all axes, below them: each label once
    pairs = [pair for axis in figure.axes for pair in zip(*axis.get_legend_handles_labels(), strict=True)]
    if handles := {label: handle for handle, label in pairs}:
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=in_legend, frameon=False)
    if has_front:
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the layout is final before labels are placed
        for axis, panel in zip(axes, panels, strict=True):
            annotate(axis, discs(panel))
    return figure


def is_one_size(panels: Sequence[style.Panel]) -> bool:
    """Whether costs were measured at one size alone: there are no lines."""
    lines = [line for panel in panels for line in panel["series"]]
    return all(panel["log_y"] for panel in panels) and {len(line["x"]) for line in lines} == {1}


def _draw_bars(axis: Axes, panel: style.Panel) -> None:
    """The cost of each row at the one size, from 0, and its number."""
    for place, line in enumerate(panel["series"]):
        bar = axis.barh(place, line["y"], color=line["look"]["colour"], height=0.7)
        axis.bar_label(bar, [f"{line['y'][0]:{',.0f' if line['y'][0] >= 100 else '.3g'}}"], padding=3, fontsize=7)
    axis.set_yticks(range(len(panel["series"])), [line["name"] for line in panel["series"]])
    axis.invert_yaxis()
    axis.tick_params(axis="y", length=0)
    axis.grid(False, axis="y")
    axis.margins(x=0.18)
    (size,) = {x for line in panel["series"] for x in line["x"]}
    axis.set_title(f"{panel['title']}, {panel['x'].partition(',')[0]} {size:,}")
    axis.set_xlabel(panel["y"])


def discs(panel: style.Panel) -> list[Disc]:
    """The points of a panel with a front: those on it and the references have their names, others where there is room.

    A model with several sizes has its name once beyond the front, at its best one.
    """
    on_front = {label for x, _, label in panel["front"] if x}
    made = []
    for line in panel["series"]:
        points = list(zip(line["x"], line["y"], line["labels"], strict=True))
        best = max(points, key=lambda point: (point[1], -point[0]))
        for point in points:
            x, y, label = point
            named = label in on_front or (point == best and not on_front & {*line["labels"]})
            needed = label in on_front or line["role"] == "reference"
            text = (label if label in on_front else line["name"]) if named else ""
            if x:
                colour = line["look"]["colour"] if line["shown"] else style.FAINT
                made.append(Disc(x, y, POINT, text, label in on_front, not needed, colour))
    return made


def draw_panel(axis: Axes, panel: style.Panel) -> None:
    for line in panel["series"]:
        if "front" in panel:
            _draw_points(axis, line)
        else:
            _draw_line(axis, line, panel.get("band", False))
    if any(any(line.get("hollow", ())) for line in panel["series"]):
        axis.plot([], [], "o", color=style.SOFT, markerfacecolor="white", label="hollow: extrapolated or added up")
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
    if panel["log_x"] and panel["log_y"]:
        shown = [(line, key) for line in panel["series"] for key in ("low", "y", "high") if key in line]
        cost_axes(axis, [point for line, key in shown for point in zip(line["x"], line[key], strict=True)])
        _draw_exponents(axis, panel["series"])
    elif panel["log_x"]:
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    elif panel["log_y"]:
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.4g}")
    if "front" in panel:
        axis.margins(x=0.12, y=0.08)
    if "limits" in panel:
        low, high = panel["limits"]
        axis.set_ylim(low - 0.03 * (high - low), high + (0.08 if "front" in panel else 0.05) * (high - low))


def _draw_points(axis: Axes, line: Mapping[str, Any]) -> None:
    """The sizes of a model, in its colour if it is `shown`; what keeps nothing is a level, for a logarithm lacks 0."""
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
        axis.plot(x, y, look["dash"], color=colour, marker=look["marker"], **wide, **order)


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


def _draw_exponents(axis: Axes, series: Sequence[Mapping[str, Any]]) -> None:
    """How the cost grows, at the end of each straight line that has room, from the lowest upwards and never closer than
    a letter."""
    straight = sorted((line for line in series if line.get("exponent")), key=lambda line: line["y"][-1])
    if not straight:
        return
    low, high = map(math.log, axis.get_ylim())
    least, below = EXPONENT_APART * (high - low), -math.inf
    axis.set_ylim(math.exp(low), math.exp(high + least))
    left, right = axis.get_xlim()
    axis.set_xlim(left, right * (right / left) ** FOR_EXPONENTS)
    last = max(line["x"][-1] for line in series)  # behind the end of a shorter line there are other lines
    for line in (line for line in straight if line["x"][-1] == last):
        log_height = max(math.log(line["y"][-1]), below + least)
        if log_height > math.log(line["y"][-1]) + FURTHEST * least:
            continue  # it would stand beside the end of another line
        below = log_height
        end = (line["x"][-1], math.exp(below))
        axis.annotate(f"n^{line['exponent']}", end, (6, 0), color=line["look"]["colour"], **AT_THE_END)


def spread(values: list[float]) -> bool:
    """Whether positive values are so far apart that a logarithmic scale shows them better."""
    finite = [value for value in values if math.isfinite(value)]
    return bool(finite) and min(finite) > 0 and max(finite) > LOG_FROM * min(finite)


def cost_axes(axis: Axes, points: Sequence[tuple[float, float]]) -> None:
    """Give `axis` its scales, ranges and ticks for these (size, cost)."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    axis.set(xscale="log", yscale="log")
    sizes, costs = [size for size, _ in points], [cost for _, cost in points]
    low, high = min(costs), max(costs)
    if high < NARROW * low:
        low, high = low / NARROW, high * NARROW
    low, high = low / 1.1, high * 1.1
    axis.set_ylim(low, high)
    subs = (1, 1.5, 2, 3, 5, 7) if high < FLAT * low else (1, 2, 5) if high < DECADES * low else (1,)
    axis.yaxis.set_major_locator(LogLocator(subs=subs))
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
