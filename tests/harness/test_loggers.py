"""logger= and trainer.profiler=: the files that they write; no logger can stop a cell."""

import csv
import importlib
import json
from pathlib import Path

import pytest
from lightning.pytorch.loggers import Logger

from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.errors import UsageError
from harness.records import record
from harness.training.extras.loggers import EXTRA, OptionalLogger, begun_runs, make_loggers
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of

CELL = ["model=vanilla", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1"]
STEPS = [4, 8, 12]  # of the evaluations
MINE = ["trusted_packages=[test_loggers]", "+logger.mine._target_=test_loggers.Recorder"]


class Recorder(Logger):
    """Keeps everything that is logged. With `fails_at` or `ends_at`, it fails in, or ends, the evaluation at a step."""

    made: list["Recorder"] = []  # noqa: RUF012

    def __init__(self, fails_at: int | None = None, ends_at: int | None = None):
        super().__init__()
        self.fails_at, self.ends_at, self.config, self.rows, self.status = fails_at, ends_at, {}, [], None
        Recorder.made.append(self)

    name = version = "recorder"

    def log_hyperparams(self, params):
        self.config = params

    def log_metrics(self, metrics, step=None):
        if step == self.fails_at:
            raise ConnectionError("no answer from https://me:sesame@example.org")
        if step == self.ends_at:
            raise KeyboardInterrupt
        self.rows.append((step, metrics))

    def finalize(self, status):
        self.status = status


@pytest.fixture
def cell(places, tmp_path_factory):
    data = f"paths.data={tmp_path_factory.getbasetemp() / 'listops-smoke'}"  # made once for all tests
    Recorder.made.clear()
    return lambda *overrides: run_cell(request_of(compose([*CELL, *places, data, *overrides])))


def run_folder(tmp_path: Path) -> Path:
    (file,) = (tmp_path / "outputs" / "cells").rglob("metrics.csv")
    return file.parent


def steps_of(folder: Path) -> list[int]:
    with (folder / "metrics.csv").open() as table:
        return [int(row["step"]) for row in csv.DictReader(table)]


def weights(tmp_path: Path) -> str:
    (file,) = (tmp_path / "records").rglob("*.json")
    return record.read(file)["weights_sha256"]


def test_loggers_that_are_not_installed_are_left_out(cell, tmp_path, monkeypatch, capsys):
    for module, names in {
        "pytorch.loggers.wandb": ["_WANDB_AVAILABLE"],
        "pytorch.loggers.mlflow": ["_MLFLOW_AVAILABLE"],
        "fabric.loggers.tensorboard": ["_TENSORBOARD_AVAILABLE", "_TENSORBOARDX_AVAILABLE"],
    }.items():
        for name in names:
            monkeypatch.setattr(importlib.import_module(f"lightning.{module}"), name, False)
    assert cell(f"logger=[{','.join(EXTRA)}]").state == "done"
    printed, folder = capsys.readouterr().err.splitlines(), run_folder(tmp_path)
    for name in EXTRA:
        line = f"logger {name}: not installed: pip install -e '.[loggers]'; training goes on without it"
        assert printed.count(line) == 1 and line in (folder / "log.txt").read_text()
    assert steps_of(folder) == STEPS


def test_a_logger_is_told_everything_and_one_that_fails_is_left_out_and_changes_no_number(cell, tmp_path, capsys):
    assert cell(*MINE).state == "done"
    (logger,) = Recorder.made
    assert [step for step, _ in logger.rows] == STEPS == steps_of(run_folder(tmp_path))
    assert all({"train/loss", "lr", "val/acc"} <= set(metrics) for _, metrics in logger.rows)
    assert logger.config["model"]["name"] == "vanilla" and logger.status == "success"
    without = weights(tmp_path)
    assert cell("rerun=all", *MINE, "+logger.mine.fails_at=8").state == "done"
    assert weights(tmp_path) == without and steps_of(run_folder(tmp_path)) == STEPS
    assert [step for step, _ in Recorder.made[1].rows] == [4]
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("logger")]
    assert lines == ["logger mine: no answer from https://***@example.org; training goes on without it"]


def test_a_logger_that_fails_to_start_is_tried_once(tmp_path):
    asked, said = [], []

    def make(run):
        asked.append(run)
        raise RuntimeError("No API key configured.")

    logger = OptionalLogger("wandb", make, {}, tmp_path, said.append)
    logger.save()
    logger.log_metrics({"val/acc": 1.0}, step=1)
    logger.finalize("success")
    assert len(asked) == 1
    assert said == ["logger wandb: No API key configured; training goes on without it"]


def test_hyper_parameters_hold_no_secret_and_no_path(places, tmp_path):
    typed = ["logger=[wandb,mlflow]", "+logger.wandb.id=sesame", "logger.mlflow.tracking_uri=http://me:sesame@host"]
    cfg = compose([*CELL, *places, *typed, "cluster.account=sesame", "cluster.setup=['export KEY=sesame']"])
    loggers = make_loggers(cfg, tmp_path, print)
    assert [logger.name for logger in loggers] == ["wandb", "mlflow"]
    for logger in loggers:
        text = json.dumps(logger._config)
        assert "vanilla" in text and "sesame" not in text and str(tmp_path) not in text


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        (["logger=mlflow", "+logger.mlflow.experiment=x"], "experiment"),
        (["+logger.mine._target_=test_loggers.Recorder"], "trusted_packages"),
        (["logger=wandb", "logger.wandb.offline=maybe"], "offline: "),  # although annotations name classes of wandb
    ],
)
def test_settings_that_a_logger_does_not_take_are_refused(cell, tmp_path, typed, named):
    result = cell(*typed)
    assert (result.state, result.code) == ("refused", 2)
    assert result.detail.startswith("logger.") and named in result.detail
    assert not (tmp_path / "outputs").exists()


