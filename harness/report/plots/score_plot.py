"""A panel for each column of a table: every row's seeds as dots, its mean with its interval, its tier as a shade."""

import hashlib
import json
import math
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.report.pages.answer import ColumnAnswer
from harness.report.plots import drawn
from harness.report.render.layout import Picture
from harness.report.scores.comparison import BASELINE
from harness.report.scores.scores import Score, rank

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito: colour-blind readers can distinguish these, and they differ in grey
COLOURS = {"row": "0.15", "reference": "#0072B2", "control": "#D55E00", "baseline": "0.55"}
MEANING = {"row": "mean, 95 % interval, seeds", "reference": "reference", "control": "control", "baseline": "baseline"}
SHADE = "#DCE9F5"  # of every other tier
ACROSS = 3  # panels in a row
PANEL, MARGIN = 4.2, 0.4  # inches wide
LETTERS = 13.3  # of the title in an inch
PER_ROW = 0.19  # inches
LONGEST_NAME = 30
LEGEND = 0.45  # inches
TIER = {"ha": "right", "va": "center", "fontsize": 6.5, "color": "0.4"}


def path_of(name: str, figures: Path) -> Path:
    return figures / f"{name}-scores.png"


def picture(plot: Path, page: Path) -> Picture:
    """The plot as the page of its table shows it."""
    caption = (
        "Best row first. Small dots are seeds, bars are 95 % intervals of three or more seeds. Shades and the numbers "
        "on the right are tiers; a hollow mean has no test."
    )
    return Picture("Scores and intervals", caption, Path(os.path.relpath(plot, page.parent)).as_posix())


def panels(found: Sequence[ColumnAnswer]) -> list[ColumnAnswer]:
    return [answer for answer in found if answer.tests.rows > 1]


def digest_of(title: str, found: Sequence[ColumnAnswer]) -> str:
    """What the plot shows, as 64 hexadecimal digits, which the file holds."""
    content: list[Any] = [_heading(title, found)]
    for answer in panels(found):
        rows = [(*score.key, _rounded(score), answer.tests.tiers.get(score.key)) for score in _lines(answer)]
        content.append([_title(answer), rows, [_kind(answer, score) for score in _lines(answer)]])
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _heading(title: str, found: Sequence[ColumnAnswer]) -> str:
    """The title in lines that the panels are wide enough for."""
    width = MARGIN + PANEL * min(ACROSS, len(panels(found)))
    return textwrap.fill(title, int(LETTERS * width))


def _rounded(score: Score) -> list[float]:
    """To what all machines agree on."""
    return [round(value, 4) for _, value in sorted(score.by_seed.items())]


def draw(title: str, found: Sequence[ColumnAnswer], path: Path) -> None:
    """Draw the panels into a file. The same answers give the same bytes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = panels(found)
    across = min(ACROSS, len(shown))
    down = math.ceil(len(shown) / across)
    most = [max(len(_lines(answer)) for answer in shown[row * across : (row + 1) * across]) for row in range(down)]
    heights = [0.85 + PER_ROW * rows for rows in most]
    size = (MARGIN + PANEL * across, sum(heights) + 0.4 + LEGEND)
    page, grid = plt.subplots(
        down, across, figsize=size, squeeze=False, layout="constrained", gridspec_kw={"height_ratios": heights}
    )
    for axis in grid.flat[len(shown) :]:
        axis.axis("off")
    for axis, answer in zip(grid.flat, shown, strict=False):
        _panel(axis, answer)
    page.suptitle(_heading(title, found), fontsize=10)
    _legend(page, shown)
    drawn.save(page, path, digest_of(title, found), dpi=130)
    plt.close(page)


def _panel(axis: "Axes", answer: ColumnAnswer) -> None:
    lines = _lines(answer)
    for place, score in enumerate(lines):
        kind, mean = _kind(answer, score), score.estimate
        colour = COLOURS[kind]
        if answer.tests.tiers.get(score.key, 0) % 2:
            axis.axhspan(place - 0.5, place + 0.5, color=SHADE, linewidth=0, zorder=0)
        if kind == "baseline":
            axis.axvline(mean.mean, color=colour, linewidth=0.7, linestyle=":", zorder=1)
            axis.plot(mean.mean, place, "|", color=colour, markersize=8)
            continue
        axis.plot(list(score.by_seed.values()), [place] * mean.n, ".", color=colour, alpha=0.45, markersize=3.5)
        if mean.half_width is not None:
            axis.errorbar(mean.mean, place, xerr=mean.half_width, color=colour, linewidth=1, capsize=2, zorder=3)
        inside = colour if score.key in answer.tests.tiers else "white"
        axis.plot(mean.mean, place, "o", color=colour, markerfacecolor=inside, markersize=4.5, zorder=4)
        tier = answer.tests.tiers.get(score.key, "")
        axis.annotate(f"{tier}", (1, place), (-3, 0), ("axes fraction", "data"), "offset points", **TIER)
    axis.set_yticks(range(len(lines)), [textwrap.shorten(_name(score), LONGEST_NAME) for score in lines], fontsize=7)
    for label, score in zip(axis.get_yticklabels(), lines, strict=True):
        label.set_color(COLOURS[_kind(answer, score)])
    axis.set_ylim(len(lines) - 0.5, -0.5)
    axis.tick_params(axis="x", labelsize=7)
    axis.tick_params(axis="y", length=0)
    axis.grid(True, axis="x", alpha=0.3)
    axis.margins(x=0.08)
    unit = answer.spec.unit_of(answer.group.column)
    better = {True: "→", False: "←", None: ""}[answer.spec.higher_is_better(answer.group.column)]
    axis.set_xlabel(f"{unit} {better}".strip(), fontsize=7)
    axis.set_title(_title(answer), fontsize=7.5)


def _title(answer: ColumnAnswer) -> str:
    tests = answer.tests
    known = answer.stated_resolution if tests.resolution is not None else "R unknown"
    resolved = f"{answer.pairs} pairs resolved" if tests.pairs else "no test"
    return f"{answer.name} · {answer.group.budget} budget\n{known} · {resolved}"


def _lines(answer: ColumnAnswer) -> list[Score]:
    """Rows with a score and baselines, best first."""
    group = answer.group
    measured = [score for score in group.scores if score.by_seed]
    return rank([*measured, *group.baselines], answer.spec.higher_is_better(group.column))


def _kind(answer: ColumnAnswer, score: Score) -> str:
    if score in answer.group.baselines:
        return "baseline"
    if score == answer.tests.control:
        return "control"
    return "reference" if score == answer.tests.reference else "row"


def _name(score: Score) -> str:
    name = score.row.removeprefix(BASELINE)
    return f"{name} ({score.setting})" if score.setting else name


def _legend(page: Any, shown: Sequence[ColumnAnswer]) -> None:
    from matplotlib.lines import Line2D

    kinds = {_kind(answer, score) for answer in shown for score in _lines(answer)}
    handles = [
        Line2D([], [], linestyle="", marker="|" if kind == "baseline" else "o", color=COLOURS[kind], markersize=5)
        for kind in COLOURS
        if kind in kinds
    ]
    names = [MEANING[kind] for kind in COLOURS if kind in kinds]
    page.legend(handles, names, loc="outside lower center", ncols=4, fontsize=7, frameon=False)
