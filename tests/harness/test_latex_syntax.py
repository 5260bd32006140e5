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


@pytest.mark.parametrize(
    "old, new, told",
    [
        ("plain", "pl_ain", "_ is not escaped"),
        ("plain", "pl{ain", "is not closed|inside"),
        ("plain", r"\input{x}", r"unknown command \\input"),
        (" & ", " & & ", "3 entries in 2 columns"),
        (r"\end{table}", "", "table is not closed"),
        (r" \\" + "\n", r" \\" + "\n[", "takes what follows"),
    ],
)
def test_the_check_finds_mistakes(old, new, told):
    assert problems(GOOD) == [] and old in GOOD
    assert re.search(told, " ".join(problems(GOOD.replace(old, new))))


TABULAR = re.compile(r"\\begin\{tabular\}.*?\\end\{tabular\}", re.DOTALL)


def wide(columns, text="87.1 (3)"):
    header = (TableEntry("model"), *(TableEntry(f"c{number}") for number in range(columns)))
    rows = ((TableEntry("LAVO"), *[TableEntry(text, ("X1",))] * columns),) * 2
    block = Block("Ours", header, rows, "l" + "r" * columns, lines=("below",), gaps=(1,))
    return Table("a/b", "A title", "", (Section("Measured", (block,)),), (), ())


@pytest.mark.parametrize("columns, parts", [(8, 1), (30, 4)])
def test_a_wide_table_is_cut_between_columns(columns, parts):
    text = latex.render(wide(columns))
    tabulars = TABULAR.findall(text)
    assert len(tabulars) == parts and text.count(r"\addlinespace") == parts and text.count("below") == 1
    assert re.findall(r"part (\d) of (\d)", text) == [(f"{n}", f"{parts}") for n in range(1, parts + 1) if parts > 1]
    shown = [re.findall(r"\bc\d+\b", tabular) for tabular in tabulars]
    assert [name for names in shown for name in names] == [f"c{number}" for number in range(columns)]
    assert all(tabular.count("LAVO") == 2 for tabular in tabulars)
    assert max(map(len, shown)) - min(map(len, shown)) <= 2, "parts of about the same width"
    assert len(TABULAR.findall(latex.render(wide(2, "long " * 40)))) == 2, "each is wider than a page"
