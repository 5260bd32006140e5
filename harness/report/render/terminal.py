"""A table for the console: with colour and rules on a terminal, as aligned plain text in a file or pipe; and lines and
small charts of plain characters. Each has an ASCII form for consoles that need one."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from harness.progress import clock
from harness.report.render.layout import Block, Table, TableEntry
from harness.report.render.words import counted
from harness.report.scores.comparison import BASELINE
from harness.report.stats.seeds import p_value

if TYPE_CHECKING:
    import pandas as pd

    from harness.report.pages.answer import ColumnAnswer

WIDTH = 100  # characters of plain text; a terminal has its own width
TONES = {"good": "green", "fair": "yellow", "bad": "red", "muted": "dim", "": ""}
BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
BAR = 16  # characters of the largest value
GAP = "x"  # a value that is not finite
ASCII = str.maketrans(
    {
        "±": "+-",
        "Δ": "d",
        "τ": "tau",
        "≈": "~",
        "≤": "<=",
        "≥": ">=",
        "↑": "(higher is better)",
        "↓": "(lower is better)",
        "–": "-",
        "·": "|",
        "×": "x",
        "†": "#",
    }
)


def plain(text: str, console: Console) -> str:
    """The text in characters that the console can encode."""
    return text.translate(ASCII).encode("ascii", "replace").decode() if console.options.ascii_only else text


def console() -> Console:
    screen = Console(highlight=False)
    return screen if screen.is_terminal else Console(highlight=False, width=WIDTH)


def show(table: Table, console: Console) -> None:
    _line(table.title, console, "bold")
    for line in table.opening:
        _line(line, console)
    _line(f"published numbers: {table.summary}", console, "dim")
    for section in table.sections:
        console.print()
        _line(section.title, console, "bold underline")
        for block in section.blocks:
            console.print()
            show_block(block, console)
        if section.lines:
            console.print()
        for line in section.lines:
            _line(line, console, "dim")
    console.print()
    for line in (*(f"[{name}] {text}" for name, text in table.footnotes), *table.caption):
        _line(line, console, "dim")


def show_answer(table: Table, console: Console, columns: "Sequence[ColumnAnswer]", cells: "pd.DataFrame") -> None:
    """What was found, and the first grid; of a table with one column, bars in its place. `cells`: its records."""
    _line(table.title, console, "bold")
    is_single = len(columns) == 1 and len(columns[0].spec.columns) == 1
    if is_single:
        console.print()
        show_bars(columns[0], cells, console)
        console.print()
    for line in table.lead:
        _line(line, console)
    for block in [block for section in table.in_reading_order for block in section.blocks][: not is_single]:
        console.print()
        show_block(block, console)


def show_bars(column: "ColumnAnswer", cells: "pd.DataFrame", console: Console) -> None:
    """The size of a column, and a line per row and for the strongest simple predictor: score, bar, test against the
    best row."""
    tests, group = column.tests, column.group
    scores = [score for score in group.scores if score.by_seed]
    names = {score.key: score.label for score in scores}
    seconds = cells.loc[cells["id"].isin([id for score in scores for id in score.cells]), "wall_s"].sum()
    runs = f"{counted(sum(len(score.by_seed) for score in scores), 'run')}, {counted(len(scores), 'row')}"
    runs += f" x {column.seeds} seed{'s' * (column.seeds != '1')}"
    _line(f"{runs}, {clock(seconds)} in all · {group.column}, {' · '.join(group.sizes[:1])}", console)
    lines = []
    for score in [*group.scores, *filter(None, [group.strongest])]:
        pair = tests.pair(score.key, tests.best) if tests.best else None
        verdict = "" if pair is None else f"not told apart from {names[tests.best]}"
        if pair is not None and pair.is_resolved:
            p = p_value(pair.p_all)
            verdict = f"behind {names[tests.best]} (p {p if p[0] == '<' else f'= {p}'})"
        if score is group.strongest:
            verdict = "simple predictor"
        number = score.number(column.decimals) if score.by_seed else score.failure_text
        mean = score.estimate.mean if score.by_seed else 0.0
        lines.append((score.label.removeprefix(BASELINE), number, mean, verdict))
    largest = max((mean for _, _, mean, _ in lines), default=0.0)
    full = "#" if console.options.ascii_only else BLOCKS[-1]
    grid = Grid(box=None, pad_edge=False, show_header=False)
    for name, number, mean, verdict in lines:
        bar = full * round(BAR * max(mean, 0.0) / largest) if largest > 0 else ""
        grid.add_row(*(Text(plain(text, console)) for text in (name, number, bar, verdict)))
    console.print(grid)


def show_block(block: Block, console: Console) -> None:
    _line(block.title + _note_ids(block.notes), console, "bold")
    frame = box.SIMPLE_HEAD if console.is_terminal and not console.options.ascii_only else None
    grid = Grid(box=frame, pad_edge=False, show_edge=False, header_style="")
    for entry, side in zip(block.header, block.align, strict=True):
        grid.add_column(_text(entry, console), justify="left" if side == "l" else "right", overflow="fold")
    for number, row in enumerate(block.rows):
        grid.add_row(*(_text(entry, console) for entry in row), end_section=number + 1 in block.tiers)
    console.print(grid)
    for line in block.lines:
        _line(line, console)


def show_columns(title: str, header: Sequence[str], lines: Sequence[Sequence[str]], console: Console) -> None:
    """A small grid of texts below a title."""
    console.print()
    show_block(Block(title, header, lines, "l" * len(header), lines=() if lines else ["nothing to rank yet"]), console)


def _line(text: str, console: Console, style: str = "") -> None:
    console.print(Text(plain(text, console), style=style))


def _text(entry: TableEntry, console: Console) -> Text:
    style = f"{TONES[entry.tone]} bold" if entry.bold else TONES[entry.tone]
    # plain text has no bold face
    star = "*" if entry.bold and not console.is_terminal else ""
    return Text(plain(entry.text + star + _note_ids(entry.notes), console), style=style)


def _note_ids(notes: tuple[str, ...]) -> str:
    return "".join(f" [{name}]" for name in notes)


def sparkline(values: Sequence[float], low: float, high: float, width: int, *, ascii_only: bool = False) -> str:
    """At most `width` characters, each as high as its value between `low` and `high`.

    With more values than characters, each character is the last value of its part, so the line ends at the last value.
    """
    levels = ASCII_BLOCKS if ascii_only else BLOCKS
    count = min(width, len(values))
    shown = [values[(part + 1) * len(values) // count - 1] for part in range(count)]
    return "".join(_character(value, low, high, levels) for value in shown)


def _character(value: float, low: float, high: float, levels: str) -> str:
    if not math.isfinite(value):
        return GAP
    share = (value - low) / (high - low) if high > low else 0.0
    return levels[min(len(levels) - 1, max(0, int(share * len(levels))))]


def print_line(text: str, console: Console, style: str = "") -> None:
    """One line, never wrapped; brackets are no markup."""
    console.print(Text(plain(text, console), style=style), soft_wrap=True)
