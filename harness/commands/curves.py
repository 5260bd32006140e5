"""do=curves: validation metric and training loss of runs against the step: a picture, a page, and a row for each run.

The page is one HTML file with the picture inside, to be mailed or archived: the curves, the best metric against the
learning rate where runs differ in it, and a row for each run. A sweep that takes minutes ends with it.

Reads the records, and `metrics.csv` of the run folders below paths.outputs/cells, which has the training loss and the
runs that have not ended. `model=`, `task=`, `protocol=`, `budget=`, `seed=` and `table=` narrow it as in do=status.
"""

import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console

from harness.commands.status import as_typed, narrow
from harness.config.cell import name_of
from harness.config.overrides import typed_values
from harness.config.places import below, folder_below, require_folders
from harness.errors import UsageError
from harness.records.cache import of_command
from harness.records.collect import say_left_out, valid_records
from harness.records.curves import Panel, curve_panels
from harness.records.files import write_atomic
from harness.records.listing import files_below
from harness.records.run_directory import METRICS
from harness.report.plots.curves import curves_plot
from harness.report.render.terminal import console, print_line, show_columns

MOST = 200  # runs in a picture
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body {{ font-family: sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em }}
img {{ max-width: 100% }} td {{ padding: 0 .8em; text-align: right }}
td:first-child {{ text-align: left }}</style></head>
<body><h1>{title}</h1>
<img alt="{title}" src="data:image/png;base64,{picture}">
{tables}
</body></html>
"""


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    charts = charts_of(cfg, overrides)
    path = write_page(cfg, file_name(as_typed(overrides)), title_of(overrides), charts)
    screen = console()
    show_charts(charts, screen)
    print_line(f"\n{path.with_suffix('.png')}\n{path}", screen)
    return 0


def write_page(cfg: DictConfig, name: str, title: str, charts: Sequence[Panel]) -> Path:
    """Write the picture and the page below `<paths.outputs>/curves`; returns the page."""
    path = below(cfg.paths.outputs, "curves", f"{name}.html")
    picture = path.with_suffix(".png")
    curves_plot(title, charts, picture).write([picture])
    tables = []
    for panel in charts:
        header, rows = table_of(panel)
        lines = (f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in (header, *rows))
        tables.append(f"<h2>{escape(panel.title)}</h2>\n<table>\n{chr(10).join(lines)}\n</table>")
    data = b64encode(picture.read_bytes()).decode()
    page = PAGE.format(title=escape(title), picture=data, tables="\n".join(tables))
    write_atomic(path, page)
    return path


def page_of(cfg: DictConfig, cells: Mapping[str, Path], records: Sequence[Mapping[str, Any]]) -> Path | None:
    """The page of a sweep's cells, {name of the run: its folder}, with their records; None without a curve."""
    charts = curve_panels(cells, records)
    return write_page(cfg, time.strftime("sweep-%Y%m%d-%H%M%S"), f"{len(cells)} cells", charts) if charts else None


def title_of(overrides: Sequence[str]) -> str:
    return f"Learning curves · {' '.join(as_typed(overrides)) or 'all runs'}"


def charts_of(cfg: DictConfig, overrides: Sequence[str]) -> list[Panel]:
    """The curves of the runs that the overrides name. Raises UsageError if there are none."""
    require_folders(cfg.paths, typed_values(overrides), "records", "outputs")
    root, typed = folder_below(cfg.paths.outputs, "cells"), as_typed(overrides)
    problems: list[str] = []
    files = [path for path in files_below(root, problems) if path.name == METRICS]
    say_left_out(problems)
    records = valid_records(cfg.paths.records, cache=of_command(cfg.paths.outputs))[0]
    recorded = [name_of(**entries["cell"]) for entries in records if entries.get("curve")]
    ran = [path.parent.relative_to(root).as_posix() for path in files]
    names = narrow(sorted({*recorded, *ran}), cfg, overrides)
    if len(names) > MOST:
        example = "do=curves task=probe/recall model=latte"
        raise UsageError(f"{len(names):,} runs have curves; name a task, model, budget or table: {example}")
    charts = curve_panels({name: root / name for name in names}, records) if names else []
    if not charts:
        curves = " of ".join(filter(None, ["no curves", " ".join(typed)]))
        raise UsageError(f"{curves}: no record and no metrics.csv below {root} has an evaluation; do=status")
    return charts


def file_name(typed: Sequence[str]) -> str:
    """`lra-text-lavo` for `task=lra/text model=lavo`."""
    values = [word.replace("seed=", "seed").rpartition("=")[2] for word in typed]
    return "-".join(value.replace("/", "-") for value in values) or "all"


def show_charts(charts: Sequence[Panel], screen: Console) -> None:
    """A row for each run."""
    for panel in charts:
        show_columns(panel.title, *table_of(panel), screen)


def table_of(panel: Panel) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The header, and a row for each run: its first, best and last score, its steps and its last training loss."""
    arrow = "↑" if panel.higher_is_better else "↓"
    rows = [
        (
            line.label if line.is_run else f"{line.label}, seed {curve.seed}",
            *(f"{value:.4g}" for value in (curve.val[0], curve.best(panel.higher_is_better), curve.val[-1])),
            f"{curve.steps[-1]:,}",
            f"{curve.loss[-1]:.4g}" if curve.loss else "–",
        )
        for line in panel.lines
        for curve in line.curves
    ]
    return ("run", f"first val {panel.metric} {arrow}", "best", "last", "step", "train loss"), rows
