"""A task of one's own with a fault: told before it trains, or else without the loss of what was trained."""

import dataclasses

import pytest

from harness.config import source_code
from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.records import record
from harness.training.attempt import Attempt
from harness.training.callback import TrainingCallback
from harness.training.run_cell import run_cell
from tasks.lra.listops import ListOps
from tests.helpers.cells import request_of

CELL = ["model=vanilla", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1"]


@pytest.fixture
def cfg(places, tmp_path_factory):
    return compose([*CELL, *places, f"paths.data={tmp_path_factory.getbasetemp() / 'listops-smoke'}"])


@pytest.fixture
def steps(monkeypatch):
    """The updates that were made."""
    made, on_train_batch_end = [], TrainingCallback.on_train_batch_end

    def spy(self, trainer, *arguments):
        made.append(trainer.global_step)
        on_train_batch_end(self, trainer, *arguments)

    monkeypatch.setattr(TrainingCallback, "on_train_batch_end", spy)
    return made


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "csv"}, "data.source: 'csv' is not full | slice:<name> | synthetic | unknown"),
        ({"fingerprint": 7}, "data.fingerprint: "),
        ({"sizes": {"train": 1.5}}, "data.sizes.train: "),
    ],
)
def test_data_that_no_record_can_hold_are_refused_before_training(changes, message, cfg, steps, monkeypatch):
    load = ListOps.load
    monkeypatch.setattr(ListOps, "load", lambda self: dataclasses.replace(load(self), **changes))
    result = run_cell(request_of(cfg))
    assert result.state == "refused" and message in result.detail and steps == []


def test_more_examples_per_update_than_there_are_is_refused(cfg, steps):
    cfg.train.batch_size = 10_000
    result = run_cell(request_of(cfg))
    assert result.state == "refused" and "train.batch_size=10000 is more than the " in result.detail and steps == []


def test_a_record_that_is_refused_keeps_the_weights_for_the_corrected_task(cfg, steps, monkeypatch):
    evaluate = Attempt._evaluate
    monkeypatch.setattr(source_code, "code_of", lambda cfg: "a" * 64)
    monkeypatch.setattr(Attempt, "_evaluate", lambda self, progress: evaluate(self, progress) | {"tokens": -1})
    result = run_cell(request_of(cfg))
    assert result.state == "refused" and "not written: " in result.detail and "weights are kept" in result.detail
    trained = list(steps)
    monkeypatch.setattr(Attempt, "_evaluate", evaluate)
    monkeypatch.setattr(source_code, "code_of", lambda cfg: "b" * 64)
    result = run_cell(request_of(cfg))
    assert result.state == "done" and steps == trained, "nothing is trained again"
    entries = record.read(cell_of(cfg).record_path(cfg))
    assert entries["code_sha256"] == "b" * 64
    assert entries["changed_at_resume"] == [f"step {trained[-1]}: code aaaaaaaa, now bbbbbbbb"]
