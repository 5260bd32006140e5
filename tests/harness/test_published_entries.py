"""Every table and every figure of the five papers has an entry in conf/table or conf/figure."""

import re
from pathlib import Path

import pytest
import yaml

from harness.commands.report import draw_figures
from harness.config.compose import compose
from harness.config.sweep import Command, expand_all
from harness.errors import UsageError
from harness.report.spec.figure import PendingFigure, PictureFigure
from harness.report.spec.table import TableSpec
from harness.report.spec_files import available, load_figure, load_table
from tests.helpers.ledger import tables

ROOT = Path(__file__).resolve().parents[2]
CONF, PAPER = ROOT / "conf", ROOT / "results" / "paper"
NAMES = {"lavo": "LAVO", "latte": "Latte", "luna": "Luna", "llp": "LLP", "longnet": "LongNet"}

# What the papers print. Panels of one figure share an entry, but for Latte's Figure 5, whose two ask for different runs
TABLES = {"lavo": range(1, 12), "latte": range(1, 10), "luna": range(1, 7), "llp": range(1, 10)}
FIGURES = {
    "lavo": ("1", "2", "3", "4"),
    "latte": ("1", "2", "3", "4", "5a", "5b", "6", "7", "8", "9", "10", "11"),
    "luna": ("1", "2"),
    "llp": ("1", "2", "3", "4", "5"),
}
SCREENSHOTS = "longnet/screenshots"  # all that the review of LongNet shows: seven pictures, whose files are lost

PUBLISHED_TABLES = [(paper, number) for paper, numbers in TABLES.items() for number in numbers]
PUBLISHED_FIGURES = [(paper, number) for paper, numbers in FIGURES.items() for number in numbers]
OURS = {f"{paper}/{name}" for paper, name in (("lavo", "t2_costs"), ("lavo", "f4"), ("latte", "costs"))}
OURS |= {f"latte/{name}" for name in ("f5a", "f5b", "f6")}  # the runs that give these figures their scores


def test_the_papers_have_35_tables_and_24_figures():
    assert (len(PUBLISHED_TABLES), len(PUBLISHED_FIGURES) + 1) == (35, 24)
    assert set(tables(PAPER)) == {f"{paper}_table{number:02}" for paper, number in PUBLISHED_TABLES}


@pytest.mark.parametrize("paper, number", PUBLISHED_TABLES)
def test_a_table_has_an_entry(paper, number):
    """It is read with its published numbers, under the paper's own number."""
    spec = load_table(f"{paper}/t{number}", CONF, PAPER)
    assert re.match(rf"{NAMES[paper]} Table {number}\b", spec.title)
    read = yaml.safe_load((CONF / "table" / paper / f"t{number}.yaml").read_text(encoding="utf-8"))
    assert read["ledger"] == f"{paper}_table{number:02}"
    if isinstance(spec, TableSpec):
        assert spec.published and spec.gpu_hours, "what a row costs stands where it was not run"


@pytest.mark.parametrize("paper, number", PUBLISHED_FIGURES)
def test_a_figure_has_an_entry(paper, number):
    assert re.match(rf"{NAMES[paper]} Figure {number}\b", load_figure(f"{paper}/f{number}", CONF, PAPER).title)


def test_the_lost_screenshots_are_one_entry_that_says_so():
    assert "seven screenshots" in load_figure(SCREENSHOTS, CONF, PAPER).title
    first = (CONF / "figure" / f"{SCREENSHOTS}.yaml").read_text(encoding="utf-8").splitlines()[0]
    assert "lost" in first and "from the code" in first


def test_a_picture_is_committed_and_linked_where_it_is_drawn():
    figures = {name: load_figure(name, CONF, PAPER) for name in available(CONF, "figure")}
    pictures = {name: figure for name, figure in figures.items() if isinstance(figure, PictureFigure)}
    papers = {"lavo/f1", "lavo/f2", "lavo/f3", "latte/f1", "latte/f2", "latte/f3", "luna/f2", SCREENSHOTS}
    assert set(pictures) == papers | {f"llp/f{number}" for number in range(1, 6)}
    for name, figure in pictures.items():
        assert all((ROOT / f"results/figures/{name}.{suffix}").is_file() for suffix in ("png", "pdf")), name
        assert f"(../results/figures/{name}.png)" in (ROOT / figure.source).read_text(encoding="utf-8"), name


def test_a_picture_is_not_drawn_by_the_report(tmp_path):
    folders = {"paper": PAPER, "figures": tmp_path}
    with pytest.raises(UsageError, match=r"lavo/f2\.yaml: notebooks/lavo\.ipynb draws this figure"):
        draw_figures("lavo/f2", None, conf=CONF, paths=folders)
    (tmp_path / "figure").mkdir()
    (tmp_path / "figure/a.yaml").write_text("kind: picture\ntitle: A\nsource: a.ipynb\n", encoding="utf-8")
    assert draw_figures("all", None, conf=tmp_path, paths=folders) == []


def test_an_entry_of_a_paper_is_published_or_known_as_ours():
    tables = {name for name in available(CONF) if name.split("/")[0] in NAMES}
    assert tables == {f"{paper}/t{number}" for paper, number in PUBLISHED_TABLES} | OURS
    figures = {name for name in available(CONF, "figure") if name.split("/")[0] in NAMES}
    published = {f"{paper}/f{number}" for paper, number in PUBLISHED_FIGURES}
    assert figures == published | {SCREENSHOTS, "longnet/cost"}


def test_a_figure_that_cannot_be_drawn_yet_says_what_it_needs():
    figures = {name: load_figure(name, CONF, PAPER) for name in available(CONF, "figure")}
    pending = {name: figure for name, figure in figures.items() if isinstance(figure, PendingFigure)}
    assert set(pending) == {"latte/f7", "latte/f11", "luna/f1"}
    for name, figure in pending.items():
        assert "GPU-hours" in figure.needs, name
        program, door, *typed = figure.command.split()
        assert (program, door) == ("python", "run.py")
        assert expand_all([Command(compose(typed), tuple(typed))]).cells, name
