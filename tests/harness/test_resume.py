"""A run that is killed anywhere and started again gives bit-identical numbers."""

import functools
import json
import os
import random
import signal
import subprocess
import time

import pytest

from harness.config.compose import compose
from harness.training import process
from harness.training.callback import TrainingCallback
from harness.training.run_cell import run_cell
from tests.helpers import forked
from tests.helpers.cells import request_of
from tests.helpers.checkpoints import checkpoint_times

pytestmark = pytest.mark.xdist_group("forked")
CELL = ["model=lavo", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1"]
# entries that must be equal; times and the number of resumes may differ
SAME = ("metrics", "weights_sha256", "steps", "tokens", "examples", "baseline", "data", "cell", "config")


def the_record(folder):
    (path,) = (folder / "records").rglob("*.json")
    return json.loads(path.read_text())


def run_here(folder, *overrides):
    places = [f"paths.{name}={folder / name}" for name in ("outputs", "records")]
    data = f"paths.data={folder.parent / 'data'}"
    return run_cell(request_of(compose([*CELL, *places, data, *overrides])))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """settings -> the folder of an uninterrupted run; each is run once, and its data lie beside it."""
    shared = tmp_path_factory.mktemp("whole")

    @functools.cache
    def run(*settings):
        return undisturbed(shared / str(len(list(shared.iterdir()))), *settings)

    return run


def undisturbed(folder, *settings):
    assert run_here(folder, *settings).state == "done"
    return folder


TRANSLATION = ["task=mt/wmt14_ende", "protocol=luna", "model=luna", "model.slots=4", "train.batch_tokens=900"]


@pytest.mark.parametrize(
    ("steps", "settings"),
    [
        # with and without an evaluation and at the last step, with and without accumulated gradients
        ((1, 4, 6, 12), ["train.select.rule=best_val", "train.micro_batch_size=16"]),
        ((6,), ["train.select.rule=last", "train.micro_batch_size=4"]),
        ((6,), ["model=s5", "protocol=s5"]),  # batch norm, and a parameter group beside the first
        ((6,), ["task=forecasting/etth1"]),  # Informer draws its sample of keys anew
        # Apollo and weights to average, in the middle of an epoch of updates by tokens
        pytest.param((6,), TRANSLATION, marks=pytest.mark.slow),
    ],
    ids=["best", "last", "running means", "random draws", "translation"],
)
def test_a_stopped_run_is_resumed_exactly(tmp_path, monkeypatch, whole, steps, settings):
    check_stopped_run(tmp_path, monkeypatch, whole, steps, *settings)


def check_stopped_run(tmp_path, monkeypatch, whole, steps, *settings):
    """Stop a run of 12 steps at each of these. `whole`: settings -> the folder of an uninterrupted run."""
    other = whole(*settings)
    settings = (*settings, f"paths.data={other.parent / 'data'}")

    finish, stops = TrainingCallback.on_train_batch_end, list(steps)

    def stop(self, trainer, *rest):
        if trainer.global_step in stops:
            stops.remove(trainer.global_step)
            os.kill(os.getpid(), signal.SIGTERM)
        finish(self, trainer, *rest)

    monkeypatch.setattr(TrainingCallback, "on_train_batch_end", stop)
    early = [step for step in steps if step < 12]
    for step in early:
        stopped = run_here(tmp_path / "parts", *settings)
        assert stopped.state == "interrupted" and stopped.code == 128 + signal.SIGTERM, f"step {step}"
        assert not list((tmp_path / "parts" / "records").rglob("*.json")), f"step {step}"
    assert run_here(tmp_path / "parts", *settings).state == "done" and not stops
    first, second = the_record(other), the_record(tmp_path / "parts")
    assert {key: first[key] for key in SAME} == {key: second[key] for key in SAME}
    assert second["resumes"] == len(early)
    folders = (other, tmp_path / "parts")
    curves = [next((folder / "outputs").rglob("metrics.csv")).read_text() for folder in folders]
    assert curves[0] == curves[1]


def test_a_job_that_is_not_queued_again_leaves_no_record(tmp_path, monkeypatch, whole):
    """A busy scheduler may refuse the command, but a record would end the cell."""
    data = f"paths.data={whole().parent / 'data'}"
    finish, asked = TrainingCallback.on_train_batch_end, []

    def refuse(number, frame):
        asked.append(number)
        raise subprocess.CalledProcessError(1, ["scontrol", "requeue", "7"])

    def stop(self, trainer, *rest):
        if trainer.global_step == 6 and not asked:
            os.kill(os.getpid(), signal.SIGUSR2)
        finish(self, trainer, *rest)

    monkeypatch.setattr(process, "REQUEUE_PAUSES_S", (0,))
    monkeypatch.setattr(TrainingCallback, "on_train_batch_end", stop)
    before = signal.signal(signal.SIGUSR2, refuse)
    try:
        stopped = run_here(tmp_path / "parts", data)
        assert (stopped.state, len(asked)) == ("preempted", 2)
        assert "saved; the same command" in stopped.detail and "did not queue the job again" in stopped.detail
        assert not list((tmp_path / "parts" / "records").rglob("*.json"))
        assert run_here(tmp_path / "parts", data).state == "done"
    finally:
        signal.signal(signal.SIGUSR2, before)


def start(folder, *overrides):
    places = [f"paths.{name}={folder / name}" for name in ("outputs", "records")]
    return forked.start(*CELL, *places, f"paths.data={folder.parent / 'data'}", *overrides)


LONG = ["train.max_steps=600", "train.eval_every=70", "checkpoint.every_steps=11"]


def wait_for_checkpoint(process, folder, seconds=90):
    """Waits until a new checkpoint appears."""
    before = checkpoint_times(folder)
    limit = time.monotonic() + seconds
    while time.monotonic() < limit and process.poll() is None:
        if any(before.get(path) != written for path, written in checkpoint_times(folder).items()):
            return
        time.sleep(0.01)


@pytest.mark.slow
def test_kill_9_at_random_steps(tmp_path):
    process = start(tmp_path / "whole", *LONG)
    assert process.wait(timeout=300) == 0, process.output()
    dice = random.Random(os.urandom(8))
    kills = 0
    for _ in range(4):
        process = start(tmp_path / "parts", *LONG)
        wait_for_checkpoint(process, tmp_path / "parts")
        time.sleep(dice.uniform(0, 1.0))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate()
    process = start(tmp_path / "parts", *LONG)
    assert process.wait(timeout=300) == 0, process.output()
    first, second = the_record(tmp_path / "whole"), the_record(tmp_path / "parts")
    assert kills >= 1 and second["resumes"] >= 1
    assert {key: first[key] for key in SAME} == {key: second[key] for key in SAME}


@pytest.mark.slow
def test_two_identical_commands_at_once(tmp_path):
    """One runs; the other reports that and exits with 0; a third one afterwards finds the cell done."""
    first = start(tmp_path / "once", *LONG)
    wait_for_checkpoint(first, tmp_path / "once")
    assert first.poll() is None, "the first command ended before the second was typed"
    second = start(tmp_path / "once", *LONG)
    output, _ = second.communicate(timeout=120)
    assert second.returncode == 0 and "another process runs it" in output
    output, _ = first.communicate(timeout=300)
    assert first.returncode == 0, output
    third = start(tmp_path / "once", *LONG)
    output, _ = third.communicate(timeout=120)
    assert third.returncode == 0 and "already done" in output
    assert the_record(tmp_path / "once")["resumes"] == 0
