"""Bubble figures: the numbers of every bubble, rows that are left out, labels without overlap, and the verb."""

import copy
import itertools
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import synthetic
from omegaconf import OmegaConf

from harness.commands import report as verb
from harness.errors import UsageError
from harness.records import evidence, ledger
from harness.records.collect import frame
from harness.report import spec_files
from harness.report.plots.labels import Box, place_labels
from harness.report.scores import tradeoff

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT / "results" / "paper"
CONF = (ROOT / "tests" / "helpers" / "figures", ROOT / "conf")  # with a figure whose rows are ours alone
made, seeds, BASE = synthetic.record, synthetic.seeds, synthetic.BASE
F1 = spec_files.load_figure("luna/f1", CONF, PAPER)
T11 = spec_files.load_figure("lavo/t11", CONF, PAPER)
REDUCED = {"budget": "reduced", "source": "synthetic"}


def everywhere(model, scores, speed=100.0, memory=1000.0, without=(), **kwargs):
    """Records of a model in every column of LAVO Table 11, its speed and memory growing from column to column alike."""
    records = []
    for number, (name, column) in enumerate(T11.table.columns.items(), 1):
        rates = {"examples_per_s": speed * number, "tokens_per_s": 1000 * speed * number}
        cost = rates | {"peak_memory_mb": memory * number, "wall_s": 1e5, "resumes": 1}
        if name not in without:
            records += seeds(model, column.task, scores, **cost, **kwargs)
    return records


def ours(records, figure=T11):
    return [panel for panel in tradeoff.panels(figure, frame(records), PAPER) if panel["title"].startswith("Ours")]


def by_label(panel):
    """{label: bubble} of a panel; a bubble without an error bar has no half width."""
    bubbles_of = {}
    for line in panel["series"]:
        (speed,), (accuracy,), (memory,) = line["x"], line["y"], line["size"]
        bubble = SimpleNamespace(speed=speed, accuracy=accuracy, memory=memory, role=line["role"], half_width=None)
        if "low" in line:
            bubble.half_width = (line["high"][0] - line["low"][0]) / 2
            assert bubble.accuracy == pytest.approx((line["high"][0] + line["low"][0]) / 2, abs=1e-4)
        bubbles_of[line["name"]] = bubble
    return bubbles_of


def text(panel):
    return " ".join(panel["notes"])


def test_the_papers_bubbles_are_the_ledgers_numbers():
    (theirs, _) = tradeoff.panels(F1, frame([]), PAPER)
    accuracy = {c["row"]: c["number"] for c in ledger.entries("luna_table01", PAPER) if c["column"] == "Avg (w/o rtl)"}
    at = [c for c in ledger.entries("luna_table02", PAPER) if c["condition"] == "input_length=4K"]
    speed = {c["row"]: c["number"] for c in at if c["column"] == "steps_per_second_relative"}
    memory = {c["row"]: c["number"] for c in at if c["column"] == "peak_memory_relative"}
    bubble_of = by_label(theirs)
    assert len(bubble_of) == 12 and len(accuracy) == 15
    for label, bubble in bubble_of.items():
        row = {"Sinkhorn Trans.": "Sinkhorn Trans"}.get(label, label)
        assert (bubble.accuracy, bubble.speed, bubble.memory) == (accuracy[label], speed[row], memory[row])
    luna = bubble_of["Luna-256"]
    assert (luna.accuracy, luna.speed, luna.memory, luna.role) == (56.73, 4.3, 0.15, "own")
    assert bubble_of["Transformer"].role == "reference" and bubble_of["Performer"].role == ""
    assert "Longformer" in text(theirs), "a row without a speed"


def test_ours_are_means_and_geometric_means():
    records = everywhere("vanilla", [0.6, 0.6, 0.6]) + everywhere("lavo", [0.70, 0.71, 0.72], speed=50.0, memory=250.0)
    for record in records:  # one column is three times as fast as the others imply
        if (record["cell"]["model"], record["cell"]["task"]) == ("lavo", "lra/image"):
            record["examples_per_s"] *= 3
    (panel,) = ours(records)
    lavo, vanilla = by_label(panel)["LAVO"], by_label(panel)["softmax attention"]
    assert (vanilla.accuracy, vanilla.speed, vanilla.memory, vanilla.role) == (60.0, 1.0, 1.0, "reference")
    assert (lavo.accuracy, lavo.memory, lavo.role) == (71.0, 0.25, "own")
    assert lavo.speed == pytest.approx(0.5 * 3 ** (1 / 5), abs=1e-4)
    assert lavo.half_width == pytest.approx(4.3027 / 3**0.5, abs=1e-3)  # t for two degrees of freedom, deviation 1
    assert "Seeds: 3 per row; bars" in text(panel)


def test_no_bar_leaves_the_scale_of_the_metric():
    (panel,) = ours(everywhere("vanilla", [0.6, 0.6, 0.6]) + everywhere("lavo", [0.97, 0.98, 1.0]))
    (lavo,) = [line for line in panel["series"] if line["name"] == "LAVO"]
    assert lavo["high"] == [100.0]  # 98.33 + 3.79
    assert lavo["low"] == [pytest.approx(94.539, abs=1e-3)]  # t for two degrees of freedom, deviation 1.5275
    (panel,) = ours(everywhere("vanilla", [0.6, 0.7]))
    assert by_label(panel)["softmax attention"].half_width is None, "two seeds have no bar"


