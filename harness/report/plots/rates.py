"""The searches of a table's learning rates: per column a square for each row and rate, with its validation score.

`draw` draws any heat maps of the same rows.
"""

import math
from collections.abc import Mapping
from typing import Any

from harness.config.table_rows import row_name
from harness.report.pages.caveats import rate_text
from harness.report.plots import style
from harness.report.plots.style import Axes, Figure
from harness.report.render.words import counted
from harness.report.scores.tuning import Selected, Tuning, tuned_columns
from harness.report.spec.table import TableSpec

WIDE, TALL = 0.34, 0.17  # of a square, inches
LETTER = 0.06  # inches
NARROWEST = 5.0  # inches, of a figure with a title
GAP = 0.15  # inches between panels
LONGEST_NAME = 34
DIGITS = 4  # behind the point: what all machines agree on
FRAME = "#D55E00"
FAILED = "×"


def data(spec: TableSpec, selected: Selected) -> dict[str, Any]:
    """`values` (rows, rates) of a panel are None where a rate was not tried or its trials failed; `failed` and `chosen`
    are the places (row, rate) of such trials and of the choices.

    Columns of other scores of the same cells are left out.
    """
    of_columns = {
        name: rows
        for columns in selected.values()
        for name, rows in tuned_columns(columns, spec.budget).items()
        if (column := spec.columns[name]).evaluation is None and column.reaches is None
        if set(columns[name]["metric"]) == {column.metric}
    }
    searches = [tuning for rows in of_columns.values() for tuning in rows.values()]
    tuned = {row for rows in of_columns.values() for row in rows}
    rows = [*(row for row in spec.rows if row in tuned), *sorted(tuned - set(spec.rows))]
    kept = sum(tuning.is_recipe for tuning in searches)
    return {
        "title": f"The recipe's learning rate is the best tried in {kept} of "
        + counted(len(searches), "search", "searches"),
        "subtitle": f"{spec.title}, {spec.budget} budget · validation scores at each learning rate tried",
        "rows": [row_name(row) for row in rows],
        "panels": [_panel_data(spec, name, rows, tunings) for name, tunings in of_columns.items()],
    }


def _panel_data(spec: TableSpec, name: str, rows: list[str], tunings: Mapping[str, Tuning]) -> dict[str, Any]:
    sign = next(iter(tunings.values())).choice.sign
    rates = sorted({rate for tuning in tunings.values() for rate in tuning.trials})
    values: list[list[float | None]] = [[None] * len(rates) for _ in rows]
    chosen, failed = [], []
    for i, tuning in ((rows.index(row), tuning) for row, tuning in tunings.items()):
        chosen.append([i, rates.index(tuning.rate)])
        for rate, score in tuning.trials.items():
            j = rates.index(rate)
            if math.isfinite(score):
                values[i][j] = round(sign * score, DIGITS)
            else:
                failed.append([i, j])
    finite = [sign * value for row in values for value in row if value is not None]
    control = spec.row_of("control", name)
    of_control = values[rows.index(control)] if control in tunings else []
    low = max((sign * value for value in of_control if value is not None), default=min(finite, default=0))
    return {
        "title": name,
        "columns": [rate_text(rate) for rate in rates],
        "bold": sorted({rates.index(tuning.recipe) for tuning in tunings.values()}),
        "values": values,
        "chosen": sorted(chosen),
        "failed": sorted(failed),
        # at the colours white and dark
        "limits": [sign * low, sign * max(finite, default=0)],
    }


def draw(data: Mapping[str, Any]) -> Figure:
    names, panels = [style.shortened(name, LONGEST_NAME) for name in data["rows"]], data["panels"]
    counts = [len(panel["columns"]) for panel in panels]
    wide = 0.3 + LETTER * max(map(len, names)) + sum(WIDE * count + GAP for count in counts)
    size = (max(wide, NARROWEST), 1.15 + TALL * len(names))
    shared = {"sharey": True, "width_ratios": counts}
    figure, axes = style.figure_of(data["title"], size, [1], len(panels), len(panels), data["subtitle"], **shared)
    for axis, panel in zip(axes, panels, strict=True):
        _draw_panel(axis, panel)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].tick_params(axis="y", labelsize=6.5)
    return figure


def _draw_panel(axis: Axes, panel: Mapping[str, Any]) -> None:
    from matplotlib.patches import Rectangle

    low, high = panel["limits"]
    ends = {"vmin": low, "vmax": high} if low < high else {"vmin": high, "vmax": low}
    colours = style.sequential() if low <= high else style.sequential().reversed()
    image = style.squares(axis, panel["values"], cmap=colours, **ends)
    style.print_numbers(axis, image, panel["values"], short_number, size=5.5)
    for i, j in panel["failed"]:
        axis.text(j, i, FAILED, ha="center", va="center", fontsize=6, color=style.INK)
    for i, j in panel["chosen"]:
        frame = Rectangle((j - 0.46, i - 0.44), 0.92, 0.88, fill=False, edgecolor=FRAME, linewidth=1.1, zorder=3)
        axis.add_patch(frame)
    axis.set_title(panel["title"], fontsize=7.5, fontweight="bold")
    axis.set_xticks(range(len(panel["columns"])), panel["columns"], rotation=90)
    axis.tick_params(length=0, pad=2, labelsize=6)
    for j in panel["bold"]:
        axis.get_xticklabels()[j].set_fontweight("bold")


def short_number(value: float) -> str:
    """`99.8`, `100`, `1,234`, `12k`"""
    if abs(value) >= 10_000:
        return f"{value / 1000:,.0f}k" if abs(value) < 10_000_000 else f"{value:.0e}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
