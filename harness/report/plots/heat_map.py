"""The heat map of a ranked table: rows by rank, the ranked columns, each score as a number in its square, the ranks.

The same ranking gives the same bytes; its digest is in the file. Every place is in inches.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.report.pages.ranking import Ranking
from harness.report.plots import drawn
from harness.report.plots.matrix_plot import NOTHING, sequential, text_colour
from harness.report.render.layout import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE, TALL = 0.42, 0.19  # of a square
SMALL = 6.5  # points
LETTER = 0.6 * SMALL / 72
TOP, FOOT, RIGHT = 0.4, 0.3, 1.55
LONGEST_NAME = 34
DIGITS = 4  # of what the digest is made of: what all machines agree on


def path_of(name: str, figures: Path) -> Path:
    return figures / f"{name}-ranks.png"


def picture(plot: Path, page: Path) -> Picture:
    """The heat map as the page of its table shows it."""
    caption = (
        "The number in a square is the score of a row, 0 at the control and 1 at the reference of its column; the "
        "darker the higher. On the right the interquartile mean, the rank and its range in 95 % of the draws. Below "
        "the line: rows that lack a column, which have no rank."
    )
    return Picture("Heat map", caption, Path(os.path.relpath(plot, page.parent)).as_posix())


def digest_of(title: str, ranking: Ranking) -> str:
    """What the picture shows, as 64 hexadecimal digits, which the file holds."""
    content = [title, ranking.columns, _lines(ranking), _shown(ranking), _ranks(ranking)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def draw(title: str, ranking: Ranking, path: Path) -> None:
    """Draw the heat map into a file."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = [_short(name) for name in _lines(ranking)]
    left = 0.2 + LETTER * max(map(len, names))
    head = 0.15 + LETTER * max(len(_short(name)) for name in ranking.columns)
    width, height = WIDE * len(ranking.columns), TALL * len(names)
    page_width = max(left + width + RIGHT, 0.085 * len(title) + 0.3)
    total = TOP + head + height + FOOT
    with plt.rc_context({"text.parse_math": False, "font.size": SMALL}):  # a name is text, whatever signs it has
        page = plt.figure(figsize=(page_width, total))
        page.text(0.1 / page_width, 1 - 0.2 / total, title, va="center", fontsize=10)
        axis = page.add_axes((left / page_width, FOOT / total, width / page_width, height / total))
        _squares(axis, ranking)
        axis.set_yticks(range(len(names)), names)
        axis.set_xticks(range(len(ranking.columns)), [_short(name) for name in ranking.columns], rotation=90)
        axis.xaxis.tick_top()
        axis.tick_params(length=0, pad=2, labelsize=SMALL)
        _right(axis, ranking)
        foot = "0: the control of the column, 1: its reference. Empty: a seed is missing."
        page.text(0.1 / page_width, 0.12 / total, foot, va="center", color="0.25")
        drawn.save(page, path, digest_of(title, ranking), dpi=180)
        plt.close(page)


def _lines(ranking: Ranking) -> list[str]:
    """Ranked rows, best first, then the others: those that lack least first."""
    others = sorted(ranking.missing, key=lambda row: (len(ranking.missing[row]), row))
    return [*(one.row for one in ranking.rows), *others]


def _shown(ranking: Ranking) -> list[list[float | None]]:
    """(rows, columns), None where a row has no score of every seed."""
    return [
        [
            None if column in ranking.missing.get(row, ()) else round(ranking.scores[row, column], DIGITS) + 0.0
            for column in ranking.columns
        ]
        for row in _lines(ranking)
    ]


def _ranks(ranking: Ranking) -> list[tuple[str, str]]:
    """The interquartile mean and the rank of each ranked row."""
    found = []
    for one in ranking.rows:
        low, high = one.ranks
        found.append((f"{one.mean:z.2f}", f"{one.rank}" + (f" ({low} to {high})" if low < high else "")))
    return found


def _squares(axis: "Axes", ranking: Ranking) -> None:
    import math

    values = _shown(ranking)
    axis.set_facecolor(NOTHING)
    numbers = [[math.nan if value is None else value for value in row] for row in values]
    image = axis.imshow(numbers, aspect="auto", interpolation="none", cmap=sequential(), vmin=0, vmax=1)
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            if value is not None:
                text = f"{value:z.2f}"
                axis.text(j, i, text, ha="center", va="center", color=text_colour(image, value))
    for i in range(1, len(values)):
        is_end = i == len(ranking.rows)
        axis.axhline(i - 0.5, color="0.1" if is_end else "0.8", linewidth=1.2 if is_end else 0.3)
    for j in range(1, len(ranking.columns)):
        axis.axvline(j - 0.5, color="0.8", linewidth=0.3)


def _right(axis: "Axes", ranking: Ranking) -> None:
    """Interquartile mean and rank beside each ranked row, under their names."""
    end = len(ranking.columns) - 0.5
    places: Sequence[float] = (end + 0.5 / WIDE * 0.9, end + 0.62 / WIDE)
    for place, text, side in zip(places, ("mean", "rank"), ("right", "left"), strict=True):
        axis.text(place, -0.9, text, ha=side, va="center", fontweight="bold", clip_on=False)
    for i, entries in enumerate(_ranks(ranking)):
        for place, text, side in zip(places, entries, ("right", "left"), strict=True):
            axis.text(place, i, text, ha=side, va="center", clip_on=False)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
