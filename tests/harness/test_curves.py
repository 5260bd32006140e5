"""do=curves: the curves read from run folders, their lines and panels, the picture and the rows."""

import math
from base64 import b64encode

import pytest

from harness.commands import cli, train
from harness.commands.curves import file_name, table_of
from harness.config.cell import Cell, name_of
from harness.config.compose import compose
from harness.config.sweep import Command
from harness.errors import UsageError
from harness.records import collect
from harness.records.curves import curve_panels, read_metrics
from harness.report.plots import curves
from tests.helpers.saved_cells import made, run_folder, save

ROWS = [
    (5, 2.0, {"loss": 3.0, "acc": 10.0}),
    (10, 1.0, {"loss": 2.0, "acc": 30.0}),
    (15, 0.5, {"loss": 2.5, "acc": 20.0}),
]


def folders(root, *runs):
    """{name: folder} of (record, rows)."""
    made_here = {
        Cell(entries["cell"]["id"], entries["config"]).path.as_posix(): (entries, rows) for entries, rows in runs
    }
    return {name: run_folder(root, *run) for name, run in made_here.items()}


def test_evaluations_are_read_and_a_line_that_was_cut_short_is_not(tmp_path):
    folder = run_folder(tmp_path, made(), ROWS)
    file = folder / "metrics.csv"
    whole = read_metrics(file)
    assert whole["step"] == [5, 10, 15] and whole["val/acc"] == [10, 30, 20] and whole["train/loss"] == [2, 1, 0.5]
    file.write_text(file.read_text() + "20,0.25,0.1,2.0,4", encoding="utf-8")  # killed while it wrote 41.5
    assert read_metrics(file) == whole
    assert read_metrics(tmp_path / "nothing.csv") == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [("a,b\n1,2\n", "line 1 is no header"), ("step,train/loss,val/acc\n1,2,3\n4,5\n", "line 3 is no evaluation"),
     ("step,train/loss,val/acc\n1,x,3\n", "line 2 is no evaluation")],
)  # fmt: skip
def test_a_damaged_file_is_one_line(tmp_path, text, says):
    (tmp_path / "metrics.csv").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=says) as error:
        read_metrics(tmp_path / "metrics.csv")
    assert "\n" not in str(error.value) and str(tmp_path / "metrics.csv") in str(error.value)


def test_the_metric_is_the_one_that_the_task_selects_by(tmp_path):
    """By the run's record, else by the task's yaml, else the first metric in the file."""
    done, running = made("lavo"), made("vanilla", seed=2)
    both = folders(tmp_path, (done, ROWS), (running, ROWS))
    (panel,) = curve_panels(both, [done])
    assert (panel.metric, panel.higher_is_better, panel.chance) == ("acc", True, 50.0)
    assert [line.curves[0].val for line in panel.lines] == [(10.0, 30.0, 20.0)] * 2
    (panel,) = curve_panels(both)
    assert (panel.metric, panel.higher_is_better, panel.chance) == ("acc", True, None)
    (panel,) = curve_panels(folders(tmp_path, (made("lavo", "own/task"), ROWS)))
    assert (panel.metric, panel.higher_is_better, panel.chance) == ("loss", False, None)


def test_seeds_of_a_variant_are_one_line_with_their_mean(tmp_path):
    later = [(10, 3.0, {"acc": 50.0}), (15, 2.5, {"acc": 60.0}), (20, 2.0, {"acc": 90.0})]
    first = [(step, loss, {"acc": val["acc"]}) for step, loss, val in ROWS]
    runs = (made("lavo", seed=1), first), (made("lavo", seed=2), later)
    wider = made("lavo", seed=1, settings={"window": 16}), first
    run_folders = folders(tmp_path, *runs, wider)
    (panel,) = curve_panels(run_folders)
    assert [line.label for line in panel.lines] == ["lavo (model.window=16)", f"lavo ({runs[0][0]['cell']['id'][:8]})"]
    several = panel.lines[1]
    assert [curve.seed for curve in several.curves] == [1, 2]
    assert several.mean("val") == ([10, 15], [40.0, 40.0]) and several.mean("loss") == ([10, 15], [2.0, 1.5])
    apart = curve_panels(run_folders, average=False)[0].lines
    assert [line.label for line in apart][1:] == [f"{several.label}, seed 1", f"{several.label}, seed 2"]


def test_only_curves_that_can_be_compared_share_a_panel(tmp_path):
    runs = [made(), made(budget="reduced"), made(protocol="google"), made(task="lra/image"), made(seed=2)]
    runs.append(made(seed=3))
    runs[-1]["config"]["task"]["source"] = "synthetic"
    panels = curve_panels(folders(tmp_path, *((run, ROWS) for run in runs), (made("lavo"), [])))
    assert sorted((panel.title, len(panel.lines)) for panel in panels) == [
        ("lra/image · skyformer · paper", 1), ("lra/text · google · paper", 1), ("lra/text · skyformer · paper", 1),
        ("lra/text · skyformer · paper · synthetic data", 1), ("lra/text · skyformer · reduced", 1),
    ]  # fmt: skip


