"""A table's plot: its content, its bytes, and when do=report draws it again."""

import io
from types import SimpleNamespace

import pytest
from helpers import pages
from helpers.synthetic import seeds
from rich.console import Console

from harness.commands import report as verb
from harness.records.collect import frame
from harness.report.pages import answer
from harness.report.plots import scores
from harness.report.plots.drawing import draw_now
from harness.report.plots.figures import table_plots
from harness.report.plots.file import Plot
from harness.report.scores import groups, select

pytestmark = pytest.mark.usefixtures("rates_searched")

CONF, PAPER, T11 = pages.CONF, pages.PAPER, pages.T11
REDUCED = {"budget": "reduced", "source": "synthetic"}
SCORES = {"vanilla": [0.50, 0.51, 0.52], "lavo": [0.40, 0.46], "no_mixing": [0.30, 0.31, 0.33]}


def records(**changed):
    return [r for model, values in (SCORES | changed).items() for r in seeds(model, "lra/listops", values, **REDUCED)]


def answers(entries):
    return answer.answers(groups.group_scores(select.select(frame(entries), T11), T11))


def test_a_table_that_ranks_no_rows_shows_its_first_columns_alone():
    names = [f"column {number}" for number in range(9)]
    made = [stand_in(name, ranks=False) for name in names]
    assert [shown.name for shown in scores.shown_columns(made)] == names[: scores.MOST]
    untested = [stand_in(name, ranks=False, pairs=0) for name in names[:2]]
    assert [shown.name for shown in scores.shown_columns(untested + made)] == names[: scores.MOST]
    assert len(scores.shown_columns([stand_in(name, ranks=True) for name in names])) == len(names)


def stand_in(name, ranks, pairs=1):
    """An answer on a column of two rows, at a resolution that no other column has."""
    group = SimpleNamespace(scores=[], where="here")
    tests = SimpleNamespace(rows=2, pairs=pairs, ranks=ranks)
    return SimpleNamespace(name=name, tests=tests, resolution=name, group=group)


def test_equal_answers_give_equal_bytes(tmp_path):
    def plot(**changed):
        return Plot(scores.data("title", answers(records(**changed))), scores.draw, (path,))

    contents = []
    for name in ("a", "b"):
        path = tmp_path / f"{name}.png"
        plot().write([path])
        contents.append(path.read_bytes())
    assert contents[0] == contents[1] and plot().stale() == []
    assert plot(lavo=[0.40, 0.47]).stale() == [path]


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


def test_several_tables_are_shown_with_one_line_per_column(tmp_path):
    paths = {"paper": PAPER, "records": tmp_path, "tables": tmp_path / "tables"}
    console = Console(file=io.StringIO(), width=100)
    names = ["lavo/t11", "lavo/t7"]
    verb.report_tables(names, frame(records()), conf=CONF, paths=paths, formats=["csv"], console=console)
    shown = console.file.getvalue().splitlines()
    (line,) = [line for line in shown if line.startswith("ListOps")]
    assert line.split()[:4] == ["ListOps", "reduced", "3", "2"] and "no mixing 31.33" in line and "of 2" in line
    assert "LAVO Table 7, point cloud completion" in shown and "nothing to rank yet" in shown
    assert "columns with R ≥ 4: " in console.file.getvalue()


def test_a_picture_whose_columns_have_no_run_any_more_is_removed(tmp_path):
    def drawn(records):
        selected = select.select(frame(records), pages.T11)
        results = groups.group_scores(selected, pages.T11)
        return table_plots(pages.T11, selected, results, answer.answers(results), tmp_path, tmp_path / "t11.md")

    (plot, picture), (searches, none) = drawn(
        [*seeds("lavo", "lra/text", [0.6, 0.61, 0.62]), *seeds("vanilla", "lra/text", [0.5] * 3)]
    )
    plot.update(False, draw_now)
    assert picture.link == "lavo/t11-scores.png" and plot.paths[0].is_file()
    assert searches.shows_nothing and none is None, "nothing was searched"
    (plot, picture), _ = drawn([])
    assert plot.update(True, draw_now) == list(plot.paths), "a check names it"
    assert plot.update(False, draw_now) == [] and picture is None and not plot.paths[0].exists()
