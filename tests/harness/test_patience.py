"""A run without improvement for `train.patience` evaluations ends, tests its best weights, and stays ended."""

import json
from dataclasses import replace

import pytest

from harness.config import schema
from harness.config.compose import compose
from harness.records import record
from harness.training import trainer
from harness.training.callback import TrainingCallback
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of

CELL = ["model=vanilla", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1"]
LONG = ["train.max_steps=24", "train.eval_every=4"]


@pytest.fixture
def scripted(monkeypatch):
    """Fixed validation scores: the best at the second evaluation."""
    real = TrainingCallback._evaluate_split

    def evaluate(self, trainer, module, name):
        evaluation = real(self, trainer, module, name)
        step = trainer.global_step
        return replace(evaluation, metrics=evaluation.metrics | {"acc": 90.0 if step == 8 else 50.0 - step})

    monkeypatch.setattr(TrainingCallback, "_evaluate_split", evaluate)


@pytest.fixture
def run(places):
    return lambda *typed: run_cell(request_of(compose([*CELL, *LONG, *places, *typed])))


def entries_of(result):
    return record.read(result.detail.rpartition(" · ")[2])


def test_a_run_ends_when_patience_is_over_and_tests_its_best_weights(run, scripted):
    entries = entries_of(run("train.patience=3"))
    assert entries["status"] == "done" and entries["steps"] == 8 + 3 * 4
    assert entries["metrics"]["best"]["step"] == 8 and entries["metrics"]["last"]["step"] == 20
    assert entries["metrics"]["best"]["test"]["n"] == entries["data"]["sizes"]["test"]


@pytest.mark.parametrize("setting", ["+trainer.max_time=00:00:00:00", "+trainer.max_steps=3"])
def test_a_setting_of_the_trainer_that_ends_it_is_named(run, setting, monkeypatch):
    for module in (schema, trainer):
        monkeypatch.setattr(module, "check_trainer", lambda settings: None)
    result = run(setting)
    assert result.code and "such as max_time, ended training at step" in result.detail


def test_a_run_killed_before_its_record_does_not_train_on(run, scripted, monkeypatch, tmp_path):
    whole = entries_of(run("train.patience=3"))
    for path in (tmp_path / "records").rglob("*.json"):
        path.unlink()
    for path in (tmp_path / "outputs").rglob("heartbeat.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"state": "running"}))
    again = entries_of(run("train.patience=3"))
    assert again["steps"] == whole["steps"] and again["resumes"] == 1
    assert again["weights_sha256"] == whole["weights_sha256"] and again["metrics"] == whole["metrics"]


def test_a_signal_at_the_last_evaluation_loses_nothing(run, scripted, monkeypatch):
    real = TrainingCallback._evaluate

    def evaluate(self, trainer, module, step):
        real(self, trainer, module, step)
        if self.out_of_patience:
            self.stop_signal.number = 15

    monkeypatch.setattr(TrainingCallback, "_evaluate", evaluate)
    assert run("train.patience=3").state == "done"
