"""A table's plot: its content, its bytes, and when do=report draws it again."""

import io

import pytest
from helpers import pages
from helpers.synthetic import seeds
from rich.console import Console

from harness.commands import report as verb
from harness.records.collect import frame

pytestmark = pytest.mark.usefixtures("rates_searched")

CONF, PAPER, T11 = pages.CONF, pages.PAPER, pages.T11
REDUCED = {"budget": "reduced", "source": "synthetic"}
SCORES = {"vanilla": [0.50, 0.51, 0.52], "lavo": [0.40, 0.46], "no_mixing": [0.30, 0.31, 0.33]}


def records(**changed):
    return [r for model, values in (SCORES | changed).items() for r in seeds(model, "lra/listops", values, **REDUCED)]


def test_a_report_links_draws_and_checks_it(tmp_path):
    paths = {"paper": PAPER, "records": tmp_path, "tables": tmp_path / "tables", "figures": tmp_path / "figures"}

    def report(entries, **settings):
        return verb.report_tables("lavo/t11", frame(entries), conf=CONF, paths=paths, formats=["md"], **settings).files

    console, plot = Console(file=io.StringIO(), width=100), tmp_path / "figures" / "lavo" / "t11-scores.png"
    page = tmp_path / "tables" / "lavo" / "t11.md"
    assert report(records(), check=True) == [page, plot] and not plot.exists()
    assert report(records(), console=console) == [page, plot]
    text = page.read_text(encoding="utf-8")
    assert "(../../figures/lavo/t11-scores.png)" in text
    assert text.index("### ListOps") < text.index("t11-scores.png") < text.index("## Provenance")
    before = plot.stat().st_mtime_ns
    assert report(records(), check=True) == [] and report(records(), console=console) == [page, plot]
    assert plot.stat().st_mtime_ns == before
    assert report(records(lavo=[0.40, 0.47]), check=True) == [page, plot]
    assert report([], console=console) == [page]  # nothing to draw
