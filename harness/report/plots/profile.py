"""The performance profiles of a ranked table (Agarwal et al., 2021, arXiv 2108.13264): the share of a row's runs that
reach a score, against this score. Each ranked row has a panel, because many curves coincide near the reference.

R rows, K thresholds
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.report.pages.ranking import Ranking
from harness.report.plots import style
from harness.report.spec.table import TableSpec
from harness.report.stats.ranks import share_intervals, shares_reaching

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CAPTION = (
    "A panel shows the share of a row's runs that reach a score, where 0 is the control of the column and 1 its "
    "reference; best row first, with its mean in brackets. Abilities, the columns of an ability and the seeds of a "
    "column count alike. The shaded band is the 95 % interval in the draws that also give the ranks. The other rows "
    "are grey. Bold: the reference and the control."
)
THRESHOLDS = np.linspace(-0.1, 1.2, 131).round(2)  # steps of 0.01, beyond both control and reference
ACROSS = 4  # panels in a row
WIDE, TALL, MARGIN = 1.85, 1.3, 0.35  # of a panel and beside all, inches
LONGEST_NAME = 24
DIGITS = 4  # behind the point: what all machines agree on
OTHERS = {"color": "0.82", "linewidth": 0.6}
STEPS = {"drawstyle": "steps-pre"}  # a share holds from behind the threshold before to its own


def data(spec: TableSpec, ranks: Ranking) -> dict[str, Any]:
    """`x` (K,): the thresholds. `rows`, best first: name, role, look, mean, and the shares `y`, `low`, `high` (K,)."""
    order = [ranks.seed_rows.index(ranked.row) for ranked in ranks.rows]
    scores = replace(ranks.seeds, scores=ranks.seeds.scores[order])
    low, high = share_intervals(scores, THRESHOLDS)
    curves = {"y": shares_reaching(scores, THRESHOLDS), "low": low, "high": high}  # each (R, K)
    roles = {spec.control_of(name): "control" for name in ranks.columns}
    roles |= {spec.reference_of(name): "reference" for name in ranks.columns}
    series = []
    for number, ranked in enumerate(ranks.rows):
        model = spec.rows[ranked.row].model if ranked.row in spec.rows else ranked.row
        shares = {key: curve[number].round(DIGITS).tolist() for key, curve in curves.items()}
        line = {"name": ranked.row, "model": model, "role": roles.get(ranked.row, ""), "mean": f"{ranked.mean:z.2f}"}
        series.append(line | shares)
    (panel,) = style.with_looks([{"series": series}])
    return {"title": spec.title, "x": THRESHOLDS.tolist(), "rows": panel["series"]}


def draw(data: Mapping[str, Any]) -> "Figure":
    """A panel for each row, four side by side."""
    rows = data["rows"]
    across = min(ACROSS, len(rows))
    heights = [TALL] * len(style.in_rows(rows, across))
    size = (max(MARGIN + WIDE * across, len(data["title"]) / style.LETTERS), 1.0 + sum(heights))
    shared = {"sharex": True, "sharey": True}
    figure, axes = style.figure_of(data["title"], size, heights, across, len(rows), **shared)
    for number, (axis, row) in enumerate(zip(axes, rows, strict=True)):
        _draw_row(axis, data["x"], row, rows)
        axis.tick_params(labelbottom=number + across >= len(rows))
    figure.supxlabel("score: 0 is the control of the column, 1 its reference", fontsize=8)
    figure.supylabel("share of runs that reach the score", fontsize=8)
    return figure


def _draw_row(axis: "Axes", x: Sequence[float], row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """The curve of a row with its band, in front of the other curves."""
    for other in rows:
        if other is not row:
            axis.plot(x, other["y"], **OTHERS, **STEPS)
    look = row["look"]
    axis.fill_between(x, row["low"], row["high"], step="pre", color=look["colour"], alpha=0.2, linewidth=0)
    axis.plot(x, row["y"], look["dash"], color=look["colour"], linewidth=1.6, **STEPS)
    title = f"{style.shortened(row['name'], LONGEST_NAME)} ({row['mean']})"
    axis.set_title(title, fontsize=7.5, fontweight="bold" if row["role"] else "normal")
    axis.set(xlim=(x[0], x[-1]), ylim=(-0.04, 1.04), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
