r"""A table in LaTeX: one `table` float per block, several for a block wider than a page, with booktabs rules.

The file is a fragment: `\usepackage{booktabs}` in the preamble, `\input{t11}` where it belongs. pdfLaTeX, XeLaTeX and
LuaLaTeX accept it; it is plain ASCII.
"""

import functools
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.errors import CONTROL
from harness.report.render.layout import Block, Table, TableEntry

SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    # in text: `[` after `\\` would be an optional argument; the others print as something else in the old font encoding
    "[": "{[}",
    "]": "{]}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "±": r"$\pm$",
    "Δ": r"$\Delta$",
    "σ": r"$\sigma$",
    "τ": r"$\tau$",
    "√": r"$\surd$",
    "≈": r"$\approx$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "–": "--",
    "—": "---",
    "·": r"$\cdot$",
    "×": r"$\times$",
    "®": r"\textregistered{}",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "§": r"\S{}",
    "“": "``",
    "”": "''",
    "’": "'",
    "…": r"\ldots{}",
}

WIDEST = 490  # points: leaves margins of 50 on A4 and 60 on letter paper
LETTER, GAP = 4.1, 8  # points: average letter in \footnotesize, and gap between columns
SMALLER = 0.7  # size of a superscript, relative to the text


def render(table: Table) -> str:
    lines = [
        f"% Generated from the records by: {table.command}; do not edit.",
        r"% Requires \usepackage{booktabs}.",
    ]
    if table.lead:
        lines += ["", r"\begin{flushleft}", *(rf"{escape(line)}\par" for line in table.lead), r"\end{flushleft}"]
    for section in table.sections:
        for block in section.blocks:
            for part in _parts(block):
                lines += ["", *_block(f"{table.title}: {section.title}. ", part)]
    notes = [f"{name}: {text}." for name, text in table.footnotes]
    facts = [f"{section.title}: {line}" for section in table.sections for line in section.lines]
    lines += ["", r"\begin{flushleft}", r"\footnotesize"]
    lines_below = [*table.details, f"Published numbers: {table.summary}.", *facts, *table.caption, *notes]
    lines += [rf"{escape(line)}\par" for line in lines_below]
    return "\n".join([*lines, r"\end{flushleft}"]) + "\n"


def _parts(block: Block) -> Iterator[Block]:
    """The block, or parts of it that fit on a page: each has the first column, and the last has the lines below."""
    # in points, approximately, including the gap to the next column
    letters = ([len(e.text) + SMALLER * len(", ".join(e.notes)) for e in row] for row in (block.header, *block.rows))
    widths = [LETTER * max(column) + GAP for column in zip(*letters, strict=True)]
    chosen = _split(widths, WIDEST)
    if len(chosen) < 2:
        yield block
        return
    for limit in range(WIDEST, 0, -10):  # the same number of parts, of similar widths
        if len(narrower := _split(widths, limit)) > len(chosen):
            break
        chosen = narrower
    for number, columns in enumerate(chosen, 1):
        header, *rows = ([row[i] for i in (0, *columns)] for row in (block.header, *block.rows))
        title = f"{block.title}, part {number} of {len(chosen)}"
        align = "".join(block.align[i] for i in (0, *columns))
        lines = block.lines if number == len(chosen) else ()
        yield replace(block, title=title, header=header, rows=rows, align=align, lines=lines)


def _split(widths: Sequence[float], limit: float) -> list[list[int]]:
    """The columns after the first, in parts that together with it are at most `limit` wide where possible."""
    parts: list[list[int]] = []
    for column in range(1, len(widths)):
        if not parts or sum(widths[i] for i in (0, *parts[-1], column)) > limit:
            parts.append([])
        parts[-1].append(column)
    return parts


def _block(start: str, block: Block) -> list[str]:
    below = [rf"\par\smallskip\noindent {escape(line)}" for line in block.lines]
    return [
        r"\begin{table}[htbp]",
        r"\footnotesize",
        r"\setlength{\tabcolsep}{4pt}",
        rf"\caption{{{escape(start + block.title)}{_superscript(block.notes)}}}",
        r"\makebox[\textwidth][c]{%",  # a wide table extends into both margins equally
        rf"\begin{{tabular}}{{@{{}}{block.align}@{{}}}}",
        r"\toprule",
        _row(block.header),
        r"\midrule",
        *(
            line
            for number, row in enumerate(block.rows)
            for line in (*[r"\addlinespace"] * (number in block.gaps), _row(row))
        ),
        r"\bottomrule",
        r"\end{tabular}}",
        *below,
        r"\end{table}",
    ]


def _row(entries: tuple[TableEntry, ...]) -> str:
    line = " & ".join(_entry(entry) for entry in entries)
    guard = "{}" if line.startswith("*") else ""  # a star after the line break above would be its argument
    return rf"{guard}{line} \\"


def _entry(entry: TableEntry) -> str:
    text = escape(entry.text)
    return (rf"\textbf{{{text}}}" if entry.bold else text) + _superscript(entry.notes)


def _superscript(notes: tuple[str, ...]) -> str:
    return rf"\textsuperscript{{{escape(', '.join(notes))}}}" if notes else ""


def escape(text: str) -> str:
    return "".join(map(_letter, CONTROL.sub(" ", text)))


@functools.cache
def _letter(letter: str) -> str:
    """The letter as LaTeX, without an accent; `?` if it has no Latin form."""
    return SPECIAL.get(letter) or unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode() or "?"
