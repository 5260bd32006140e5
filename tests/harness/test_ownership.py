"""Which process owns a run directory, even where clocks differ and locks are invisible."""

import json
import multiprocessing
import time

import pytest

from harness.records import ownership
from harness.records.ownership import Ownership, OwnershipLostError
from harness.records.run_directory import RunDirectory
from harness.training.callback import TrainingCallback
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of

CELL = ("model=latte", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1")


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(ownership, "DEAD_AFTER_S", 0.6)
    monkeypatch.setattr(ownership, "POLL_S", 0.05)


@pytest.fixture
def no_locks(monkeypatch):
    monkeypatch.setattr(ownership, "try_lock", lambda descriptor: True)


def beat(folder, host, at, state="running"):
    last = {"state": state, "step": 3, "steps": 9, "host": host, "pid": 1, "time": at}
    (folder / ownership.HEARTBEAT).write_text(json.dumps(last))


def test_a_holder_that_died_on_another_host_is_followed_within_the_same_call(tmp_path, quick):
    beat(tmp_path, "elsewhere", time.time())
    said = []
    assert Ownership(tmp_path).acquire(said.append)
    assert len(said) == 1 and "elsewhere" in said[0]


@pytest.mark.parametrize("skew", [-70.0, 0.0, 3600.0])
def test_a_live_holder_on_another_host_is_left_alone_whatever_its_clock_says(tmp_path, no_locks, monkeypatch, skew):
    now = time.time() + skew
    beat(tmp_path, "elsewhere", now)
    monkeypatch.setattr("harness.records.ownership.time.sleep", lambda seconds: beat(tmp_path, "elsewhere", now + 5))
    assert not Ownership(tmp_path).acquire()


def test_a_run_that_ended_elsewhere_is_not_waited_for(tmp_path, monkeypatch):
    beat(tmp_path, "elsewhere", time.time(), state="interrupted")
    monkeypatch.setattr("harness.records.ownership.time.sleep", lambda seconds: pytest.fail("it waits"))
    assert Ownership(tmp_path).acquire()


def test_of_two_that_began_at_once_the_first_one_writes_nothing_more(tmp_path, no_locks):
    first, second = Ownership(tmp_path), Ownership(tmp_path)
    assert first.acquire() and second.acquire()
    second.require()
    with pytest.raises(OwnershipLostError, match="taken"):
        first.require()


def test_a_run_that_was_taken_over_saves_nothing_and_leaves_no_record(places, monkeypatch):
    from harness.config.cell import cell_of
    from harness.config.compose import compose

    cfg = compose([*CELL, *places])
    folder = RunDirectory(cell_of(cfg).folder(cfg))
    real = TrainingCallback._save

    def save(callback, trainer):
        (folder.path / ownership.OWNER).write_text("another")
        real(callback, trainer)

    monkeypatch.setattr(TrainingCallback, "_save", save)
    result = run_cell(request_of(cfg))
    assert (result.state, result.code) == ("running", 1) and "taken" in result.detail
    assert not cell_of(cfg).record_path(cfg).exists() and not folder.has_checkpoint


def test_malformed_heartbeats_are_ignored(tmp_path):
    for text in ("", "{}", "[]", "null", '{"state": "running"}', '{"time": "soon"}', "[" * 100_000, "\x00"):
        (tmp_path / ownership.HEARTBEAT).write_text(text)
        assert ownership.read_heartbeat(tmp_path) is None


def _acquire(path, answer):
    answer.put(RunDirectory(path).acquire())


def test_one_owner_at_a_time(tmp_path):
    mine = RunDirectory(tmp_path / "run")
    assert mine.acquire()
    context = multiprocessing.get_context("fork")
    answer = context.Queue()
    other = context.Process(target=_acquire, args=(tmp_path / "run", answer))
    other.start()
    assert answer.get(timeout=60) is False
    other.join()
    mine.ownership.release()
    assert RunDirectory(tmp_path / "run").acquire()


def test_a_heartbeat_is_alive_only_while_the_folder_is_held(tmp_path):
    run = RunDirectory(tmp_path / "run")
    assert ownership.read_heartbeat(run.path) is None
    run.acquire()
    run.ownership.beat("running", step=3, steps=9)
    assert ownership.read_heartbeat(run.path)["alive"] and ownership.read_heartbeat(run.path)["step"] == 3
    run.ownership.release()
    assert not ownership.read_heartbeat(run.path)["alive"]


def test_beats_are_few_unless_forced(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.acquire()
    run.ownership.beat("running", step=1, steps=9)
    run.ownership.beat("running", step=2, steps=9)
    assert ownership.read_heartbeat(run.path)["step"] == 1
    run.ownership.beat("done", step=9, steps=9, force=True)
    assert ownership.read_heartbeat(run.path)["step"] == 9


def test_metrics_are_written_whole(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.acquire()
    run.metrics.write_text("step,val/a")  # a line that a kill cut short
    run.write_metrics([{"step": step, "val/acc": step / 2} for step in (10, 20)])
    assert run.metrics.read_text().split() == ["step,val/acc", "10,5.0", "20,10.0"]


@pytest.mark.parametrize("name", ["checkpoints", ".hydra"])
def test_a_link_in_the_place_of_an_inner_folder_is_set_aside(tmp_path, name):
    """Otherwise a run folder from elsewhere would choose where checkpoints and configurations are written."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    (run.path / name).symlink_to(elsewhere)
    assert run.acquire()
    run.write_config({}, [])
    run.last.write_bytes(b"")
    assert not list(elsewhere.iterdir())
    assert (run.path / f"{name}.aside-1").is_symlink() and not (run.path / name).is_symlink()
