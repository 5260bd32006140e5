"""The picture beside a record: saved once and never in the way, and linked from the page of a table."""

import io
import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from matplotlib.figure import Figure
from rich.console import Console

from harness.commands.report import report
from harness.config.cell import Cell
from harness.config.compose import compose
from harness.records.record import write
from harness.report import spec
from harness.report.gallery import pictures
from harness.training import artifacts, fsdp
from harness.training.run_cell import CellRequest, run_cell
from tasks.base import Task

GOLDEN = Path(__file__).parent / "golden_report"
synthetic = runpy.run_path(str(GOLDEN / "synthetic.py"))
crosses = runpy.run_path(str(GOLDEN / "crosses.py"))
pages = runpy.run_path(str(GOLDEN / "pages.py"))
CONF, PAPER, T11 = pages["CONF"], pages["PAPER"], pages["T11"]
made = synthetic["record"]
CELL = ["model=vanilla", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1"]


def sketch(self, model):
    figure = Figure(figsize=(3, 2))
    figure.subplots().plot([0, 1, float(sum(weight.sum() for weight in model.parameters()))])
    return {"png": figure}


@pytest.fixture
def cell(places, tmp_path_factory):
    data = f"paths.data={tmp_path_factory.getbasetemp() / 'listops-smoke'}"
    return lambda *overrides: run_cell(CellRequest(compose([*CELL, *places, data, *overrides])))


def files(tmp_path):
    return {path.suffix: path for path in (tmp_path / "records").rglob("*.*")}


def test_a_task_without_a_picture_leaves_no_file(cell, tmp_path):
    assert cell().state == "done"
    assert set(files(tmp_path)) == {".json"}


def test_it_lies_beside_the_record_and_changes_no_number(cell, tmp_path, monkeypatch):
    cell()
    plain = json.loads(files(tmp_path)[".json"].read_text())

    def noisy(self, model):
        assert not model.training and not torch.is_grad_enabled()
        torch.rand(7)
        return sketch(self, model)

    monkeypatch.setattr(Task, "artifacts", noisy)
    torch.manual_seed(3)
    assert cell("rerun=all").state == "done"
    found = files(tmp_path)
    assert found[".png"] == found[".json"].with_suffix(".png") and set(found) == {".json", ".png"}
    assert found[".png"].read_bytes()[:4] == b"\x89PNG"
    drawn = json.loads(found[".json"].read_text())
    assert all(plain[key] == drawn[key] for key in ("metrics", "weights_sha256", "config", "selection"))


def test_a_picture_that_fails_loses_no_record(cell, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Task, "artifacts", sketch)
    cell()
    assert ".png" in files(tmp_path)

    def broken(self, model):
        raise RuntimeError("no ink\nat all")

    monkeypatch.setattr(Task, "artifacts", broken)
    assert cell("rerun=all").state == "done"
    assert set(files(tmp_path)) == {".json"}, "the picture of another run stands beside this record"
    said = [line for line in (capsys.readouterr().err).splitlines() if "no picture" in line]
    assert len(said) == 1 and "RuntimeError: no ink" in said[0]


def test_what_is_shared_out_has_none(cell, tmp_path, monkeypatch):
    shared = SimpleNamespace(**vars(fsdp) | {"is_sharded": lambda module: True})
    monkeypatch.setattr("harness.training.attempt.fsdp", shared)
    monkeypatch.setattr(Task, "artifacts", sketch)
    assert cell().state == "done"
    assert set(files(tmp_path)) == {".json"}


class Drawer:
    def __init__(self, pixels=0):
        self.pixels = pixels

    def artifacts(self, model):
        figure = Figure(figsize=(6, 6))
        noise = torch.rand(self.pixels or 2, self.pixels or 2, generator=torch.Generator().manual_seed(0))
        figure.subplots().imshow(noise.numpy(), interpolation="nearest")
        return {"png": figure}


def test_the_same_picture_has_the_same_bytes_and_leaves_the_generator_alone():
    model = torch.nn.Linear(2, 2)
    state = torch.get_rng_state()
    one = artifacts.draw(Drawer(), model)
    assert torch.equal(torch.get_rng_state(), state) and model.training
    assert artifacts.draw(Drawer(), model) == one and b"Software" not in one and b"Creation" not in one


def test_a_large_one_is_drawn_with_fewer_dots():
    sizes = [len(artifacts.draw(Drawer(pixels), torch.nn.Linear(2, 2))) for pixels in (2, 200)]
    assert max(sizes) < artifacts.BYTES


def kept(tmp_path, record, drawn=True):
    """The record as a run leaves it, with its picture."""
    path = tmp_path / "records" / Cell(record["cell"]["id"], record["config"]).path
    path = path.with_name(f"{path.name}.json")
    write(record, path)
    if drawn:
        path.with_suffix(".png").write_bytes(b"")
    return record


def shown(tmp_path, asked, records):
    found = pictures(asked, records, tmp_path / "records", tmp_path / "tables" / "lavo" / "page.md")
    return [(one.place, one.caption) for one in found]


def test_a_row_shows_its_lowest_seed_at_the_papers_budget_first(tmp_path):
    reduced = {"budget": "reduced", "source": "synthetic"}
    records = [
        kept(tmp_path, made("lavo", "lra/text", 1), drawn=False),
        kept(tmp_path, made("lavo", "lra/text", 2)),
        kept(tmp_path, made("lavo", "lra/text", 3)),
        kept(tmp_path, made("lavo", "lra/text", 1, **reduced)),
        kept(tmp_path, made("vanilla", "lra/text", 2, **reduced)),
        kept(tmp_path, made("vanilla", "lra/text", 1, budget="smoke")),
        kept(tmp_path, made("performer", "lra/text", 1, status="nan")),
        kept(tmp_path, made("linformer", "lra/text", 1, changed={"model.bases": [1, 2]}, settings={"bases": 2})),
        kept(tmp_path, made("reformer", "lra/text", 1, protocol="google")),
        kept(tmp_path, made("mixer_x", "lra/listops", 1)),
    ]
    assert shown(tmp_path, T11, records) == [
        ("lra/text", "vanilla · seed 2 · reduced budget, synthetic data"),
        ("lra/text", "LAVO · seed 2 · paper budget, full data"),
        ("lra/listops", "mixer_x (not in the paper) · seed 1 · paper budget, full data"),
    ]


def test_columns_of_one_run_show_it_once_and_columns_that_set_something_are_places_of_their_own(tmp_path):
    t7, t8 = (spec.load(f"lavo/{name}", CONF, PAPER) for name in ("t7", "t8"))
    assert len(shown(tmp_path, t7, [kept(tmp_path, crosses["completion"]("lavo"))])) == 1
    records = [kept(tmp_path, crosses["forecast"]("no_cross", "ETTh1", features)) for features in "MS"]
    assert shown(tmp_path, t8, records) == [
        (f"forecasting/etth1, task.features={features}", "no cross attention (not in the paper) · seed 1 · paper budget"
         ", full data") for features in "SM"
    ]  # fmt: skip


def test_the_page_links_it_and_check_sees_a_new_one(tmp_path):
    records = [kept(tmp_path, made("lavo", "lra/text", 1)), kept(tmp_path, made("vanilla", "lra/text", 1), drawn=False)]
    places = {"paper": PAPER, "records": tmp_path / "records", "tables": tmp_path / "tables"}
    settings = {"conf_root": CONF, "paths": places, "console": Console(file=io.StringIO())}
    page = report("lavo/t11", **settings)[0]
    text = page.read_text(encoding="utf-8")
    (link,) = [line for line in text.splitlines() if line.startswith("![")]
    target = link.rpartition("](")[2].rstrip(")")
    assert (page.parent / target).resolve() == next((tmp_path / "records").rglob("*.png")).resolve()
    assert "## Pictures" in text and report("lavo/t11", **settings, check=True) == []
    kept(tmp_path, records[1])
    assert report("lavo/t11", **settings, check=True) == [page]
    for path in (tmp_path / "records").rglob("*.png"):
        path.unlink()
    report("lavo/t11", **settings)
    assert "Pictures" not in page.read_text(encoding="utf-8")
