"""A table for the console: with colour and rules on a terminal, as aligned plain text in a file or pipe."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from harness.report.render.layout import Block, Table, TableEntry

WIDTH = 100  # characters of plain text; a terminal has its own width
TONES = {"good": "green", "fair": "yellow", "bad": "red", "muted": "dim", "": ""}
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
    _Page(console).show(table)


def show_block(block: Block, console: Console) -> None:
    _Page(console).block(block)


def show_columns(title: str, header: Sequence[str], lines: Sequence[Sequence[str]], console: Console) -> None:
    """A small grid of texts below a title."""
    page = _Page(console)
    console.print()
    page.line(title, "bold")
    grid = Grid(box=None, pad_edge=False, show_edge=False, header_style="dim")
    for name in header:
        grid.add_column(plain(name, console), overflow="fold")
    for line in lines:
        grid.add_row(*(plain(text, console) for text in line))
    console.print(grid if lines else plain("nothing to rank yet", console))


class _Page:
    def __init__(self, console: Console):
        self.console = console

    def show(self, table: Table) -> None:
        self.line(table.title, "bold")
        for line in table.opening:
            self.line(line)
        self.line(f"published numbers: {table.summary}", "dim")
        for section in table.sections:
            self.console.print()
            self.line(section.title, "bold underline")
            for block in section.blocks:
                self.console.print()
                self.block(block)
            if section.lines:
                self.console.print()
            for line in section.lines:
                self.line(line, "dim")
        self.console.print()
        for name, text in table.footnotes:
            self.line(f"[{name}] {text}", "dim")
        for line in table.caption:
            self.line(line, "dim")

    def block(self, block: Block) -> None:
        self.line(block.title + _note_ids(block.notes), "bold")
        frame = box.SIMPLE_HEAD if self.console.is_terminal and not self.console.options.ascii_only else None
        grid = Grid(box=frame, pad_edge=False, show_edge=False, header_style="")
        for entry, side in zip(block.header, block.align, strict=True):
            grid.add_column(self.text(entry), justify="left" if side == "l" else "right", overflow="fold")
        for number, row in enumerate(block.rows):
            grid.add_row(*(self.text(entry) for entry in row), end_section=number + 1 in block.tiers)
        self.console.print(grid)
        for line in block.lines:
            self.line(line)

    def line(self, text: str, style: str = "") -> None:
        self.console.print(Text(plain(text, self.console), style=style))

    def text(self, entry: TableEntry) -> Text:
        style = f"{TONES[entry.tone]} bold" if entry.bold else TONES[entry.tone]
        # plain text has no bold face
        star = "*" if entry.bold and not self.console.is_terminal else ""
        return Text(plain(entry.text + star + _note_ids(entry.notes), self.console), style=style)


def _note_ids(notes: tuple[str, ...]) -> str:
    return "".join(f" [{name}]" for name in notes)