def test_loggers_do_not_change_the_cell():
    assert cell_of(compose([*CELL, f"logger=[{','.join(EXTRA)}]"])).id == cell_of(compose(CELL)).id


def test_tensorboard_and_mlflow_write_below_the_outputs(cell, tmp_path):
    pytest.importorskip("tensorboard"), pytest.importorskip("mlflow")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert cell("logger=[tensorboard,mlflow]").state == "done"
    events = EventAccumulator(str(run_folder(tmp_path)))
    events.Reload()
    assert [event.step for event in events.Scalars("val/acc")] == STEPS
    (metrics,) = (tmp_path / "outputs" / "mlruns").rglob("metrics/val/acc")
    assert [int(line.split()[2]) for line in metrics.read_text().splitlines()] == STEPS
    run = metrics.parents[2]
    assert (run / "params" / "model" / "name").read_text() == "vanilla"
    assert "status: 3" in (run / "meta.yaml").read_text()  # finished


def test_wandb_has_a_run_for_each_cell_and_asks_for_no_network(cell, tmp_path):
    pytest.importorskip("wandb")
    assert cell("logger=wandb").state == cell("logger=wandb", "seed=2").state == "done"
    files = sorted((tmp_path / "outputs" / "cells").rglob("offline-run-*/*.wandb"))
    assert len({file.parents[2] for file in files}) == len(files) == 2
    for file in files:
        content = file.read_bytes()
        assert b"val/acc" in content and b"vanilla" in content and str(tmp_path).encode() not in content


def mlflow_steps(tmp_path):
    return [
        [int(line.split()[2]) for line in file.read_text().splitlines()]
        for file in (tmp_path / "outputs" / "mlruns").rglob("metrics/val/acc")
    ]


def tensorboard_steps(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run_folder(tmp_path)))
    events.Reload()
    return [[event.step for event in events.Scalars("val/acc")]]


def wandb_steps(tmp_path):
    """Of each run, over all its files: each process writes one of its own, and `wandb sync` puts them together."""
    from wandb.proto.wandb_internal_pb2 import Record

    steps = {}
    for file in sorted((tmp_path / "outputs" / "cells").rglob("offline-run-*/*.wandb")):
        for row in map(Record.FromString, entries_of_leveldb(file.read_bytes())):
            entry = {"".join(item.nested_key) or item.key: item.value_json for item in row.history.item}
            run = steps.setdefault(file.stem, [])
            run += [int(entry["trainer/global_step"])] if "val/acc" in entry else []
    return list(steps.values())


def entries_of_leveldb(data, block=2**15, header=7):
    """The entries of a log of LevelDB, behind W&B's header: pieces with length and kind, 1 whole or 4 the last."""
    at, entry = header, b""
    while at + header <= len(data):
        if block - at % block < header:
            at += block - at % block
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        entry += data[at + header : at + header + length]
        at += header + length
        if kind in (1, 4):
            yield entry
            entry = b""


@pytest.mark.parametrize("tracker", EXTRA)
def test_a_resumed_cell_is_the_same_run_of_a_tracker_and_its_steps_only_grow(cell, tmp_path, tracker):
    """The run ends when the tracker has step 8 and before its checkpoint; a cell that starts again is another run."""
    pytest.importorskip(tracker)
    read = {"tensorboard": tensorboard_steps, "wandb": wandb_steps, "mlflow": mlflow_steps}[tracker]
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        cell(f"logger={tracker}", *MINE, "+logger.mine.ends_at=8", "checkpoint.every_s=0")
    assert read(tmp_path) == [STEPS[:2]]
    assert cell(f"logger={tracker}").state == "done"
    assert read(tmp_path) == [STEPS]
    kept = json.loads((run_folder(tmp_path) / "loggers.json").read_text())
    assert kept[tracker]["step"] == STEPS[-1]
    if tracker != "tensorboard":  # which has a folder, not runs
        assert cell(f"logger={tracker}", "rerun=all").state == "done"
        assert sorted(read(tmp_path)) == [STEPS, STEPS]


def test_a_run_that_cannot_be_named_costs_no_other_logger_its_run(tmp_path):
    kept = {"mlflow": {"run": "0af3", "step": 8}}
    (tmp_path / "loggers.json").write_text(json.dumps(kept | {"mine": {"run": "a/../b", "step": 8}}))
    assert begun_runs(tmp_path) == kept
    for text in ("", "[]", '{"mlflow": 3}', '{"mlflow": {"run": 3, "step": 1}}'):
        (tmp_path / "loggers.json").write_text(text)
        assert begun_runs(tmp_path) == {}


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("simple", "run_training_batch"),
        ("advanced", "run_training_batch"),
        pytest.param("pytorch", "aten::", marks=pytest.mark.slow),
    ],
)
def test_a_profiler_writes_its_report(cell, tmp_path, name, action):
    assert cell(f"trainer.profiler={name}").state == "done"
    folder = run_folder(tmp_path)
    assert action in (folder / "fit-profile.txt").read_text()
    assert len(list(folder.glob("*.pt.trace.json"))) == (name == "pytorch")


def test_an_unknown_profiler_is_refused(cell, tmp_path):
    with pytest.raises(UsageError, match=r"^trainer\.profiler: input should be 'simple', .* not 'smiple'$"):
        cell("trainer.profiler=smiple")
    assert not (tmp_path / "outputs").exists()
