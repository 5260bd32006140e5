"""What do=report prints of one table: what was found, and its first grid, or the tests of a table of one column."""

from collections.abc import Sequence

from rich.console import Console

from harness.report.pages.answer import ColumnAnswer
from harness.report.pages.notes import score_text
from harness.report.render.layout import Block, Table
from harness.report.render.terminal import show_block, show_line
from harness.report.scores.comparison import BASELINE
from harness.report.stats.seeds import p_text


def show_answer(table: Table, console: Console, columns: Sequence[ColumnAnswer]) -> None:
    """What was found, and the first grid; of a table with one column, its tests in their place."""
    show_line(table.title, console, "bold")
    is_single = len(columns) == 1 and len(columns[0].spec.columns) == 1
    if is_single:
        console.print()
        show_block(tests_block(columns[0]), console)
        console.print()
    for line in table.lead:
        show_line(line, console)
    for block in [block for section in table.in_reading_order for block in section.blocks][: not is_single]:
        console.print()
        show_block(block, console)


def tests_block(column: ColumnAnswer) -> Block:
    """A line per row and for the strongest simple predictor: score, test against the best row."""
    tests, group = column.tests, column.group
    names, lines = {score.key: score.label for score in group.scores}, []
    for score in group.scores:
        pair = tests.pair(score.key, tests.best) if tests.best else None
        verdict = "" if pair is None else f"not told apart from {names[tests.best]}"
        if pair is not None and pair.is_resolved:
            verdict = f"behind {names[tests.best]} ({p_text(pair.p_all)})"
        lines.append((score.label, score_text(group, score), verdict))
    if group.strongest is not None:
        name, number = group.strongest.label.removeprefix(BASELINE), group.strongest.number(column.decimals)
        lines.append((name, number, "simple predictor"))
    title = ", ".join([group.column, *map(str, group.sizes[:1])])
    return Block(title, ("model", group.resolved.heading, "test"), lines, "lrl")
