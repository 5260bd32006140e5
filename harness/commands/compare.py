"""do=compare <a> <b>: the settings in which two cells differ, the paired difference of their scores, their curves.

Each cell is the first six or more digits of its id, its name in do=status, or the path of its record or run folder.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console

from harness.commands import curves
from harness.config.cell import Cell
from harness.config.places import below, folder_below
from harness.config.table_rows import display_value
from harness.errors import UsageError
from harness.records.cache import of_command
from harness.records.curves import curve_panels
from harness.records.record import read
from harness.report.plots.curves import curves_plot
from harness.report.render.terminal import console, print_line, show_columns
from harness.report.scores.compare_cells import CellComparison, ComparedCell, Difference, compare_cells
from harness.report.scores.scores import LEAK

SCORES = ("score", "a", "b", "a - b ± over examples", "a - b ± over seeds", "p")
TYPE_TWO = "do=compare takes two cells: python run.py do=compare <a> <b>, or cells=<a>,<b>; do=status lists cells"


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    if len(cfg.cells) != 2:
        raise UsageError(f"{TYPE_TWO} (typed: {len(cfg.cells)})")
    comparison = compare_cells(*cfg.cells, cfg.paths.records, of_command(cfg.paths.outputs))
    screen = console()
    show_comparison(comparison, screen)
    show_curves(comparison, cfg, screen)
    return 0


def show_comparison(comparison: CellComparison, screen: Console) -> None:
    """Cells, settings and differences, as text."""
    print_line(f"a  {describe(comparison.a)}", screen)
    print_line(f"b  {describe(comparison.b)}", screen)
    if not comparison.settings:
        print_line("\nNo setting differs.", screen)
    for table in tables_of(comparison):
        show_columns(*table, screen)
    print_line("", screen)
    for text in comparison_notes(comparison):
        print_line(text, screen, "dim")


def tables_of(comparison: CellComparison) -> Iterator[tuple[str, Sequence[str], list[tuple[str, ...]]]]:
    """Title, header and rows of the settings that differ, and of the scores that do."""
    if rows := [(key, *map(setting_text, pair)) for key, pair in comparison.settings.items()]:
        yield "Settings that differ", ("setting", "a", "b"), rows
    if different := comparison.different:
        shown = SCORES if any(difference.seeds for difference in different) else SCORES[:4]
        yield "Scores", shown, [line(difference, comparison.a)[: len(shown)] for difference in different]


def describe(cell: ComparedCell) -> str:
    """One line: name, score, number of test examples, date, code, id."""
    score = cell.status
    if cell.status == "done" and cell.score is not None:
        score = f"{cell.metric} {cell.score:,.{decimals_of(cell.score)}f} on {cell.n_test:,} test examples"
    if cell.leak:
        score += f" {LEAK}"
    code = f"code {cell.code[:8]}" if cell.code else "code unknown"
    return " · ".join([cell.name, score, cell.finished[:10], code, f"cell {cell.id[:8]}"])


def decimals_of(*values: float) -> int:
    """Digits after the point that show four digits of the largest value."""
    largest = max(map(abs, values))
    return min(6, max(0, 4 - len(f"{int(largest)}"))) if largest >= 1 else 4


def line(difference: Difference, a: ComparedCell) -> tuple[str, ...]:
    """A row of the scores: name, a, b, the difference over examples, the one over seeds and its p."""

    def with_interval(value: float, half_width: float | None) -> str:
        return f"{value:+,.{decimals}f}" + ("" if half_width is None else f" ± {half_width:,.{decimals}f}")

    decimals = decimals_of(difference.a, difference.b)
    name = score_name(difference)
    if (difference.evaluation, difference.metric) == ("test", a.metric):
        name += " ↑" if a.higher_is_better else " ↓"
    numbers = (f"{value:,.{decimals}f}" for value in (difference.a, difference.b))
    over_examples = with_interval(difference.difference, difference.half_width)
    seeds = difference.seeds
    over_seeds = (with_interval(seeds.difference, seeds.half_width), f"{seeds.p:.2g}") if seeds else ("", "")
    return (name, *numbers, over_examples, *over_seeds)


def score_name(difference: Difference) -> str:
    return difference.metric if difference.evaluation == "test" else f"{difference.evaluation} {difference.metric}"


def comparison_notes(comparison: CellComparison) -> Iterator[str]:
    """What the intervals are, and what is missing."""
    if comparison.reason:
        yield f"No score is compared: {comparison.reason}."
        return
    different = comparison.different
    if equal := [score_name(difference) for difference in comparison.differences if difference.is_equal]:
        yield f"Equal in both: {', '.join(equal)}."
    if of_task := [key for key in comparison.settings if key.startswith("task.")]:
        yield f"The task's settings differ ({', '.join(of_task)}): check that both scores measure the same."
    if any(difference.half_width is not None for difference in different):
        blocks = f" ({comparison.block} neighbouring ones as one)" if comparison.block > 1 else ""
        yield (
            f"Over examples: 95 % interval of the mean difference of these two cells, paired by test example{blocks}. "
            "It is the noise of the test examples alone, not of seeds."
        )
    for why in dict.fromkeys(difference.why for difference in different if difference.why):
        names = [score_name(difference) for difference in different if difference.why == why]
        yield f"No interval for {', '.join(names)}: {why}."
    if comparison.no_seeds:
        yield f"No test over seeds: {comparison.no_seeds}."
    elif pairs := [difference.seeds for difference in different if difference.seeds]:
        kinds = ", or by ".join(dict.fromkeys(pair.pairing for pair in pairs))
        yield (
            f"Over seeds: 95 % interval of the mean difference over the {pairs[0].seeds} seeds that both variants "
            f"have, paired by {kinds}. p is not corrected for the number of scores."
        )


def show_curves(comparison: CellComparison, cfg: DictConfig, screen: Console) -> None:
    """Draw the curves of both cells, where their records or run folders have them, and say where the picture is."""
    folders = {}
    for cell, typed in zip((comparison.a, comparison.b), cfg.cells, strict=True):
        name = Cell(cell.id, dict(cell.config)).path
        folder = Path(typed) if Path(typed).is_dir() else folder_below(cfg.paths.outputs, "cells", name)
        folders[name.as_posix()] = folder
    charts = curve_panels(folders, [read(cell.file) for cell in (comparison.a, comparison.b)], average=False)
    if charts:
        path = below(cfg.paths.outputs, "curves", f"{comparison.a.id[:8]}-{comparison.b.id[:8]}.png")
        curves_plot(f"{comparison.a.name}\n{comparison.b.name}", charts, path).write([path])
        curves.show_charts(charts, screen)
        print_line(f"\n{path}", screen)
    drawn = {curve.name for panel in charts for line in panel.lines for curve in line.curves}
    for side, (name, folder) in zip("ab", folders.items(), strict=False):
        if name not in drawn:
            print_line(f"No curve of {side}: none in its record and none in {folder / 'metrics.csv'}", screen)


def setting_text(value: Any) -> str:
    return value if isinstance(value, str) else display_value(json.dumps(value))
