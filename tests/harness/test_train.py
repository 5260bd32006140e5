"""One cell: its record, its failures, and reruns."""

import json
import os
import shutil
import signal

import pytest
import torch

from harness.config.compose import compose
from harness.records import record
from harness.training import attempt, evaluate
from harness.training.callback import TrainingCallback
from harness.training.checkpoints.checkpoint import write_sealed
from harness.training.module import TaskModule
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of

CELL = ["model=vanilla", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1"]
PLACES = ("data", "outputs", "records")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a cell that was trained once for all tests; its data lie there, too."""
    folder = tmp_path_factory.mktemp("whole")
    result = run_cell(request_of(compose([*CELL, *(f"paths.{name}={folder / name}" for name in PLACES)])))
    assert (result.state, result.code) == ("done", 0)
    return folder


@pytest.fixture
def cell(places, whole):
    return lambda *overrides: run_cell(
        request_of(compose([*CELL, *places, f"paths.data={whole / 'data'}", *overrides]))
    )


@pytest.fixture
def trained(whole, tmp_path):
    """The trained cell is that of this test. Returns its record."""
    for name in ("outputs", "records"):
        shutil.copytree(whole / name, tmp_path / name)
    return one_record(tmp_path)


def records(tmp_path):
    return {path: record.read(path) for path in (tmp_path / "records").rglob("*.json")}


def one_record(tmp_path):
    (entries,) = records(tmp_path).values()
    return entries


def test_a_record_is_complete(whole):
    entries = one_record(whole)
    best, last = entries["metrics"]["best"], entries["metrics"]["last"]
    assert best["test"]["n"] == best["val"]["n"] == last["val"]["n"] == 96
    assert "test" not in last or last["step"] == best["step"]
    assert entries["status"] == "done" and entries["steps"] == 12 and entries["examples"] == 12 * 16
    assert 12 * 16 * 20 < entries["tokens"] < 12 * 16 * 64
    assert entries["data"]["source"] == "synthetic" and entries["data"]["sizes"] == {
        "train": 512,
        "val": 96,
        "test": 96,
    }
    assert 5 < entries["baseline"]["test"] < 40
    assert 0 < entries["parameters"]["attention"] < entries["parameters"]["total"]
    assert entries["changed"] == {} and entries["resumes"] == 0
    test = entries["evaluations"]["test"]
    assert test["status"] == "done" and test["metrics"] | {"n": test["n"]} == best["test"]
    assert test["seconds"] > 0 and test["peak_memory_mb"] > 0 and entries["artifacts"] == {}
    assert (entries["tested_weights_sha256"] == entries["weights_sha256"]) == (best["step"] == 12)
    assert str(whole) not in json.dumps(entries), "a path of this machine is in the record"


def test_rerun_all_gives_the_same_numbers(cell, trained, tmp_path):
    assert cell("rerun=all").state == "done"
    second = one_record(tmp_path)
    assert trained["metrics"] == second["metrics"] and trained["weights_sha256"] == second["weights_sha256"]
    assert second["started"] >= trained["finished"]


def test_seeds_differ(cell, whole, tmp_path):
    cell("seed=2")
    first, second = one_record(whole), one_record(tmp_path)
    assert first["weights_sha256"] != second["weights_sha256"]
    assert first["data"]["fingerprint"] == second["data"]["fingerprint"]


def test_the_test_split_is_scored_once_and_on_the_selected_weights(cell, tmp_path, monkeypatch):
    seen, real = [], evaluate.evaluate

    def spy(trainer, module, split, batch_size, **options):
        evaluation = real(trainer, module, split, batch_size, **options)
        if not options.get("score"):  # from a baseline, which does not call the model
            weights = {name: values.clone() for name, values in module.model.state_dict().items()}
            seen.append((split, weights, evaluation.values()))
        return evaluation

    monkeypatch.setattr("harness.training.callback.evaluate", spy)
    monkeypatch.setattr("harness.training.attempt.evaluate", spy)
    cell("train.select.after=0.5")
    entries = one_record(tmp_path)
    passes = [entry for entry in seen if entry[0] is seen[-1][0]]
    assert len(passes) == 1 and len(seen) == 4, "three validations, one test"
    best = entries["metrics"]["best"]
    assert best["step"] in (8, 12), "a checkpoint from before select.after was taken"
    chosen = seen[best["step"] // 4 - 1]
    assert all(torch.equal(chosen[1][name], passes[0][1][name]) for name in chosen[1])
    assert best["val"] == chosen[2] and best["test"] == passes[0][2]


def test_nan_is_a_value_and_rerun_failed_tries_again(cell, tmp_path, monkeypatch):
    healthy = TaskModule.training_step
    monkeypatch.setattr(
        TaskModule, "training_step", lambda self, batch, index: healthy(self, batch, index) * float("nan")
    )
    result = cell()
    assert (result.state, result.code) == ("nan", 1)
    entries = one_record(tmp_path)
    assert entries["status"] == "nan" and entries["metrics"] is None and "not finite" in entries["error"]["message"]
    monkeypatch.setattr(TaskModule, "training_step", healthy)
    left = cell()
    assert (left.state, left.code) == ("nan", 1) and "rerun=failed" in left.detail
    assert cell("rerun=failed").state == "done"
    assert one_record(tmp_path)["status"] == "done"


def test_a_score_that_is_nan_is_a_value_too(cell, tmp_path, monkeypatch):
    from models.backbones.encoder import EncoderClassifier

    healthy = EncoderClassifier.forward
    monkeypatch.setattr(
        EncoderClassifier, "forward", lambda self, x: healthy(self, x) * (1.0 if self.training else float("nan"))
    )
    assert cell().state == "nan"
    assert "of an evaluation is not finite (step 4)" in one_record(tmp_path)["error"]["message"]


@pytest.mark.parametrize(
    ("error", "status"), [(torch.OutOfMemoryError("CUDA out of memory"), "oom"), (RuntimeError("boom"), "failed")]
)
def test_a_failure_leaves_a_record_a_traceback_and_a_status(cell, tmp_path, monkeypatch, error, status):
    def fail(*_):
        raise error

    monkeypatch.setattr(TaskModule, "training_step", fail)
    result = cell()
    assert (result.state, result.code) == (status, 1)
    assert one_record(tmp_path)["error"]["type"] == type(error).__name__
    assert ("train.micro_batch_size=8 takes less memory: CUDA" in result.detail) == (status == "oom")
    (text,) = (tmp_path / "outputs").rglob("error.txt")
    assert "Traceback" in text.read_text()


def test_after_a_failure_the_work_so_far_is_not_lost(cell, whole, tmp_path, monkeypatch):
    healthy, steps = TaskModule.training_step, []

    def fail_at_seven(self, batch, index):
        steps.append(self.global_step)
        if self.global_step == 7 and steps.count(7) == 1:
            raise RuntimeError("disk full")
        return healthy(self, batch, index)

    monkeypatch.setattr(TaskModule, "training_step", fail_at_seven)
    assert cell().state == "failed"
    assert cell("rerun=failed").state == "done"
    assert steps == [*range(8), *range(4, 12)], "it should resume from the checkpoint of step 4"
    assert one_record(tmp_path)["weights_sha256"] == one_record(whole)["weights_sha256"]


def test_a_second_run_that_was_stopped_is_resumed(cell, trained, tmp_path, monkeypatch):
    finish = TrainingCallback.on_train_batch_end

    def stop(self, trainer, *rest):
        if trainer.global_step == 6:
            os.kill(os.getpid(), signal.SIGTERM)
        finish(self, trainer, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingCallback, "on_train_batch_end", stop)
        assert cell("rerun=all").state == "interrupted"
    assert cell().state == "done"
    second = one_record(tmp_path)
    assert second["resumes"] == 1 and second["weights_sha256"] == trained["weights_sha256"]


def test_memory_that_a_model_does_not_find_is_recorded(cell, tmp_path, monkeypatch):
    def fail(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(attempt, "build", fail)
    result = cell()
    assert (result.state, result.code) == ("oom", 1) and one_record(tmp_path)["parameters"]["total"] == 0
    assert "OutOfMemoryError" in one_record(tmp_path)["error"]["traceback"]


def test_a_checkpoint_of_another_version_is_refused(cell, trained, tmp_path):
    """It is named, it stays, and rerun=all trains from the start."""
    (checkpoint,) = (tmp_path / "outputs").rglob("last.ckpt")
    ((record_file, entries),) = records(tmp_path).items()
    record_file.unlink()
    saved = torch.load(checkpoint, weights_only=True)
    state = saved["callbacks"].pop("TrainingCallback")
    saved["callbacks"]["OlderCallback"] = {"totals": state["state"], "rng": state["rng"]}  # an older version
    write_sealed(checkpoint, saved, entries["cell"]["id"])
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "outputs").rglob("*")}
    result = cell()
    assert (result.state, result.code) == ("refused", 2) and "\n" not in result.detail
    assert str(checkpoint) in result.detail and "rerun=all" in result.detail
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "outputs").rglob("*")}
    assert cell("rerun=all").state == "done"


def test_a_refused_cell_touches_nothing(cell, tmp_path):
    result = cell("model=lavo", "model.bases=64")
    assert (result.state, result.code) == ("refused", 2) and "these would fit" not in result.detail
    assert result.detail.endswith("LAVO requires bases <= head width: 64 bases, head width 16")
    assert not (tmp_path / "outputs").exists() and not (tmp_path / "data").exists()
