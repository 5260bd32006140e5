"""Panels of bubbles: speed against accuracy. The width of a bubble is its memory; inside is the marker of its model.

Lengths are in points (1/72 inch): labels and bubbles are the same in PNG and PDF.
"""

from collections.abc import Mapping
from typing import Any

from harness.report.plots import style
from harness.report.plots.file import Sources
from harness.report.plots.labels import Disc, annotate
from harness.report.plots.style import Figure
from harness.report.scores import messages, tradeoff
from harness.report.spec.figure import FigureSpec

WIDTH, HEIGHT = 7.5, 4.4  # of a panel, inches
LARGEST = 15.0  # radius of the most memory in the figure
LETTERS = 116  # of a line of notes


def data(figure: FigureSpec, sources: Sources) -> dict[str, Any]:
    every = tradeoff.panels(figure, sources.cells, sources.paper)
    panels = [panel for panel in every if panel["series"]] or every
    for panel in panels:  # labels tell the rows of one model apart
        panel["series"] = [line | {"look": style.look(line["model"], line["role"])} for line in panel["series"]]
        panel["message"] = messages.of_bubbles(panel["title"].splitlines()[0], panel["series"])
    if len(panels) < len(every):
        panels[-1]["notes"].append("No bubble of ours yet, for lack of runs.")
    said = [panel for panel in panels if not panel.get("published")] or panels
    return style.titles(figure.title, said) | {"panels": panels}


def draw(data: Mapping[str, Any]) -> Figure:
    """The panels below each other; small bubbles are in front of large ones, and published numbers are pale."""
    panels = data["panels"]
    size = (WIDTH, HEIGHT * len(panels))
    figure, axes = style.figure_of(data["title"], size, [1] * len(panels), 1, len(panels), data.get("subtitle", ""))
    scale = LARGEST / max(line["size"][0] for panel in panels for line in panel["series"])
    discs = []
    for axis, panel in zip(axes, panels, strict=True):
        axis.set_title(style.wrapped(panel["title"], LETTERS))
        discs.append([])
        for line in sorted(panel["series"], key=lambda line: -line["size"][0]):
            (x,), (y,), (memory,), look = line["x"], line["y"], line["size"], line["look"]
            if "low" in line:
                (low,), (high,) = line["low"], line["high"]
                axis.errorbar(x, y, yerr=[[y - low], [high - y]], color=style.FAINT, linewidth=0.7, zorder=1)
            alpha = 0.4 if panel.get("published") else 0.75
            axis.plot(x, y, "o", color=look["colour"], markersize=2 * scale * memory, alpha=alpha)
            axis.plot(x, y, **style.marker_style(look, markersize=4))
            discs[-1].append(Disc(x, y, scale * memory, f"{line['name']}, {memory:.2g}×", line["role"] == "own"))
        axis.axvline(1, color=style.FAINT, linewidth=0.8, linestyle="--", zorder=0)
        axis.margins(0.16)
        axis.set(xlabel=f"{panel['x']} → (beside a name: relative memory)", ylabel=f"{panel['y']} ↑")
        style.draw_notes(axis, panel["notes"], LETTERS)
    annotate(figure, list(zip(axes, discs, strict=True)))
    return figure
