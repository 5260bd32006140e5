"""do=compare <a> <b>: the settings in which two cells differ, the paired difference of their scores, their curves.

Each cell is the first six or more digits of its id, its name in do=status, or the path of its record or run folder.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from harness.config.cell import Cell
from harness.config.table_rows import shown
from harness.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from harness.report.scores.compare_cells import Comparison, Difference

TYPE_TWO = "do=compare takes two cells: python run.py do=compare <a> <b>, or cells=<a>,<b>; do=status lists cells"


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    from harness.report.render.terminal import console
    from harness.report.scores.compare_cells import compare

    if len(cfg.cells) != 2:
        raise UsageError(f"{TYPE_TWO} (typed: {len(cfg.cells)})")
    comparison = compare(*cfg.cells, cfg.paths.records)
    screen = console()
    show(comparison, screen)
    show_curves(comparison, cfg, screen)
    return 0


def show(comparison: "Comparison", screen: "Console") -> None:
    """Cells, settings and differences, as text."""
    from rich.markup import escape

    from harness.report.render.terminal import show_columns
    from harness.report.render.text_chart import print_line
    from harness.report.scores.compare_cells import described

    for side, cell in (("a", comparison.a), ("b", comparison.b)):
        print_line(f"{side}  {described(cell)}", screen)
    rows = [(key, *(escape(_text(value)) for value in both)) for key, both in comparison.settings.items()]
    if rows:
        show_columns("Settings that differ", ("setting", "a", "b"), rows, screen)
    else:
        print_line("\nNo setting differs.", screen)
    if comparison.reason:
        print_line(f"\nNo score is compared: {comparison.reason}.", screen)
        return
    different = [difference for difference in comparison.differences if not difference.is_equal]
    tested = any(difference.seeds for difference in different)
    header = ("score", "a", "b", "a - b ± over examples", *(("a - b ± over seeds", "p") if tested else ()))
    if different:
        show_columns("Scores", header, [_line(each, comparison, tested) for each in different], screen)
    print_line("", screen)
    for text in _notes(comparison):
        print_line(text, screen, "dim")


def _line(difference: "Difference", comparison: "Comparison", tested: bool) -> tuple[str, ...]:
    from harness.report.scores.compare_cells import digits, number

    decimals = digits(difference.a, difference.b)
    name = _name(difference)
    if (difference.evaluation, difference.metric) == ("test", comparison.a.metric):
        name += " ↑" if comparison.a.higher_is_better else " ↓"
    first = f"{difference.difference:+,.{decimals}f}"
    if difference.half_width is not None:
        first += f" ± {number(difference.half_width, decimals)}"
    row = (name, number(difference.a, decimals), number(difference.b, decimals), first)
    if not tested:
        return row
    pair = difference.seeds
    if pair is None:
        return (*row, "", "")
    return (*row, f"{pair.difference:+,.{decimals}f} ± {number(pair.half_width, decimals)}", f"{pair.p:.2g}")


def _name(difference: "Difference") -> str:
    return difference.metric if difference.evaluation == "test" else f"{difference.evaluation} {difference.metric}"


def _notes(comparison: "Comparison") -> list[str]:
    """What the intervals are, and what is missing."""
    differences = [difference for difference in comparison.differences if not difference.is_equal]
    lines = []
    if equal := [_name(difference) for difference in comparison.differences if difference.is_equal]:
        lines.append(f"Equal in both: {', '.join(equal)}.")
    if of_task := [key for key in comparison.settings if key.startswith("task.")]:
        lines.append(f"The task's settings differ ({', '.join(of_task)}): check that both scores measure the same.")
    if any(difference.half_width is not None for difference in differences):
        blocks = f" ({comparison.block} neighbouring ones as one)" if comparison.block > 1 else ""
        lines.append(
            f"Over examples: 95 % interval of the mean difference of these two cells, paired by test example{blocks}. "
            "It is the noise of the test examples alone, not of seeds."
        )
    whys: dict[str, list[str]] = {}
    for difference in differences:
        if difference.why:
            whys.setdefault(difference.why, []).append(_name(difference))
    lines += [f"No interval for {', '.join(names)}: {why}." for why, names in whys.items()]
    if comparison.no_seeds:
        lines.append(f"No test over seeds: {comparison.no_seeds}.")
    elif pairs := [difference.seeds for difference in differences if difference.seeds]:
        kinds = ", or by ".join(dict.fromkeys(pair.pairing for pair in pairs))
        lines.append(
            f"Over seeds: 95 % interval of the mean difference over the {pairs[0].seeds} seeds that both variants "
            f"have, paired by {kinds}. p is not corrected for the number of scores."
        )
    return lines


def show_curves(comparison: "Comparison", cfg: DictConfig, screen: "Console") -> None:
    """Draw the curves of both cells where their run folders are here, and say where the picture is."""
    from harness.commands.curves import show as show_charts
    from harness.records.record import read
    from harness.report.plots.curves import panels, plot_of
    from harness.report.render.text_chart import print_line

    both = comparison.a, comparison.b
    names = [Cell(cell.id, dict(cell.config)).path for cell in both]
    places = [Path(cfg.paths.outputs) / "cells" / name for name in names]
    places = [Path(typed) if Path(typed).is_dir() else place for typed, place in zip(cfg.cells, places, strict=True)]
    folders = {name.as_posix(): place for name, place in zip(names, places, strict=True)}
    found = panels(folders, [read(cell.file) for cell in both], average=False)
    drawn = {curve.name for panel in found for line in panel.lines for curve in line.curves}
    if found:
        path = Path(cfg.paths.outputs) / "curves" / f"{comparison.a.id[:8]}-{comparison.b.id[:8]}.png"
        plot_of(f"{comparison.a.name}\n{comparison.b.name}", found, path).write([path])
        show_charts(found, screen)
        print_line(f"\n{path}", screen)
    for side, (name, folder) in zip("ab", folders.items(), strict=False):
        if name not in drawn:
            print_line(f"No curve of {side}: no evaluation in {folder / 'metrics.csv'}", screen)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else shown(json.dumps(value))
