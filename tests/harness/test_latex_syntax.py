"""Every committed LaTeX table has valid syntax, and so has a table with hostile labels."""

import re
from pathlib import Path

import pytest

from harness.report.render import latex
from harness.report.render.layout import Block, Section, Table, TableEntry
from tests.helpers.latex_syntax import problems

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = sorted((ROOT / "results" / "tables").rglob("*.tex"))
HOSTILE = (
    r"\input{/etc/passwd}",
    r"\end{tabular}\write18{rm}",
    r"a & b \\ [2em] \\",
    "}{ }} {{",
    "100 % of $x_1^2$ ~ #3",
    "two\n\nparagraphs\\",
    "漢 é ± Δ",
    "[0.5]",
)


def table_of(text):
    """A table whose every text is `text`, also at the start of a row."""
    entry = TableEntry(text, (text,), bold=True)
    rows = ((entry, TableEntry("1.5")), (TableEntry(text), entry), (TableEntry(text), TableEntry("2")))
    block = Block(text, (TableEntry(text), TableEntry("b")), rows, "lr", (text,), (text,), gaps=(1,))
    return Table("a/b", text, "python run.py do=report", (Section(text, (block,), (text,)),), (text,), ((text, text),),
                 answer=(text,))  # fmt: skip


def test_every_committed_table():
    assert {path.parent.name for path in COMMITTED} >= {"lavo", "latte", "luna", "llp"} and len(COMMITTED) > 35
    for path in COMMITTED:
        assert problems(path.read_text(encoding="utf-8")) == [], path


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_label_stays_text(text):
    made = latex.render(table_of(text))
    assert problems(made) == []
    calm = latex.render(table_of("calm"))
    counts = [[page.count(sign) for sign in (r"\begin{", r"\end{", " & ", r" \\" + "\n")] for page in (made, calm)]
    assert counts[0][:2] == counts[1][:2] and counts[0][3] == counts[1][3], "it adds no environment and no row"


GOOD = latex.render(table_of("plain"))


def test_the_check_finds_mistakes():
    wrong = {"pl_ain": "_ is not escaped", "pl{ain": "is not closed|inside", r"\input{x}": r"unknown command \\input"}
    changes = [("plain", new, told) for new, told in wrong.items()]
    changes += [(" & ", " & & ", "3 entries in 2 columns"), (r"\end{table}", "", "table is not closed")]
    assert problems(GOOD) == []
    for old, new, told in (*changes, (r" \\" + "\n", r" \\" + "\n[", "takes what follows")):
        assert old in GOOD and re.search(told, " ".join(problems(GOOD.replace(old, new)))), new