def test_a_row_has_first_best_and_last(tmp_path):
    (panel,) = curve_panels(folders(tmp_path, (made("lavo"), ROWS)), [made("lavo")])
    assert table_of(panel)[1] == [("lavo, seed 1", "10", "30", "20", "15", "0.5")]
    lower = curve_panels(folders(tmp_path / "lower", (made("lavo", "own/task"), ROWS)))[0]
    assert table_of(lower)[1][0][1:4] == ("3", "2", "2.5")
    nan = [(1, 1.0, {"acc": math.nan}), (2, math.inf, {"acc": 3.0})]
    (panel,) = curve_panels(folders(tmp_path / "nan", (made("lavo"), nan)))
    assert table_of(panel)[1] == [("lavo, seed 1", "nan", "3", "3", "2", "inf")]


def test_the_picture_shows_seeds_and_their_mean(tmp_path):
    later = [(step, loss, {"acc": val["acc"] + 20}) for step, loss, val in ROWS]
    first = [(step, loss, {"acc": val["acc"]}) for step, loss, val in ROWS]
    run_folders = folders(tmp_path, (made("lavo", seed=1), first), (made("lavo", seed=2), later))
    plot = curves.curves_plot("title", curve_panels(run_folders, [made("lavo")]), tmp_path / "one.png")
    left, _ = plot.draw(plot.data).axes
    shown = {tuple(line.get_ydata()) for line in left.get_lines()}
    assert shown == {(10, 30, 20), (30, 50, 40), (20, 40, 30), (50, 50)}, "two seeds, their mean, chance"


def test_the_metric_stands_against_the_learning_rate_and_a_long_sweep_ends_with_a_page(places, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "SUMMARY_AFTER_S", 0.0)
    words = ["model=latte", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1", *places]
    both = [(*words, f"train.optimizer.lr={rate}") for rate in (1e-3, 1e-2)]
    assert train.run_all([Command(compose(typed), typed) for typed in both]) == 0
    (page,) = (tmp_path / "outputs" / "curves").glob("sweep-*.html")
    assert "train.optimizer.lr=0.01" in page.read_text(encoding="utf-8")
    records = list(collect.valid_records(tmp_path / "records")[0])
    shown = curve_panels({name_of(**entries["cell"]): tmp_path / "gone" for entries in records}, records)
    panel = curves.curves_plot("title", shown, tmp_path / "one.png").data["panels"][-1]
    (series,) = panel["series"]
    best = {
        entries["config"]["train"]["optimizer"]["lr"]: max(x["val"] for x in entries["curve"]) for entries in records
    }
    assert panel["x"] == "learning rate" and dict(zip(series["x"], series["y"], strict=True)) == best


def test_the_verb_narrows_draws_and_prints(tmp_path, places, capsys):
    cells = [save(tmp_path / "records", (1, 0), model, seed) for model in ("lavo", "vanilla") for seed in (1, 2)]
    folders(tmp_path / "outputs" / "cells", *((entries, ROWS) for entries in cells))
    (tmp_path / "outputs" / "cells" / "metrics.csv").write_text("of nobody", encoding="utf-8")

    def run(*typed):
        words = ["do=curves", *places, *typed]
        status, out = cli.dispatch(compose(words), words), capsys.readouterr()
        return status, [line.split("  ")[0] for line in out.out.splitlines() if ", seed " in line], out

    status, runs, out = run()
    assert status == 0 and runs == ["lavo, seed 1", "lavo, seed 2", "vanilla, seed 1", "vanilla, seed 2"]
    picture = (tmp_path / "outputs" / "curves" / "all.png").read_bytes()
    page = (tmp_path / "outputs" / "curves" / "all.html").read_text(encoding="utf-8")
    assert picture[:4] == b"\x89PNG" and b64encode(picture).decode() in page and page.count("<tr>") == 1 + 4
    status, _, out = run("model=latte", "task=lra/text")
    assert status == 2 and out.out == "" and out.err.startswith("error: no curves of task=lra/text model=latte: ")
    status, _, out = run(f"paths.outputs={tmp_path / 'typo'}")
    assert status == 2 and "typo: there is no folder of outputs" in out.err and not (tmp_path / "typo").exists()
    assert file_name(["table=lavo/t11", "task=lra/text", "seed=3"]) == "lavo-t11-lra-text-seed3"


def test_the_curve_of_a_record_needs_no_run_folder(tmp_path):
    entries = made("lavo") | {"curve": [{"step": 5, "val": 10.0}, {"step": 10, "val": 40.0}]}
    name = Cell(entries["cell"]["id"], entries["config"]).path.as_posix()
    (panel,) = panels = curve_panels({name: tmp_path / "gone"}, [entries])
    assert [(curve.steps, curve.val, curve.loss) for curve in panel.lines[0].curves] == [((5, 10), (10.0, 40.0), ())]
    plot = curves.curves_plot("title", panels, tmp_path / "one.png")
    assert [axis.get_ylabel() for axis in plot.draw(plot.data).axes] == ["validation acc ↑"]
    assert table_of(panel)[1] == [("lavo, seed 1", "10", "40", "40", "10", "–")]
    (panel,) = curve_panels(folders(tmp_path, (entries, ROWS[:2])), [entries])
    (curve,) = panel.lines[0].curves
    assert curve.val == (10.0, 40.0) and curve.loss == (2.0, 1.0), "the record's scores, the folder's loss"
