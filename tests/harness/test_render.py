"""Every renderer against its golden page, and against text that would break its format.

After an intended change: `UPDATE_GOLDEN=1 python -m pytest tests/harness/test_render.py`, then read the difference.
"""

import os
from pathlib import Path

import pytest
from helpers import pages, synthetic

from harness.config.places import ROOT
from harness.report.pages import notes
from harness.report.render import latex, markdown
from harness.report.render.layout import Block, Section, Table, TableEntry

pytestmark = pytest.mark.usefixtures("rates_searched")

GOLDEN = Path(__file__).parent / "golden_report"
build = pages.build
T11, RENDER, plain = (pages.T11, pages.RENDER, pages.plain)
example = synthetic.example
EXAMPLE = build(T11, example())


@pytest.mark.parametrize("suffix", RENDER)
def test_golden_page(suffix):
    path = GOLDEN / f"t11.{suffix}"
    text = RENDER[suffix](EXAMPLE)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_order_of_the_records_does_not_matter():
    assert build(T11, example()[::-1]) == EXAMPLE


def nasty():
    text = r'50% & $a_b^c #{x} ~\y|z| <b> *i* [0.5] "q" é ±Δτσ≈≤≥√↑↓–·†‡§“”’… 漢'
    grid = Block(
        text,
        (TableEntry(text), TableEntry("b")),
        ((TableEntry("[1]", ("X1",)), TableEntry(text, bold=True)),),
        "lr",
        lines=(text,),
    )
    return Table("a/b", text, text, (Section(text, (grid,), (text,)),), (text,), (("X1", text),))


def test_latex_is_escaped():
    text = latex.render(nasty())
    assert text.isascii()
    assert r"50\% \& \$a\_b\textasciicircum{}c \#\{x\} \textasciitilde{}\textbackslash{}y" in text
    assert "\n[" not in text and "{[}1{]}" in text


def test_every_sign_of_a_committed_page_has_a_form_in_latex():
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "results" / "tables").rglob("*.md")]
    signs = {letter for text in texts for letter in text if not letter.isascii()}
    assert "‡" in signs and [sign for sign in sorted(signs) if latex.escape(sign) == "?"] == []


def test_markdown_cells_stay_cells():
    grid = [line for line in markdown.render(nasty()).splitlines() if line.startswith("| ")]
    assert all(line.replace("\\|", "").count("|") == 3 for line in grid) and len(grid) == 3
    assert "&lt;b&gt; \\*i\\*" in grid[-1]


def test_the_interval_in_the_csv_ends_where_the_scale_does():
    page = build(T11, synthetic.seeds("lavo", "lra/text", [0.97, 0.98, 1.0]))
    (row,) = (row for row in page.tidy if (row["row"], row["column"]) == ("LAVO", "Text"))
    # 98.33 and a deviation of 1.5275: 4.3027 * 1.5275 / sqrt 3
    assert (row["ours_ci"], row["ours_ci_low"], row["ours_ci_high"]) == ("3.7946", "94.5388", "100.0000")


def test_terminal_fits():
    table = EXAMPLE
    colour = plain(table, force_terminal=True, color_system="truecolor")
    assert "\x1b[" in colour and "─" in colour
    text = plain(table)
    assert "\x1b[" not in text and "─" not in text and max(map(len, text.splitlines())) <= 100
    assert "67.20 ± 0.50 (3)*" in text  # this terminal shows no bold


def test_each_sign_is_explained_on_the_page_that_all_pages_link_to():
    rows = [line.split("|")[1] for line in (ROOT / "docs/report.md").read_text(encoding="utf-8").splitlines()
            if line.startswith("| ")]  # fmt: skip
    for sign in (*notes.SIGNS, "(n)", "~"):
        assert any(sign in row for row in rows), sign
