"""The performance profile of a ranked table: which share of a row's runs reaches each score, as one curve per row."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.report.pages.ranking import Ranking
from harness.report.plots import style
from harness.report.spec.table import TableSpec
from harness.report.stats.ranks import shares_reaching, share_intervals

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

THRESHOLDS = np.linspace(-0.05, 1.1, 116).round(2)
ALL, LEADING = 8, 5
DIGITS = 4


def data(spec: TableSpec, ranks: Ranking) -> dict[str, Any]:
    order = [ranks.seed_rows.index(row.row) for row in ranks.rows]
    scores = replace(ranks.seeds, scores=ranks.seeds.scores[order])
    shares = shares_reaching(scores, THRESHOLDS)
    low, high = share_intervals(scores, THRESHOLDS)
    series = []
    for i, row in enumerate(ranks.rows):
        model = spec.rows[row.row].model if row.row in spec.rows else row.row
        role = "reference" if model in spec.reference else "control" if model in spec.control else ""
        series.append({"name": row.row, "mean": row.mean, "model": model, "role": role, "x": THRESHOLDS.tolist(), "y": shares[i].round(4).tolist(), "low": low[i].round(4).tolist(), "high": high[i].round(4).tolist(),
          "shown": len(ranks.rows) <= ALL or i < LEADING or bool(role)})
    (panel,) = style.with_looks([{"series": series}])
    return {"title": spec.title, "panel": panel}

def draw(data):
    figure, (axis,) = style.figure_of(data["title"], (7.5, 3.9), [1], 1, 1)
    series = data["panel"]["series"]
    band = [l for l in series if l["shown"] and not l["role"]][:BANDS]
    for i, line in enumerate(series):
        look = line["look"]
        if line in band:
            axis.fill_between(line["x"], line["low"], line["high"], step="pre", color=look["colour"], alpha=0.15, linewidth=0)
    g = None
    for i, line in enumerate(series):
        look = line["look"]
        if not line["shown"]:
            axis.plot(line["x"], line["y"], drawstyle="steps-pre", color="0.82", linewidth=0.8, zorder=1.5, label="the others" if g is None else None)
            g = 1
    for i, line in reversed(list(enumerate(series))):
        look = line["look"]
        if line["shown"]:
            axis.plot(line["x"], line["y"], look["dash"], drawstyle="steps-pre", color=look["colour"], linewidth=1.4, zorder=3, label=f"{line['name']} ({line['mean']:.2f})", marker=look["marker"], markevery=(3+2*i, 12))
    axis.set(xlim=(-0.05, 1.1), ylim=(-0.02,1.02), xlabel="score τ: 0 is the control of the column, 1 its reference", ylabel="share of the runs with a score of at least τ")
    h,l = axis.get_legend_handles_labels()
    figure.legend(h[::-1],l[::-1],loc="outside right upper", frameon=False)
    return figure
BANDS = 2
