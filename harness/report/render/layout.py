"""The content of a page in plain text, without markup: sections, blocks, entries. Every renderer starts from it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # characters that no page prints; some of them end a line

# columns of the long CSV, one row per published or measured number
TIDY_COLUMNS = (
    *("paper", "table", "row", "column", "budget", "source", "paper_value", "ours_mean", "ours_ci", "n"),
    *("ours_min", "ours_max", "delta", "verdict", "chance", "tier"),
    # the paired difference to the reference row, with its p-value alone and corrected for all pairs of the column
    *("reference", "difference", "difference_ci", "p", "p_holm", "pairing"),
    *("apart_from", "below", "status", "notes"),
)


@dataclass(frozen=True)
class TableEntry:
    """`notes`: ids of footnotes. `tone`: good, fair, bad or muted, for renderers that have colour.

    `cells`: ids of the records that a number was made of, or the name of its measurement, for renderers with links.
    """

    text: str
    notes: tuple[str, ...] = ()
    bold: bool = False
    tone: str = ""
    cells: tuple[str, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class Block:
    """One grid. `align` has an l or an r for each column; `lines` stand below it.

    `tiers` are the places of rows that begin a tier after another.
    """

    title: str
    header: tuple[TableEntry, ...]
    rows: tuple[tuple[TableEntry, ...], ...]
    align: str
    notes: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    tiers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Section:
    title: str
    blocks: tuple[Block, ...]
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Picture:
    """`heading`: the task and what its column sets; `link`: the file, relative to the page, None if there is none.

    `files`: sounds and texts beside it, {name: file relative to the page}.
    """

    heading: str
    caption: str
    link: str | None
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """`answer`: the sentences that the page opens with; `plot`: the picture of all columns."""

    name: str
    title: str
    summary: str
    sections: tuple[Section, ...]
    caption: tuple[str, ...]
    footnotes: tuple[tuple[str, str], ...]
    tidy: tuple[dict[str, str], ...] = field(default=())
    pictures: tuple[Picture, ...] = ()
    answer: tuple[str, ...] = ()
    plot: Picture | None = None

    @property
    def command(self) -> str:
        """The command that generates the files of this table."""
        return f"python run.py do=report table={self.name}"
