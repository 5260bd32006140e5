"""`longhaul.report`, `figure` and `measurements` return the data of `do=report` and write nothing."""

import matplotlib
import pandas as pd
import pytest
from rich.console import Console

import longhaul
from harness.commands.report import report_tables
from harness.config.places import CONF, LEDGER, ROOT

RECORDS = ROOT / "results" / "records" / "lra" / "listops" / "skyformer" / "reduced"
PNG = b"\x89PNG\r\n"


@pytest.fixture(scope="module")
def cells():
    return longhaul.records(RECORDS)


@pytest.fixture(scope="module")
def page(cells):
    return longhaul.report("demo", records=cells)


def test_it_is_the_page_of_do_report(page, cells, tmp_path):
    paths = {"paper": LEDGER, "records": ROOT / "results" / "records", "tables": tmp_path / "results" / "tables"}
    quiet = Console(quiet=True)
    report_tables(["demo"], cells, conf=CONF, paths=paths, plots=False, console=quiet, formats=["md", "csv"])
    folder = paths["tables"]
    assert page.markdown == page._repr_markdown_() == (folder / "demo.md").read_text(encoding="utf-8")
    assert page.title.startswith("Demo: LAVO")
    assert any("ListOps: softmax attention (46.2) has the best mean; unclear: LAVO" in line for line in page.answer)
    written = pd.read_csv(folder / "demo.csv")
    assert list(written.columns) == list(page.frame.columns) and len(written) == len(page.frame)
    assert page.frame["ours_mean"].tolist() == pytest.approx(written["ours_mean"].tolist(), nan_ok=True)


def test_its_frame_holds_numbers(page, cells):
    ours = page.frame[(page.frame["column"] == "ListOps") & (page.frame["budget"] == "reduced")]
    means = ours.set_index("row")["ours_mean"]
    assert means["softmax attention"] > means["no mixing"] > 20 and ours.set_index("row")["n"]["LAVO"] == 4
    printed = longhaul.report("lavo/t11", records=cells[:0]).frame
    assert printed["ours_mean"].isna().any(), "published numbers without ours"


def test_records_may_be_joined(cells):
    both = pd.concat([cells[cells["model"] == "vanilla"], cells[cells["model"] == "lavo"]], ignore_index=True)
    rows = longhaul.report("demo", records=both).frame.set_index("row")
    assert rows["n"][["softmax attention", "LAVO"]].tolist() == [4, 4] and not rows["n"].get("no mixing", 0)


def test_a_plot_is_a_picture_and_the_backend_stays(page, tmp_path):
    before = matplotlib.get_backend()
    matplotlib.use("svg")
    try:
        shown = page.plot("ListOps")
        assert matplotlib.get_backend() == "svg"
    finally:
        matplotlib.use(before)
    assert shown._repr_png_().startswith(PNG)
    assert shown.save(tmp_path / "a.png").read_bytes() == shown.png and "png" not in repr(shown)


def test_a_figure_is_a_picture():
    needle = longhaul.records(ROOT / "results" / "records" / "probe" / "long_needle")
    assert longhaul.figure("probes/long_needle", records=needle).png.startswith(PNG)


def test_measurements():
    points = longhaul.measurements()
    assert {"name", "hardware", "dim", "model", "what", "length", "status", "ms", "memory_mb"} <= set(points.columns)
    same = points[(points["what"] == "train") & (points["length"] == 1024) & (points["status"] == "ok")]
    assert (same["ms"] > 0).all() and {"lavo", "vanilla"} <= set(same["model"])


@pytest.mark.parametrize(("call", "message"), [
    (lambda page, cells: page.plot("ListOp"), "has no scores in 'ListOp': did you mean 'ListOps'"),
    (lambda page, cells: longhaul.report("lavo/t1x", records=cells), "there is no table 'lavo/t1x'"),
    (lambda page, cells: longhaul.report("llp/t6", records=cells).plot(), "no column with two rows"),
    (lambda page, cells: longhaul.figure("lavo/f9", records=cells), "there is no figure 'lavo/f9'"),
    (lambda page, cells: longhaul.figure("latte/f7", records=cells), "figure latte/f7 has nothing to show yet"),
])  # fmt: skip
def test_a_mistake_is_one_line(call, message, page, cells):
    with pytest.raises(longhaul.UsageError, match=message) as error:
        call(page, cells)
    assert "\n" not in str(error.value)
