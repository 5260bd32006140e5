r"""A table in LaTeX: one `table` float per block, with booktabs rules, scaled to the width of the page.

The file is a fragment: `\usepackage{booktabs, adjustbox}` in the preamble, `\input{t11}` where it belongs. pdfLaTeX,
XeLaTeX and LuaLaTeX accept it; it is plain ASCII.
"""

import functools
import unicodedata

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


def render(table: Table) -> str:
    lines = [
        f"% Generated from the records by: {table.command}; do not edit.",
        r"% Requires \usepackage{booktabs, adjustbox}.",
    ]
    if table.lead:
        lines += ["", r"\begin{flushleft}", *(rf"{escape(line)}\par" for line in table.lead), r"\end{flushleft}"]
    for section in table.sections:
        for block in section.blocks:
            lines += ["", *_block(f"{table.title}: {section.title}. ", block)]
    notes = [f"{name}: {text}." for name, text in table.footnotes]
    facts = [f"{section.title}: {line}" for section in table.sections for line in section.lines]
    lines += ["", r"\begin{flushleft}", r"\footnotesize"]
    lines_below = [*table.details, f"Published numbers: {table.summary}.", *facts, *table.caption, *notes]
    lines += [rf"{escape(line)}\par" for line in lines_below]
    return "\n".join([*lines, r"\end{flushleft}"]) + "\n"


def _block(start: str, block: Block) -> list[str]:
    below = [rf"\par\smallskip\noindent {escape(line)}" for line in block.lines]
    return [
        r"\begin{table}[htbp]",
        r"\footnotesize",
        r"\setlength{\tabcolsep}{4pt}",
        rf"\caption{{{escape(start + block.title)}{_superscript(block.notes)}}}",
        r"\begin{adjustbox}{max width=\textwidth, center}",
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
        r"\end{tabular}",
        r"\end{adjustbox}",
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
