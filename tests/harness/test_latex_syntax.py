"""Every committed LaTeX table has valid syntax, and so has a table with hostile labels.

Where pdflatex is installed, `test_latex_compiles` compiles them as well.
"""

import re
from pathlib import Path

import pytest

from harness.report.render import latex
from harness.report.render.layout import Block, Section, Table, TableEntry
from tests.helpers.latex_syntax import problems

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = sorted((ROOT / "results" / "tables").rglob("*.tex"))
HOSTILE = (
    r"<script>alert(1)</script>",
    r"\input{/etc/passwd}",
    r"\end{tabular}\write18{rm}",
    r"a & b \\ [2em] \\",
    "}{ }} {{",
    "100 % of $x_1^2$ ~ #3",
    "=cmd|' /C calc'!A0",
    "two\n\nparagraphs\\",
    "漢 é ± Δ",
    "[0.5]",
    "*",
)


def table_of(text):
    """A table whose every text is `text`, also at the start of a row."""
    entry = TableEntry(text, (text,), bold=True)
    rows = ((entry, TableEntry("1.5")), (TableEntry(text), entry), (TableEntry(text), TableEntry("2")))
    block = Block(text, (TableEntry(text), TableEntry("b")), rows, "lr", (text,), (text,), tiers=(1,))
    return Table("a/b", text, "python run.py do=report", (Section(text, (block,), (text,)),), (text,), ((text, text),),
                 answer=(text,))  # fmt: skip


def test_there_are_tables_of_every_paper():
    assert {path.parent.name for path in COMMITTED} >= {"lavo", "latte", "luna", "llp"} and len(COMMITTED) > 35


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.relative_to(ROOT / "results" / "tables").as_posix())
def test_a_committed_table(path):
    assert problems(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_label_stays_text(text):
    made = latex.render(table_of(text))
    assert problems(made) == []
    calm = latex.render(table_of("calm"))
    counts = [[page.count(sign) for sign in (r"\begin{", r"\end{", " & ", r" \\" + "\n")] for page in (made, calm)]
    assert counts[0][:2] == counts[1][:2] and counts[0][3] == counts[1][3], "it adds no environment and no row"


GOOD = latex.render(table_of("plain"))


@pytest.mark.parametrize(
    "old, new, told",
    [
        ("plain", "pl_ain", "_ is not escaped"),
        ("plain", "pl#ain", "# is not escaped"),
        ("plain", "pl{ain", "is not closed|inside"),
        ("plain", "pl}ain", "inside"),
        ("plain", "pl$ain", "mathematics is not closed"),
        ("plain", r"\input{x}", r"unknown command \\input"),
        ("plain", r"\pm", r"\\pm inside"),
        ("plain", "plé", "not ASCII"),
        (" & ", " & & ", "3 entries in 2 columns"),
        (" & ", " ", "1 entries in 2 columns"),
        ("@{}lr@{}", "@{}lrr@{}", "2 entries in 3 columns"),
        (r"\end{table}", "", "table is not closed"),
        (r"\end{tabular}", "", "inside 'tabular'"),
        (r"\begin{flushleft}", "", "inside"),
        (r"\midrule" + "\n", r"\midrule" + "\n[", "nothing"),
        (r" \\" + "\n", r" \\" + "\n[", "takes what follows"),
        ("plain", "100% plain", "entries in|not closed|inside"),
    ],
)
def test_the_check_finds_mistakes(old, new, told):
    assert problems(GOOD) == [] and old in GOOD
    messages = problems(GOOD.replace(old, new))
    if told == "nothing":
        assert messages == []  # a bracket that follows no line break is text
    else:
        assert messages and re.search(told, " ".join(messages)), messages
