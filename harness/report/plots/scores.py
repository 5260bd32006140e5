"""A panel for each column of a table: every row's seeds as dots, its mean with its interval; a shade: tied for best."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness.config.table_rows import labelled
from harness.report.pages.answer import ColumnAnswer
from harness.report.plots import style
from harness.report.plots.style import Axes, Figure
from harness.report.render.words import listed
from harness.report.scores.comparison import BASELINE
from harness.report.scores.places import Place
from harness.report.scores.scores import Score, rank

KEY = "bold: reference and control; dotted line: simple predictor"
SHADE = "#3D84BF2B"  # of rows that are tied for best
ACROSS = 3  # panels in a row
PANEL, MARGIN = 4.2, 0.4  # inches wide
PER_ROW = 0.19  # inches
LONGEST_NAME = 34
DIGITS = 4  # behind the point: what all machines agree on
BESIDE = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "annotation_clip": False}
MARK = BESIDE | {"va": "center", "fontsize": 6.5, "color": style.SOFT}
BETTER = {True: "higher is better", False: "lower is better", None: ""}


def shown_columns(answers: Sequence[ColumnAnswer]) -> list[ColumnAnswer]:
    """The columns that have two rows to compare; one of several with the same rows in the same order at the same
    resolution, such as R-1 and R-L."""
    shown: dict[tuple[object, ...], ColumnAnswer] = {}
    for answer in (answer for answer in answers if answer.tests.rows > 1):
        order = tuple(score.key for score in answer.group.scores if score.by_seed)
        shown.setdefault((order, answer.resolution, answer.group.where), answer)
    return list(shown.values())


def data(title: str, answers: Sequence[ColumnAnswer]) -> dict[str, Any]:
    columns = shown_columns(answers)
    if not columns:
        return {"title": title, "subtitle": "", "panels": []}
    left_out = sum(answer.tests.rows > 1 for answer in answers) - len(columns)
    alike = f" · columns not drawn, which repeat another: {left_out}" if left_out else ""
    subtitle = f"{title} · {listed(list(dict.fromkeys(answer.group.where for answer in columns)))}{alike} · {KEY}"
    first, title = columns[0], columns[0].short.rstrip(".")
    if first.group.strongest is not None and not first.rows_ahead:
        title += f"; {first.baseline()}"
    return {"title": title, "subtitle": subtitle, "panels": [_panel_data(answer) for answer in columns]}


def _panel_data(answer: ColumnAnswer) -> dict[str, Any]:
    """`rows`: those with a score and the baselines, best first."""
    group, tests, spec = answer.group, answer.tests, answer.spec
    resolution = "R unknown" if tests.resolution is None else f"R = {answer.resolution}".replace("= >", ">")
    resolved = f"{answer.pairs} pairs resolved" if tests.pairs else "no test"
    better = BETTER[group.resolved.higher_is_better]
    measured = [score for score in group.scores if score.by_seed]
    limits = measured[0].limits
    return {
        "title": answer.name,
        "tests": f"{resolution} · {resolved}",
        "limits": [end if math.isfinite(end) else None for end in limits],
        "x": ", ".join(filter(None, (spec.unit_of(group.column), better))),
        "rows": [
            _drawn_row(answer, score) for score in rank([*measured, *group.baselines], group.resolved.higher_is_better)
        ],
    }


def _drawn_row(answer: ColumnAnswer, score: Score) -> dict[str, Any]:
    name, rows, mean = score.row.removeprefix(BASELINE), answer.spec.rows, score.estimate
    role = "baseline" if score in answer.group.baselines else ""
    if not role:
        sides = (("control", answer.tests.control), ("reference", answer.tests.reference))
        role = next((name for name, side in sides if score == side), "")
    model = rows[score.row].model if score.row in rows else score.row
    return {
        "name": labelled(f"{name} ({score.setting})" if score.setting else name, model),
        "role": role,
        "look": style.look(model, role),
        "seeds": [round(value, DIGITS) for _, value in sorted(score.by_seed.items())],
        "mean": round(mean.mean, DIGITS),
        # seeds that solve or fail have no interval of their mean
        "interval": (mean.interval and not answer.tests.runs and [round(end, DIGITS) for end in mean.interval]) or None,
        "place": answer.tests.places.get(score.key),
    }


def draw(data: Mapping[str, Any]) -> Figure:
    panels = data["panels"]
    across = min(ACROSS, len(panels))
    in_rows = (panels[start : start + across] for start in range(0, len(panels), across))
    heights = [0.95 + PER_ROW * max(len(panel["rows"]) for panel in row) for row in in_rows]
    size = (MARGIN + PANEL * across, sum(heights) + 0.4)
    figure, axes = style.figure_of(data["title"], size, heights, across, len(panels), data["subtitle"])
    for axis, panel in zip(axes, panels, strict=True):
        _draw_scores(axis, panel)
    return figure


def _draw_scores(axis: Axes, panel: Mapping[str, Any]) -> None:
    rows = panel["rows"]
    for height, row in enumerate(rows):
        look, mean = row["look"], row["mean"]
        colour = look["colour"]
        if row["place"] == Place.TIED:
            axis.axhspan(height - 0.5, height + 0.5, color=SHADE, linewidth=0, zorder=0)
        if row["role"] == "baseline":
            axis.axvline(mean, color=colour, linewidth=0.7, linestyle=look["dash"], zorder=1)
            axis.plot(mean, height, **style.marker_style(look, markersize=8))
            continue
        axis.plot(row["seeds"], [height] * len(row["seeds"]), ".", color=colour, alpha=0.45, markersize=3.5)
        if row["interval"] is not None:
            ends = [[mean - row["interval"][0]], [row["interval"][1] - mean]]
            axis.errorbar(mean, height, xerr=ends, color=colour, linewidth=1, zorder=3)
        hollow = row["place"] is None
        axis.plot(mean, height, **style.marker_style(look, hollow=hollow, zorder=4, markersize=5))
        if row["place"] == Place.UNCLEAR:
            axis.annotate("?", (1, height), (4, 0), **MARK)
    axis.set_yticks(range(len(rows)), [style.shortened(row["name"], LONGEST_NAME) for row in rows])
    for label, row in zip(axis.get_yticklabels(), rows, strict=True):
        label.set_color(row["look"]["colour"] if row["role"] == "baseline" else style.INK)
        label.set_fontweight("bold" if row["role"] in ("reference", "control") else "normal")
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
    axis.grid(False, axis="y")
    axis.margins(x=0.08)
    axis.locator_params(axis="x", nbins=6)
    ends, limits = axis.get_xlim(), panel["limits"]
    room = 0.04 * (ends[1] - ends[0])
    low, high = (None if end is None else end + sign * room for end, sign in zip(limits, (-1, 1), strict=True))
    axis.set_xlim(ends[0] if low is None else max(low, ends[0]), ends[1] if high is None else min(high, ends[1]))
    axis.set_xlabel(panel["x"], fontsize=7)
    axis.set_title(f"{panel['title']}\n", fontsize=8, fontweight="bold")
    axis.annotate(panel["tests"], (0.5, -0.5), (0, 5), ha="center", fontsize=7, color=style.SOFT, **BESIDE)
