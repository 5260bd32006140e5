"""Line figures: which scores are points, their positions, what is named as missing, the verb, and costs."""

from pathlib import Path

import pytest
from helpers.synthetic import record as made

from harness.commands import report as verb
from harness.records.collect import frame
from harness.report import spec_files
from harness.report.scores.lines import front, panels

ROOT = Path(__file__).resolve().parents[2]
CONF, PAPER = ROOT / "conf", ROOT / "results" / "paper"

TABLE = """
title: Two methods
ledger: null
protocol: probe
seeds: [1, 2]
gpu_hours: 1
rows:
  all pairs: vanilla
  LAVO: lavo
  LAVO, 8 bases: {model: lavo, set: {model.bases: 8}}
columns:
  near: {task: probe/needle, metric: acc, evaluation: distance_1, unit: "%", higher_is_better: true}
  far: {task: probe/needle, metric: acc, evaluation: distance_62, unit: "%", higher_is_better: true}
  recall: {task: probe/recall, metric: acc, unit: "%", higher_is_better: true}
  state: {task: probe/recall, metric: numbers, evaluation: decoding_state, unit: numbers, higher_is_better: false}
"""
LABELS = "kind: lines\ntitle: A figure\ntable: two\nx_label: x\ny_label: y\nreference: [all pairs]\n"
DISTANCE = LABELS + "points: {far: 62, near: 1}\n"
STATE = LABELS + "against: state\ncolumns: [recall]\n"


@pytest.fixture
def conf(tmp_path):
    for group, name, body in (("table", "two", TABLE), ("figure", "distance", DISTANCE), ("figure", "state", STATE)):
        (tmp_path / "conf" / group).mkdir(parents=True, exist_ok=True)
        (tmp_path / "conf" / group / f"{name}.yaml").write_text(body, encoding="utf-8")
    return tmp_path / "conf"


def load(name, conf):
    return spec_files.load_figure(name, conf, PAPER)


def needle(model, seed, near, far, **kwargs):
    done = {"status": "done", "n": 25}
    finals = {"distance_1": {**done, "metrics": {"acc": near}}, "distance_62": {**done, "metrics": {"acc": far}}}
    here = {"protocol": "probe", "budget": "reduced", "evaluations": finals}
    return made(model, "probe/needle", seed, 0.9, **{**here, **kwargs})


def recall(model, seed, score, numbers, **kwargs):
    finals = {"decoding_state": {"status": "done", "n": 1, "metrics": {"numbers": numbers}}}
    return made(model, "probe/recall", seed, score, protocol="probe", budget="reduced", evaluations=finals, **kwargs)


def by_label(panel):
    """{name of a line: its points as (x, y, low, high, label)}"""
    keys = ("x", "y", "low", "high", "labels")
    return {line["name"]: [*zip(*(line[key] for key in keys), strict=True)] for line in panel["series"]}


def test_columns_are_points_in_the_order_of_their_places(conf):
    records = [needle("vanilla", 1, 100.0, 90.0), needle("vanilla", 2, 98.0, 80.0), needle("lavo", 1, 99.0, 20.0)]
    [panel] = panels(load("distance", conf), frame(records))
    assert by_label(panel) == {
        "all pairs": [(1, 99.0, 98.0, 100.0, ""), (62, 85.0, 80.0, 90.0, "")],
        "LAVO": [(1, 99.0, 99.0, 99.0, ""), (62, 20.0, 20.0, 20.0, "")],
    }
    assert [line["role"] for line in panel["series"]] == ["reference", ""] and panel["title"] == "reduced budget"
    assert panel["notes"] == [
        "Mean of 1 to 2 seeds; bars from the lowest to the highest.",
        "Not run yet: LAVO, 8 bases.",
    ]


def test_rows_of_a_model_are_one_line_through_their_sizes(conf):
    few = {"settings": {"bases": 8}, "changed": {"model.bases": [32, 8]}}
    records = [
        *(recall("lavo", 1, 0.9, 4000), recall("lavo", 2, 0.7, 4000), recall("lavo", 1, 0.4, 1000, **few)),
        recall("vanilla", 1, 1.0, 12288),
    ]
    [panel] = panels(load("state", conf), frame(records))
    assert by_label(panel) == {
        "all pairs": [(12288, 100.0, 100.0, 100.0, "all pairs")],
        "LAVO": [(1000, 40.0, 40.0, 40.0, "LAVO, 8 bases"), (4000, 80.0, 70.0, 90.0, "LAVO")],
    }
    assert panel["chance"] == 50.0 and panel["title"] == "recall, reduced budget"
    assert panel["notes"] == ["Mean of 1 to 2 seeds; bars from the lowest to the highest."]


def test_the_front_has_the_points_with_a_better_score_than_all_before(conf, monkeypatch):
    few = {"settings": {"bases": 8}, "changed": {"model.bases": [32, 8]}}
    records = [recall("lavo", 1, 0.9, 4000), recall("lavo", 1, 0.4, 1000, **few), recall("vanilla", 1, 0.9, 12288)]
    (conf / "figure" / "state.yaml").write_text(STATE + "front: true\n", encoding="utf-8")
    [panel] = panels(load("state", conf), frame(records))
    assert panel["front"] == [(1000, 40.0, "LAVO, 8 bases"), (4000, 90.0, "LAVO")]
    marked = "harness.report.scores.tuning.with_search_done"
    monkeypatch.setattr(
        marked, lambda cells: cells.assign(marks=["" if changed else "*" for changed in cells["changed"]])
    )
    [without_verdicts] = panels(load("state", conf), frame(records))
    assert without_verdicts["front"] == [(1000, 40.0, "LAVO, 8 bases")]


