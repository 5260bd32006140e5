"""Figures of lines as PNG and PDF. The same panels give the same bytes of content; a digest of them is in the file."""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from itertools import cycle, product
from pathlib import Path
from typing import TYPE_CHECKING

from harness.report.plots import drawn
from harness.report.plots.bubble_plot import wrapped
from harness.report.scores.lines import LineFigure, LinePanel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito: colour-blind readers can distinguish these; more lines than colours take other markers
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F6A00")
MARKERS = "os^Dv"
REFERENCE = "0.45"
WIDTH = 3.75  # of a panel, inches


def digest_of(figure: LineFigure, panels: Sequence[LinePanel]) -> str:
    """What these panels show, as 64 hexadecimal digits, which the files hold."""
    content = [figure.title, figure.x_label, figure.y_label, figure.log_x, *(asdict(panel) for panel in panels)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def draw(figure: LineFigure, panels: Sequence[LinePanel], paths: Sequence[Path]) -> None:
    """Draw the panels, two in a row, into files, with one legend for all."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    labels = list(dict.fromkeys(line.label for panel in panels for line in panel.lines if not line.reference))
    looks = dict(zip(labels, cycle(product(MARKERS, COLOURS)), strict=False))
    legend = math.ceil((len(labels) + 2) / 4) * 0.2
    size = (2 * WIDTH, 0.9 + legend + 3.6 * rows)
    page, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, sharey=True, layout="constrained")
    for axis in grid.flat[len(panels) :]:
        axis.axis("off")
    for axis, panel in zip(grid.flat, panels, strict=False):
        _panel(axis, figure, panel, looks, 2 // columns)
    page.suptitle(figure.title, fontsize=10)
    handles = {}
    for axis in grid.flat:
        handles |= {label: handle for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    if handles:
        page.legend(handles.values(), handles, loc="outside lower center", ncols=4, fontsize=7, frameon=False)
    digest = digest_of(figure, panels)
    for path in paths:
        drawn.save(page, path, digest, dpi=200)
    plt.close(page)


def _panel(axis: "Axes", figure: LineFigure, panel: LinePanel, looks: dict[str, tuple[str, str]], upcast: int) -> None:
    axis.set_title(panel.title, fontsize=9)
    text = wrapped("\n".join(panel.notes), 60 * upcast)
    if not panel.lines:
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_color("0.8")
        axis.text(0.03, 0.97, text, transform=axis.transAxes, fontsize=7.5, va="top")
        return
    for line in panel.lines:
        marker, colour = ("x", REFERENCE) if line.reference else looks[line.label]
        x, y = [point.x for point in line.points], [point.y for point in line.points]
        bars = [[point.y - point.low for point in line.points], [point.high - point.y for point in line.points]]
        style = {
            "marker": marker,
            "color": colour,
            "markersize": 4.5,
            "linewidth": 1.2,
            "capsize": 2,
            "elinewidth": 0.7,
        }
        axis.errorbar(x, y, yerr=bars, label=line.label, linestyle="--" if line.reference else "-", **style)
    if panel.chance is not None:
        axis.axhline(panel.chance, color="0.6", linewidth=0.8, linestyle=":", label="chance")
    if figure.log_x:
        places = {point.x for line in panel.lines for point in line.points}
        if 0 in places:  # a control keeps nothing, which has no logarithm
            least, most = min(places - {0}, default=1), max(*places, 1)
            axis.set_xscale("symlog", base=2, linthresh=least)
            axis.set_xlim(-least / 4, 1.4 * most)
        else:
            axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.grid(True, alpha=0.3)
    axis.tick_params(labelsize=8)
    axis.set_xlabel(figure.x_label, fontsize=8)
    axis.set_ylabel(figure.y_label, fontsize=8)
    axis.text(0, -0.2, text, transform=axis.transAxes, fontsize=6.5, color="0.25", va="top")
