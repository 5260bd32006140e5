"""One process at a time runs in a directory, and others can tell whether it still does."""

import multiprocessing

import pytest

from harness.records.ownership import read_heartbeat
from harness.records.run_directory import RunDirectory


def _acquire(path, answer):
    answer.put(RunDirectory(path).acquire())


def test_one_owner_at_a_time(tmp_path):
    mine = RunDirectory(tmp_path / "run")
    assert mine.acquire()
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    other = context.Process(target=_acquire, args=(tmp_path / "run", answer))
    other.start()
    assert answer.get(timeout=60) is False
    other.join()
    mine.release()
    assert RunDirectory(tmp_path / "run").acquire()


def test_a_heartbeat_is_alive_only_while_the_folder_is_held(tmp_path):
    run = RunDirectory(tmp_path / "run")
    assert read_heartbeat(run.path) is None
    run.acquire()
    run.write_heartbeat("running", step=3, steps=9)
    assert read_heartbeat(run.path)["alive"] and read_heartbeat(run.path)["step"] == 3
    run.release()
    assert not read_heartbeat(run.path)["alive"]


def test_beats_are_few_unless_forced(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.acquire()
    run.write_heartbeat("running", step=1, steps=9)
    run.write_heartbeat("running", step=2, steps=9)
    assert read_heartbeat(run.path)["step"] == 1
    run.write_heartbeat("done", step=9, steps=9, force=True)
    assert read_heartbeat(run.path)["step"] == 9


def test_metrics_are_written_whole(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.acquire()
    run.metrics.write_text("step,val/a")  # a line that a kill cut short
    run.write_metrics([{"step": step, "val/acc": step / 2} for step in (10, 20)])
    assert run.metrics.read_text().split() == ["step,val/acc", "10,5.0", "20,10.0"]


def test_half_written_files_of_a_killed_attempt_are_removed(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.checkpoints.mkdir(parents=True)
    (run.checkpoints / ".last.ckpt.1.ab.tmp").write_text("half")
    run.acquire()
    assert not list(run.checkpoints.iterdir())


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