def test_a_score_that_prints_like_a_cheaper_one_is_not_on_the_front():
    points = [(1, 99.96, "a"), (2, 99.98, "b"), (3, 100.2, "c")]
    assert [row for *_, row in front(points, higher_is_better=True, decimals=1)] == ["a", "c"]
    assert [row for *_, row in front(points, higher_is_better=True, decimals=2)] == ["a", "b", "c"]
    assert [row for *_, row in front(points, higher_is_better=False)] == ["a"]


def test_a_measured_cost_may_be_the_place_of_a_row(conf):
    """Of a measurement of the row's sizes; a row that was not measured is named."""
    point = "  step: {bench: {what: decode, length: 16384, settings: {dim: 64, heads: 2}}}\n"
    (conf / "table" / "two.yaml").write_text(TABLE + point, encoding="utf-8")
    (conf / "figure" / "state.yaml").write_text(STATE.replace("state\n", "step\n"), encoding="utf-8")
    few = {"settings": {"bases": 8}, "changed": {"model.bases": [32, 8]}}
    records = [recall("lavo", 1, 0.9, 40), recall("lavo", 1, 0.4, 10, **few), recall("vanilla", 1, 1.0, 90)]
    small, large = (measurement(dim, milliseconds) for dim, milliseconds in ((64, 3.0), (128, 5.0)))
    [panel] = panels(load("state", conf), frame(records), {"a": large, "b": small})
    assert by_label(panel) == {"LAVO": [(3.0, 40.0, 40.0, 40.0, "LAVO, 8 bases")]}
    assert "Not run yet: all pairs, LAVO." in panel["notes"][1] and panel["notes"][2].startswith(
        "step: one layer, causal_self"
    )
    [panel] = panels(load("state", conf), frame(records), {"a": large})
    assert not panel["series"] and panel["notes"][-1] == "step: no measurement yet (python run.py do=bench)."


def measurement(dim, milliseconds):
    """Of `LAVO, 8 bases` at one length, by do=bench."""
    settings = {"layers": None, "pattern": "causal_self", "dim": dim, "heads": 2, "batch": 1, "precision": "float32"}
    point = {"model": "LAVO, 8 bases", "what": "decode", "length": 16384, "status": "ok", "ms": milliseconds}
    return {
        "name": "measured", "kind": "bench", "settings": settings, "models": {"LAVO, 8 bases": {"bases": 8}},
        "points": [point], "hardware": {"gpu": None, "cpu": "CPU", "threads": 1}, "versions": {"torch": "2"},
    }  # fmt: skip


def test_failed_smoke_and_changed_runs_are_no_points_and_budgets_have_panels_of_their_own(conf):
    done = needle("vanilla", 1, 100.0, 90.0)
    others = [
        needle("vanilla", 2, 1.0, 1.0, status="failed"),
        needle("vanilla", 3, 1.0, 1.0, budget="smoke"),
        needle("vanilla", 4, 1.0, 1.0, changed={"train.optimizer.lr": [0.001, 0.1]}),
        needle("stranger", 5, 1.0, 1.0),
    ]
    (panel,), (alone,) = (panels(load("distance", conf), frame(entries)) for entries in ([done, *others], [done]))
    assert panel["series"] == alone["series"] and panel["notes"][-1] == "Only on the page of the table: stranger."
    at_paper = needle("vanilla", 1, 50.0, 40.0, budget="paper")
    at_paper["evaluations"]["distance_62"] = {"status": "unsupported", "n": None, "metrics": None}
    shown = {
        panel["title"]: by_label(panel)["all pairs"]
        for panel in panels(load("distance", conf), frame([done, at_paper]))
    }
    assert {title: [y for _, y, *_ in points] for title, points in shown.items()} == {
        "paper budget": [50.0],
        "reduced budget": [100.0, 90.0],
    }


def test_drawn_and_checked(conf, tmp_path):
    paths = {"paper": PAPER, "figures": tmp_path / "figures"}
    cells = frame([needle("vanilla", 1, 100.0, 90.0), needle("lavo", 1, 99.0, 20.0)])
    names = ["distance"]
    files = verb.draw_figures(names, cells, conf=conf, paths=paths, check=True)
    assert len(files) == 2 and not paths["figures"].exists()
    assert verb.draw_figures(names, cells, conf=conf, paths=paths) == files
    assert verb.draw_figures(names, cells, conf=conf, paths=paths, check=True) == []
    times = [path.stat().st_mtime_ns for path in files]
    files[0].write_bytes(b"cut short")
    assert verb.draw_figures(names, cells, conf=conf, paths=paths) == files
    assert [path.stat().st_mtime_ns == time for path, time in zip(files, times, strict=True)] == [False, True]
    assert verb.draw_figures(names, cells[:1], conf=conf, paths=paths, check=True) == files  # by LAVO
