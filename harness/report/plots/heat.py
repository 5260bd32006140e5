"""The heat map of a ranked table: rows by rank, the ranked columns, each score as a number in its square, the ranks."""

from collections.abc import Mapping
from typing import Any

from harness.report.pages.ranking import Ranking
from harness.report.plots import style
from harness.report.plots.style import Figure
from harness.report.render.words import span

CAPTION = (
    "0: the control, 1: the reference of a column. On the right: mean over abilities, rank, its range in 95 % of draws."
)
FOOT = "0: the control of the column, 1: its reference. Empty: a seed is missing."
WIDE, TALL = 0.42, 0.19  # of a square, inches
LETTER = 0.055  # inches
RIGHT = 1.3  # inches, of the ranks
LONGEST_NAME = 38
NARROWEST = 4.6  # inches, of a figure with a title
SHOWN = 3  # rows in the title
DIGITS = 4  # of what the digest is made of: what all machines agree on


def data(title: str, ranking: Ranking) -> dict[str, Any]:
    """Ranked rows, best first, then the others with a score: those that lack least first. `values` (rows, columns) are
    None where a row has no score of every seed. `ranks`: the mean and the rank of each ranked row."""
    some = [row for row, columns in ranking.missing.items() if len(columns) < len(ranking.columns)]
    others = sorted(some, key=lambda row: (len(ranking.missing[row]), row))
    rows = [*(ranked.row for ranked in ranking.rows), *others]
    values = [
        [
            None if column in ranking.missing.get(row, ()) else round(ranking.scores[row, column], DIGITS) + 0.0
            for column in ranking.columns
        ]
        for row in rows
    ]
    spans = [f" ({span(row.ranks)})" if row.ranks[0] < row.ranks[1] else "" for row in ranking.rows]
    ranks = [[f"{row.mean:z.2f}", f"{row.rank}{ends}"] for row, ends in zip(ranking.rows, spans, strict=True)]
    best = [f"{ranked.row} ({ranked.mean:z.2f})" for ranked in ranking.rows[:SHOWN]]
    message = f"Ahead by the mean: {', '.join(best)}, of {len(ranking.rows)} rows"
    grid = {"rows": rows, "columns": list(ranking.columns), "values": values, "ranks": ranks}
    return {"title": message, "subtitle": title} | grid


def draw(data: Mapping[str, Any]) -> Figure:
    rows, columns = ([style.shortened(name, LONGEST_NAME) for name in data[key]] for key in ("rows", "columns"))
    wide = 0.3 + LETTER * max(map(len, rows)) + WIDE * len(columns) + RIGHT
    tall = 0.7 + LETTER * max(map(len, columns)) + TALL * len(rows)
    figure, (axis,) = style.figure_of(data["title"], (max(wide, NARROWEST), tall), [1], 1, 1, data["subtitle"])
    image = style.squares(axis, data["values"], cmap=style.sequential(), vmin=0, vmax=1)
    style.print_numbers(axis, image, data["values"], "{:z.2f}".format)
    if len(rows) > len(data["ranks"]):
        axis.axhline(len(data["ranks"]) - 0.5, color="0.1", linewidth=1.2)
    axis.set_yticks(range(len(rows)), rows)
    axis.set_xticks(range(len(columns)), columns, rotation=90)
    axis.xaxis.tick_top()
    figure.supxlabel(FOOT, x=0.01, ha="left", fontsize=6.5, color=style.SOFT)
    axis.tick_params(length=0, pad=2, labelsize=6.5)
    # under their names, beside each ranked row: the mean and the rank
    for column, (name, inches, side) in enumerate((("mean", 0.4, "right"), ("rank", 0.5, "left"))):
        offset = {"xycoords": axis.get_yaxis_transform(), "textcoords": "offset points", "annotation_clip": False}
        offset |= {"ha": side, "va": "center"}
        axis.annotate(name, (1, -0.9), (72 * inches, 0), fontweight="bold", **offset)
        for i, texts in enumerate(data["ranks"]):
            axis.annotate(texts[column], (1, i), (72 * inches, 0), **offset)
    return figure
