"""Artifacts of a record are small and hashed, and never cost the record; a table's page links the figures."""

import io
import json
from hashlib import sha256
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import crosses, pages, synthetic
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console

from harness.commands.report import report_tables
from harness.config.cell import Cell
from harness.config.compose import compose
from harness.records.collect import frame, load_records
from harness.records.record import write
from harness.report import spec_files
from harness.report.pages.pictures import pictures_of
from harness.report.scores.select import select
from harness.training.extras.artifacts import MAX_BYTES, MAX_PNG_BYTES, encoded, save_artifacts
from harness.training.run_cell import run_cell
from tasks.base import Task
from tests.helpers.cells import request_of

CONF, PAPER, T11 = pages.CONF, pages.PAPER, pages.T11
made = synthetic.record
CELL = ["model=vanilla", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1"]


def sketch(self, model):
    figure = Figure(figsize=(3, 2))
    figure.subplots().plot([0, 1, float(sum(weight.sum() for weight in model.parameters()))])
    return {"png": figure}


@pytest.fixture
def cell(places, tmp_path_factory):
    data = f"paths.data={tmp_path_factory.getbasetemp() / 'listops-smoke'}"
    return lambda *overrides: run_cell(request_of(compose([*CELL, *places, data, *overrides])))


PLAIN = {".json", ".npz"}  # a record and its predictions


def files(tmp_path):
    return {path.suffix: path for path in (tmp_path / "records").rglob("*.*")}


def test_a_figure_lies_beside_the_record_and_changes_no_number(cell, tmp_path, monkeypatch, capsys):
    """One cell again and again: without artifacts, with one, with one that fails, and failing itself."""
    assert cell().state == "done"
    assert set(files(tmp_path)) == PLAIN
    plain = json.loads(files(tmp_path)[".json"].read_text())

    def noisy(self, model):
        assert not model.training and not torch.is_grad_enabled()
        torch.rand(7)
        return sketch(self, model)

    monkeypatch.setattr(Task, "artifacts", noisy)
    torch.manual_seed(3)
    assert cell("rerun=all").state == "done"
    paths = files(tmp_path)
    assert paths[".png"] == paths[".json"].with_suffix(".png") and set(paths) == {*PLAIN, ".png"}
    assert paths[".png"].read_bytes()[:4] == b"\x89PNG"
    drawn = json.loads(paths[".json"].read_text())
    assert all(plain[key] == drawn[key] for key in ("metrics", "weights_sha256", "config", "selection"))
    assert drawn["artifacts"] == {paths[".png"].name: sha256(paths[".png"].read_bytes()).hexdigest()}

    def broken(*_):
        raise RuntimeError("no ink\nat all")

    monkeypatch.setattr(Task, "artifacts", broken)
    assert cell("rerun=all").state == "done"
    assert set(files(tmp_path)) == PLAIN, "the figure of another run stands beside this record"
    lines = [line for line in (capsys.readouterr().err).splitlines() if "no artifacts" in line]
    assert len(lines) == 1 and "RuntimeError: no ink" in lines[0]
    paths[".png"].write_bytes(b"of an earlier run")
    monkeypatch.setattr("harness.training.module.TaskModule.training_step", lambda *_: 1 / 0)
    assert cell("rerun=all").state == "failed"
    assert set(files(tmp_path)) == {".json"}


def noise(pixels):
    figure = Figure(figsize=(6, 6))
    image = torch.rand(pixels, pixels, generator=torch.Generator().manual_seed(0))
    figure.subplots().imshow(image.numpy(), interpolation="nearest")
    return figure


MODEL = torch.nn.Linear(2, 2)


def save(tmp_path, contents):
    lines, task = [], SimpleNamespace(artifacts=lambda model: contents)
    saved = save_artifacts(task, MODEL, tmp_path / "a-s1-01234567.json", lines.append)
    return saved, lines


def test_equal_figures_have_equal_bytes_and_the_generator_is_left_alone(tmp_path):
    state = torch.get_rng_state()
    first, _ = save(tmp_path, {"png": noise(2)})
    assert torch.equal(torch.get_rng_state(), state)
    assert save(tmp_path, {"png": noise(2)})[0] == first
    data = (tmp_path / "a-s1-01234567.png").read_bytes()
    assert b"Software" not in data and b"Creation" not in data


def test_a_figure_has_a_palette_and_looks_the_same_and_a_large_one_has_a_lower_resolution():
    data, large, full = encoded("png", noise(20)), encoded("png", noise(400)), io.BytesIO()
    noise(20).savefig(full, format="png", dpi=100)
    with Image.open(io.BytesIO(data)) as few, Image.open(full) as many:
        assert few.mode == "P" and len(data) < len(full.getvalue()) / 1.5
        pixels = [np.asarray(picture.convert("RGB")).astype(int) for picture in (few, many)]
    assert abs(pixels[0] - pixels[1]).max() <= 8
    assert max(len(data), len(large)) < MAX_PNG_BYTES
    assert [Image.open(io.BytesIO(data)).size for data in (data, large)] == [(600, 600), (432, 432)]


def test_texts_and_sounds_are_kept(tmp_path):
    contents = {"sample.txt": "naïve", "sample.wav": b"RIFF"}
    saved, lines = save(tmp_path, contents)
    assert lines == [] and sorted(path.name for path in tmp_path.iterdir()) == sorted(saved)
    read = {name.removeprefix("a-s1-01234567."): (tmp_path / name).read_bytes() for name in saved}
    assert read["sample.txt"] == "naïve".encode() and read["sample.wav"] == b"RIFF"
    assert saved == {name: sha256((tmp_path / name).read_bytes()).hexdigest() for name in saved}
    assert save(tmp_path, contents)[0] == saved


def test_an_artifact_that_is_not_allowed_costs_one_line_and_spares_the_others(tmp_path):
    (tmp_path / "a-s1-01234567.json").write_text("the record")
    (tmp_path / "a-s10-0123456.txt").write_text("another cell")
    for suffix, content, reason in (
        ("wav", bytes(MAX_BYTES + 1), "more than"),
        ("json", "{}", "cannot be named"),
        ("../a.txt", "a", "cannot be named"),
        ("txt", 7, "not int"),
    ):
        (tmp_path / "a-s1-01234567.old.txt").write_text("of an earlier attempt")
        saved, lines = save(tmp_path, {suffix: content, "b.txt": "kept"})
        assert set(saved) == {"a-s1-01234567.b.txt"} and len(lines) == 1 and reason in lines[0]
        assert {path.name for path in tmp_path.iterdir()} == {*saved, "a-s1-01234567.json", "a-s10-0123456.txt"}


def kept(tmp_path, record, drawn=("png",)):
    """The record as a run leaves it, with its picture or other artifacts."""
    path = tmp_path / "records" / Cell(record["cell"]["id"], record["config"]).path
    path = path.with_name(f"{path.name}.json")
    names = [path.with_suffix(f".{suffix}").name for suffix in drawn]
    record["artifacts"] = dict.fromkeys(names, "ab" * 32)
    write(record, path)
    for name in names:
        path.with_name(name).write_bytes(b"")
    return record


def shown(tmp_path, asked, records):
    page = tmp_path / "tables" / "lavo" / "page.md"
    pictures = pictures_of(select(frame(records), asked), asked, tmp_path / "records", page)
    return [(picture.heading, picture.caption) for picture in pictures]


def test_a_row_shows_its_lowest_seed_at_the_papers_budget_first(tmp_path):
    reduced = {"budget": "reduced", "source": "synthetic"}
    records = [
        kept(tmp_path, made("lavo", "lra/text", 1), drawn=()),
        kept(tmp_path, made("lavo", "lra/text", 2)),
        kept(tmp_path, made("lavo", "lra/text", 1, **reduced)),
        kept(tmp_path, made("vanilla", "lra/text", 2, **reduced)),
        kept(tmp_path, made("vanilla", "lra/text", 1, budget="smoke")),
        kept(tmp_path, made("performer", "lra/text", 1, status="nan")),
        kept(tmp_path, made("linformer", "lra/text", 1, changed={"model.bases": [1, 2]}, settings={"bases": 2})),
        kept(tmp_path, made("mixer_x", "lra/listops", 1)),
    ]
    assert shown(tmp_path, T11, records) == [
        ("lra/text", "softmax attention · seed 2 · reduced budget, synthetic data"),
        ("lra/text", "LAVO · seed 2 · paper budget, full data"),
        ("lra/listops", "mixer_x (not in the paper) · seed 1 · paper budget, full data"),
    ]


def test_columns_of_one_run_show_it_once(tmp_path):
    t7 = spec_files.load_table("lavo/t7", CONF, PAPER)
    assert len(shown(tmp_path, t7, [kept(tmp_path, crosses.completion("lavo"))])) == 1


def test_the_page_links_a_picture_and_check_sees_a_new_one(tmp_path):
    records = [kept(tmp_path, made("lavo", "lra/text", 1)), kept(tmp_path, made("vanilla", "lra/text", 1), drawn=())]
    places = {"paper": PAPER, "records": tmp_path / "records", "tables": tmp_path / "tables"}
    settings = {"conf": CONF, "paths": places, "console": Console(file=io.StringIO())}

    def report(**more):
        return report_tables("lavo/t11", frame(load_records(places["records"])), **settings, **more).files

    page = report()[0]
    text = page.read_text(encoding="utf-8")
    (link,) = [line for line in text.splitlines() if line.startswith("![")]
    target = link.rpartition("](")[2].rstrip(")")
    assert (page.parent / target).resolve() == next((tmp_path / "records").rglob("*.png")).resolve()
    assert "## Pictures" in text and report(check=True) == []
    kept(tmp_path, records[1])
    assert report(check=True) == [page]
    for path in (tmp_path / "records").rglob("*.png"):
        path.unlink()
    report()
    assert "Pictures" not in page.read_text(encoding="utf-8")


def test_sounds_and_texts_are_linked_beside_the_picture_or_without_one(tmp_path):
    records = [
        kept(tmp_path, made("lavo", "lra/text", 1), drawn=("png", "true.wav", "npz")),
        kept(tmp_path, made("vanilla", "lra/text", 1), drawn=("summaries.txt",)),
    ]
    page = tmp_path / "tables" / "lavo" / "page.md"
    text_only, both = pictures_of(select(frame(records), T11), T11, tmp_path / "records", page)
    assert text_only.link is None and list(text_only.files) == ["summaries.txt"]
    assert both.link.endswith(".png") and (page.parent / both.files["true.wav"]).resolve().is_file()
