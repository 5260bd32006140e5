"""What do=report prints of one table: what was found, and its first grid, or bars for a table of one column."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from harness.progress import clock
from harness.records.collect import Cells
from harness.report.pages.answer import ColumnAnswer
from harness.report.render.layout import Table
from harness.report.render.terminal import BLOCKS, plain, show_block, show_line
from harness.report.render.words import counted
from harness.report.scores.comparison import BASELINE
from harness.report.stats.seeds import p_text

BAR = 16  # characters of the largest value


def show_answer(table: Table, console: Console, columns: Sequence[ColumnAnswer], cells: Cells) -> None:
    """What was found, and the first grid; of a table with one column, bars in its place. `cells`: its records."""
    show_line(table.title, console, "bold")
    is_single = len(columns) == 1 and len(columns[0].spec.columns) == 1
    if is_single:
        console.print()
        show_bars(columns[0], cells, console)
        console.print()
    for line in table.lead:
        show_line(line, console)
    for block in [block for section in table.in_reading_order for block in section.blocks][: not is_single]:
        console.print()
        show_block(block, console)


def show_bars(column: ColumnAnswer, cells: Cells, console: Console) -> None:
    """The size of a column, and a line per row and for the strongest simple predictor: score, bar, test against the
    best row."""
    tests, group = column.tests, column.group
    scores = [score for score in group.scores if score.by_seed]
    names = {score.key: score.label for score in scores}
    seconds = cells.loc[cells["id"].isin([id for score in scores for id in score.cells]), "wall_s"].sum()
    runs = f"{counted(sum(len(score.by_seed) for score in scores), 'run')}, {counted(len(scores), 'row')}"
    runs += f" x {column.seeds} seed{'s' * (column.seeds != '1')}"
    show_line(f"{runs}, {clock(seconds)} in all · {group.column}, {' · '.join(map(str, group.sizes[:1]))}", console)
    lines = []
    for score in [*group.scores, *filter(None, [group.strongest])]:
        pair = tests.pair(score.key, tests.best) if tests.best else None
        verdict = "" if pair is None else f"not told apart from {names[tests.best]}"
        if pair is not None and pair.is_resolved:
            verdict = f"behind {names[tests.best]} ({p_text(pair.p_all)})"
        if score is group.strongest:
            verdict = "simple predictor"
        number = score.number(column.decimals)
        mean = score.estimate.mean if score.by_seed else 0.0
        lines.append((score.label.removeprefix(BASELINE), number, mean, verdict))
    largest = max((mean for _, _, mean, _ in lines), default=0.0)
    full = "#" if console.options.ascii_only else BLOCKS[-1]
    grid = Grid(box=None, pad_edge=False, show_header=False)
    for name, number, mean, verdict in lines:
        bar = full * round(BAR * max(mean, 0.0) / largest) if largest > 0 else ""
        grid.add_row(*(Text(plain(text, console)) for text in (name, number, bar, verdict)))
    console.print(grid)