def test_incomplete_rows_are_left_out_and_named():
    records = [
        *everywhere("vanilla", [0.6]),
        *everywhere("linformer_skyformer", [0.5], without=["Image"]),
        *everywhere("performer_skyformer", [0.5], without=["Text"]),
        made("performer_skyformer", "lra/text", 1, status="oom", examples_per_s=None, peak_memory_mb=None),
        *everywhere("lavo", [0.7], without=["Text"]),
        made("lavo", "lra/text", 1, 0.7, changed={"model.window": [16, 64]}, settings={"window": 64}),
        *everywhere("mixer_x", [0.4]),
    ]
    (panel,) = ours(records)
    assert set(by_label(panel)) == {"softmax attention", "mixer_x*"}
    (left_out,) = [note for note in panel["notes"] if note.startswith("Not drawn")]
    assert all(name in left_out for name in ("Linformer", "Performer", "LAVO")) and "softmax" not in left_out
    assert "* not in the paper." in panel["notes"]
    records[-1]["examples_per_s"] = 0.0
    assert set(by_label(ours(records)[0])) == {"softmax attention"}, "nor a row without a speed"


def test_failed_seeds_and_leaks_are_named():
    records = [*everywhere("vanilla", [0.6]), *everywhere("lavo", [0.7], leak=True)]
    records.append(made("vanilla", "lra/text", 2, status="nan", examples_per_s=None, peak_memory_mb=None))
    (panel,) = ours(records)
    assert by_label(panel)["softmax attention"].accuracy == 60.0
    assert "Failed seeds, not in the mean: softmax attention (1 nan)." in panel["notes"]
    assert "TEST LEAK, checkpoint chosen on the test split: LAVO." in panel["notes"]


def test_nothing_is_relative_without_the_reference():
    (panel,) = ours(everywhere("lavo", [0.7]) + everywhere("vanilla", [0.6], without=["Image"]))
    assert panel == ours([])[0]


cpu = copy.deepcopy(BASE["hardware"]) | {"device": "cpu", "gpu": None}


@pytest.mark.parametrize("other", [REDUCED, {"source": "slice:a"}, {"hardware": cpu}])
def test_other_budgets_data_and_machines_have_panels_of_their_own(other):
    records = everywhere("vanilla", [0.6]) + everywhere("lavo", [0.7])
    records += everywhere("vanilla", [0.5], **other)
    records += everywhere("performer_skyformer", [0.4], **other)
    if "hardware" in other:  # the same cells on another machine
        for record in records[10:]:
            record["cell"]["id"] = record["cell"]["id"][::-1]
    accuracies = [{label: bubble.accuracy for label, bubble in by_label(panel).items()} for panel in ours(records)]
    assert sorted(accuracies, key=str) == [
        {"softmax attention": 50.0, "Performer": 40.0},
        {"softmax attention": 60.0, "LAVO": 70.0},
    ]


@pytest.mark.parametrize("stranger", [{"budget": "smoke"}, {"protocol": "google"}])
def test_smoke_runs_and_other_protocols_do_not_enter(stranger):
    (panel,) = ours(everywhere("vanilla", [0.6], **stranger) + everywhere("lavo", [0.6], **stranger))
    assert panel == ours([])[0]


def test_labels_cover_neither_each_other_nor_bubbles():
    discs = [(100 + 9 * (i % 4), 100 + 8 * (i // 4), 4.0 + i % 3) for i in range(12)] + [(8.0, 195.0, 5.0)]
    sizes = [(40.0, 8.0)] * len(discs)
    frame = (0.0, 0.0, 240.0, 200.0)
    chosen = place_labels(discs, sizes, Box(*frame))
    boxes = [
        (x + to[0] - 20, y + to[1] - 4, x + to[0] + 20, y + to[1] + 4)
        for (x, y, _), to in zip(discs, chosen, strict=True)
    ]
    for box, another in itertools.combinations(boxes, 2):
        assert box[0] >= another[2] or another[0] >= box[2] or box[1] >= another[3] or another[1] >= box[3]
    for left, bottom, right, top in boxes:
        assert left >= 0 and bottom >= 0 and right <= 240 and top <= 200
        for x, y, radius in discs:
            assert math.hypot(max(left - x, 0, x - right), max(bottom - y, 0, y - top)) > radius


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    """These records follow no recipe, although they name a budget."""
    monkeypatch.setitem(evidence.RULES, "recipe", lambda file, entries: ())


def test_the_verb(tmp_path, capsys, few_tables):
    folders = {key: str(tmp_path / key) for key in ("records", "tables", "figures", "bench", "outputs", "docs")}

    def run(check, *typed):
        cfg = OmegaConf.create({"check": check, "paths": folders | {"paper": str(PAPER)}})
        return verb.run(cfg, ["do=report", *typed]), capsys.readouterr()

    status, said = run(True, "figure=luna/f1", "check=true")
    assert status == 1 and said.err.count("python run.py do=report figure=luna/f1\n") == 2
    files = [tmp_path / "figures" / "luna" / f"f1.{suffix}" for suffix in ("png", "pdf")]
    status, said = run(False, "figure=luna/f1")
    assert status == 0 and said.out.split() == list(map(str, files)) and not (tmp_path / "tables").exists()
    files[1].unlink()
    status, said = run(True, "table=all")  # figures are part of all, committed pictures are not
    assert status == 1 and "figure=luna/f1" in said.err and "figure=lavo/f2" not in said.err
    with pytest.raises(UsageError, match=r"no figure 'luna/f3': did you mean 'luna/f"):
        run(True, "figure=luna/f3")
