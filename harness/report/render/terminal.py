"""A table for the console: with colour and rules on a terminal, as aligned plain text in a file or pipe; and lines."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from harness.report.render.layout import Block, Table, TableEntry

WIDTH = 100  # characters of plain text; a terminal has its own width
TONES = {"good": "green", "fair": "yellow", "bad": "red", "muted": "dim", "": ""}


def console() -> Console:
    screen = Console(highlight=False)
    return screen if screen.is_terminal else Console(highlight=False, width=WIDTH)


def show(table: Table, console: Console) -> None:
    show_line(table.title, console, "bold")
    for line in table.opening:
        show_line(line, console)
    show_line(f"published numbers: {table.summary}", console, "dim")
    for section in table.sections:
        console.print()
        show_line(section.title, console, "bold underline")
        for block in section.blocks:
            console.print()
            show_block(block, console)
        if section.lines:
            console.print()
        for line in section.lines:
            show_line(line, console, "dim")
    console.print()
    for line in (*(f"[{name}] {text}" for name, text in table.footnotes), *table.caption):
        show_line(line, console, "dim")


def show_block(block: Block, console: Console) -> None:
    show_line(block.title + _note_ids(block.notes), console, "bold")
    frame = box.SIMPLE_HEAD if console.is_terminal else None
    grid = Grid(box=frame, pad_edge=False, show_edge=False, header_style="")
    for entry, side in zip(block.header, block.align, strict=True):
        grid.add_column(_text(entry, console), justify="left" if side == "l" else "right", overflow="fold")
    for number, row in enumerate(block.rows):
        grid.add_row(*(_text(entry, console) for entry in row), end_section=number + 1 in block.gaps)
    console.print(grid)
    for line in block.lines:
        show_line(line, console)


def show_columns(title: str, header: Sequence[str], lines: Sequence[Sequence[str]], console: Console) -> None:
    """A small grid of texts below a title."""
    console.print()
    show_block(Block(title, header, lines, "l" * len(header), lines=() if lines else ["nothing to rank yet"]), console)


def show_line(text: str, console: Console, style: str = "") -> None:
    console.print(Text(text, style=style))


def _text(entry: TableEntry, console: Console) -> Text:
    style = f"{TONES[entry.tone]} bold" if entry.bold else TONES[entry.tone]
    # plain text has no bold face
    star = "*" if entry.bold and not console.is_terminal else ""
    return Text(entry.text + star + _note_ids(entry.notes), style=style)


def _note_ids(notes: tuple[str, ...]) -> str:
    return "".join(f" [{name}]" for name in notes)


def print_line(text: str, console: Console, style: str = "") -> None:
    """One line, never wrapped; brackets are no markup."""
    console.print(Text(text, style=style), soft_wrap=True)
