"""Line figures: which scores are points, their positions, what is named as missing, and the verb."""

from pathlib import Path

import pytest
from helpers.synthetic import record as made

from harness.commands import report as verb
from harness.errors import UsageError
from harness.records.collect import frame
from harness.report import spec_files
from harness.report.plots.figures import figure_plot
from harness.report.plots.file import Sources
from harness.report.scores.lines import LineFigure, panels

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


@pytest.mark.parametrize("name", [name for name in spec_files.available(CONF, "figure") if name.startswith("probes/")])
def test_every_figure_of_the_probes_loads_and_says_what_fills_it(name):
    figure = spec_files.load_figure(name, CONF, PAPER)
    assert isinstance(figure, LineFigure)
    [panel] = panels(figure, frame([]))
    assert not panel["series"]
    assert panel["notes"] == [f"Not run yet: python run.py table={figure.table.name} budget=reduced"]


def test_columns_are_points_in_the_order_of_their_places(conf):
    records = [needle("vanilla", 1, 100.0, 90.0), needle("vanilla", 2, 98.0, 80.0), needle("lavo", 1, 99.0, 20.0)]
    [panel] = panels(load("distance", conf), frame(records))
    assert by_label(panel) == {
        "all pairs": [(1, 99.0, 98.0, 100.0, ""), (62, 85.0, 80.0, 90.0, "")],
        "LAVO": [(1, 99.0, 99.0, 99.0, ""), (62, 20.0, 20.0, 20.0, "")],
    }
    assert [line["role"] for line in panel["series"]] == ["reference", ""] and panel["title"] == "reduced budget"
    assert panel["notes"] == ["Mean of 1 to 2 seeds; bars from the lowest to the highest.", "Not run: LAVO, 8 bases."]


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


def test_failed_smoke_and_changed_runs_are_no_points(conf):
    done = needle("vanilla", 1, 100.0, 90.0)
    others = [
        needle("vanilla", 2, 1.0, 1.0, status="failed"),
        needle("vanilla", 3, 1.0, 1.0, budget="smoke"),
        needle("vanilla", 4, 1.0, 1.0, changed={"train.optimizer.lr": [0.001, 0.1]}),
        needle("stranger", 5, 1.0, 1.0),
    ]
    assert panels(load("distance", conf), frame([done, *others])) == panels(load("distance", conf), frame([done]))


def test_an_evaluation_that_the_model_cannot_make_is_no_point(conf):
    record = needle("vanilla", 1, 100.0, 90.0)
    record["evaluations"]["distance_62"] = {"status": "unsupported", "n": None, "metrics": None}
    [panel] = panels(load("distance", conf), frame([record]))
    assert by_label(panel) == {"all pairs": [(1, 100.0, 100.0, 100.0, "")]}


def test_budgets_have_panels_of_their_own(conf):
    records = [needle("vanilla", 1, 100.0, 90.0), needle("vanilla", 1, 50.0, 40.0, budget="paper")]
    titles = {
        panel["title"]: by_label(panel)["all pairs"][0][1] for panel in panels(load("distance", conf), frame(records))
    }
    assert titles == {"paper budget": 50.0, "reduced budget": 100.0}


def test_drawn_and_checked(conf, tmp_path):
    paths = {"paper": PAPER, "figures": tmp_path / "figures"}
    cells = frame([needle("vanilla", 1, 100.0, 90.0), needle("lavo", 1, 99.0, 20.0)])
    names = ["distance", "state"]
    files = verb.draw_figures(names, cells, conf=conf, paths=paths, check=True)
    assert len(files) == 4 and not paths["figures"].exists()
    assert verb.draw_figures(names, cells, conf=conf, paths=paths) == files
    assert verb.draw_figures(names, cells, conf=conf, paths=paths, check=True) == []
    times = [path.stat().st_mtime_ns for path in files]
    files[0].write_bytes(b"cut short")
    assert verb.draw_figures(names, cells, conf=conf, paths=paths) == files
    assert [path.stat().st_mtime_ns == time for path, time in zip(files, times, strict=True)] == [False] + [True] * 3
    figure = load("distance", conf)
    plot = figure_plot(figure, Sources(cells, PAPER), paths["figures"])
    assert list(plot.paths) == files[:2] and plot.stale() == []
    assert verb.draw_figures(names, cells[:1], conf=conf, paths=paths, check=True) == files[:2]  # by LAVO


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("{far: 62", "{fra: 62", "points: there is no 'fra': did you mean 'far'"),
        ("points: {far: 62, near: 1}", "against: state", "has points, or against and columns"),
        ("points:", "columns: [recall]\nagainst: state\npoints:", "has points, or against and columns"),
        ("[all pairs]", "[pairs]", "reference: there is no 'pairs'"),
        ("x_label: x\n", "", "x_label"),
        ("table: two", "table: three", "there is no table 'three'"),
    ],
)
def test_a_mistake_in_the_yaml_is_named(conf, old, new, says):
    assert DISTANCE.count(old) == 1
    (conf / "figure" / "bad.yaml").write_text(DISTANCE.replace(old, new), encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        load("bad", conf)
    assert "bad.yaml" in str(refused.value) and says in str(refused.value) and "\n" not in str(refused.value)
