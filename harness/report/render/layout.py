"""The content of a page in plain text without markup: sections, blocks and entries. All renderers read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

WORDS, LINES = 60, 4  # above the first grid of a page, with its title and headings

# columns of the long CSV, one row per published or measured number; `kind`: `harness.report.spec.parts.Kind`
TIDY_COLUMNS = (
    *("paper", "table", "row", "column", "kind", "budget", "source", "data", "paper_value", "ours_mean", "ours_ci"),
    # the ends of the interval within the scale of the metric, which mean and half width may leave
    *("ours_ci_low", "ours_ci_high", "n", "ours_min", "ours_max", "delta", "verdict", "chance", "place"),
    # the paired difference to the reference row; its p-value, and that corrected for all pairs of the column
    *("reference", "difference", "difference_ci", "p", "p_holm", "pairing"),
    *("apart_from", "below", "status", "notes"),
)


@dataclass(frozen=True)
class Card:
    """What is behind a number. `name`: its column; `measure`: the metric of the records that it shows.

    `by_seed`: seed -> the number of this seed, as text. `cells`: ids of the records, or the name of a measurement.
    """

    name: str
    measure: str = ""
    by_seed: Mapping[int, str] = field(default_factory=dict)
    cells: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableEntry:
    """`notes`: ids of footnotes. `tone`: good, fair, bad or muted, for renderers with colour.

    `link`: a file relative to the page. `card`: what is behind a number, for renderers that show it.
    """

    text: str
    notes: tuple[str, ...] = ()
    bold: bool = False
    tone: str = ""
    link: str = ""
    card: Card | None = field(default=None, compare=False, repr=False)


Entry = TableEntry | str


@dataclass(frozen=True)
class Block:
    """One grid, with `lines` below it. Entries may be given as plain text.

    `align`: l or r per column; by default the first is left-aligned and the others right-aligned. `gaps`: indices of
    the rows above which a gap is.
    """

    title: str
    header: Sequence[Entry]
    rows: Sequence[Sequence[Entry]]
    align: str = ""
    notes: Sequence[str] = ()
    lines: Sequence[str] = ()
    gaps: Sequence[int] = ()

    def __post_init__(self) -> None:
        header, *rows = (
            tuple(TableEntry(entry) if isinstance(entry, str) else entry for entry in row)
            for row in (self.header, *self.rows)
        )
        align = self.align or "l" + "r" * (len(header) - 1)
        plain = {name: tuple(getattr(self, name)) for name in ("notes", "lines", "gaps")}
        for name, value in {"header": header, "rows": tuple(rows), "align": align, **plain}.items():
            object.__setattr__(self, name, value)

    @property
    def text(self) -> str:
        """All that stands in the grid and around it."""
        entries = (entry.text for row in (self.header, *self.rows) for entry in row)
        return "\n".join((self.title, *entries, *self.lines))


@dataclass(frozen=True)
class Section:
    """`is_background`: the paper's numbers alone, which are read after ours. `is_appendix`: what the answer above is
    made of, which stands below the pictures."""

    title: str
    blocks: tuple[Block, ...]
    lines: tuple[str, ...] = ()
    is_background: bool = False
    is_appendix: bool = False


@dataclass(frozen=True)
class Picture:
    """`heading`: the task and the settings of its column. `link`: the file relative to the page, or None.

    `files`: its sounds and texts, {name: file relative to the page}. `message`: what is seen, for readers who do not
    see it; empty if the caption says it.
    """

    heading: str
    caption: str
    link: str | None
    files: Mapping[str, str] = field(default_factory=dict)
    message: str = ""


@dataclass(frozen=True)
class Table:
    """The page of a table. `data`: what all its runs read, where that is not the published data. `answer`: its
    sentences on all columns. `headline`: the shorter ones that the page opens with, the most important first; without
    any, the page opens with its answer. `plots`: the pictures of its columns or ranks.

    `printed`: kind -> published numbers of the table. `see_also`: sentence -> the page of all tables that it refers
    to, relative to the folder of tables.
    """

    name: str
    title: str
    summary: str
    sections: tuple[Section, ...]
    caption: tuple[str, ...]
    footnotes: tuple[tuple[str, str], ...]
    tidy: tuple[dict[str, str], ...] = field(default=())
    pictures: tuple[Picture, ...] = ()
    data: tuple[str, ...] = ()
    answer: tuple[str, ...] = ()
    headline: tuple[str, ...] = ()
    plots: tuple[Picture, ...] = ()
    see_also: Mapping[str, str] = field(default_factory=dict)
    printed: Mapping[str, int] = field(default_factory=dict)

    @property
    def opening(self) -> tuple[str, ...]:
        """All that was measured, in sentences."""
        return (*self.data, *self.answer)

    @property
    def in_reading_order(self) -> list[Section]:
        """Our numbers first, then the paper's, then what was not run; the appendix last."""
        return sorted(self.sections, key=lambda part: (part.is_appendix, not part.blocks, part.is_background))

    @property
    def lead(self) -> tuple[str, ...]:
        """The lines between title and first grid: the first one, and of the others those that fit."""
        sections = self.in_reading_order
        blocks = [block for section in sections for block in section.blocks]
        headings = [self.title, *(part.title for part in (*sections[:1], *blocks[:1]))]
        left, lines = WORDS - sum(map(_word_count, headings)), []
        for line in self.headline or self.opening:
            if not lines or (len(lines) < LINES and _word_count(line) <= left):
                lines.append(line)
                left -= _word_count(line)
        return tuple(lines)

    @property
    def details(self) -> tuple[str, ...]:
        """The lines of the opening that are not in `lead`."""
        return tuple(line for line in self.opening if line not in self.lead)

    @property
    def command(self) -> str:
        """The command that generates the files of this table."""
        return f"python run.py do=report table={self.name}"


def table_of(spec: Any, **content: Any) -> Table:
    """The page of a table: name, title and footnotes come from its spec; lists in `content` become tuples."""
    footnotes = tuple((note.id, note.text) for note in spec.footnotes)
    content = {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
    return Table(name=spec.name, title=spec.title, footnotes=footnotes, **content)


def tidy_row(spec: Any, row: str, column: str, **values: Any) -> dict[str, str]:
    """A row of the long CSV for a number of the table `spec`. Missing columns and None are empty.

    A float has four decimals; the items of a list are separated by semicolons.
    """
    names = {"paper": spec.paper, "table": spec.name, "row": row, "column": column}
    return dict.fromkeys(TIDY_COLUMNS, "") | names | {key: _tidy_text(value) for key, value in values.items()}


def _word_count(line: str) -> int:
    """With the mark of a heading or of a list in front."""
    return 1 + len(line.split())


def _tidy_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return "; ".join(value)
    return f"{value:.4f}" if isinstance(value, float) else str(value)
