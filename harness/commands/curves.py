"""do=curves: validation metric and training loss of runs against the step, as a PNG and in the terminal.

Reads the records, and `metrics.csv` of the run folders below paths.outputs/cells, which has the training loss and the
runs that have not ended. `model=`, `task=`, `protocol=`, `budget=`, `seed=` and `table=` narrow it as in do=status.
"""

from collections.abc import Sequence

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
from harness.records.listing import files_below
from harness.records.run_directory import METRICS
from harness.report.plots.curves import curves_plot, text_rows
from harness.report.render.terminal import console, print_line, show_columns

CHART = 24  # characters
MOST = 200  # runs in a picture


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    charts = charts_of(cfg, overrides)
    path = below(cfg.paths.outputs, "curves", f"{file_name(as_typed(overrides))}.png")
    curves_plot(title_of(overrides), charts, path).write([path])
    screen = console()
    show_charts(charts, screen)
    print_line(f"\n{path}", screen)
    return 0


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
    """One chart of characters per run."""
    for panel in charts:
        arrow = "↑" if panel.higher_is_better else "↓"
        header = ("run", f"val {panel.metric} {arrow}", "first", "best", "last", "step", "train loss")
        rows = text_rows(panel, CHART, ascii_only=screen.options.ascii_only)
        show_columns(panel.title, header, rows, screen)
