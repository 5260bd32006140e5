"""The number of CPU threads of a cell follows its model's size and the machine's idle cores."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from harness.config.compose import compose
from harness.config.places import ROOT
from harness.records import record
from harness.training import process
from harness.training.callback import TrainingCallback
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of, shorten

CELL = ["model=vanilla", "task=lra/listops", "budget=smoke", "trainer=cpu"]


@pytest.fixture(autouse=True)
def _restore_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_the_compiler_s_cache_lies_below_the_user_s_folder(tmp_path, monkeypatch):
    """And in no folder whose name another user can guess and make first."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    process.keep_compiler_cache_private()
    folder = tmp_path / "cache" / "longhaul" / "torchinductor"
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(folder) and folder.stat().st_mode & 0o077 == 0
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "chosen")
    process.keep_compiler_cache_private()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "chosen"
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    process.keep_compiler_cache_private()
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ, "no folder can be made there"


@pytest.mark.slow
def test_a_run_makes_no_folder_with_a_name_that_can_be_guessed(tmp_path):
    folders = [f"paths.{name}={tmp_path / name}" for name in ("outputs", "records", "data")]
    (tmp_path / "tmp").mkdir()
    environment = {key: value for key, value in os.environ.items() if key != "TORCHINDUCTOR_CACHE_DIR"}
    environment |= {"TMPDIR": str(tmp_path / "tmp"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, str(ROOT / "run.py"), *CELL, "resources.cpus=1", *folders]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not list((tmp_path / "tmp").iterdir()) and (tmp_path / "cache" / "longhaul" / "torchinductor").is_dir()


@pytest.mark.parametrize(
    ("parameters", "available", "busy", "expected"),
    [
        (80_000, 2, 0.0, 1),  # small: one thread, even on an idle machine
        (80_000, 64, 0.0, 1),
        (10_000_000, 2, 0.1, 2),
        (10_000_000, 2, 1.0, 1),
        (10_000_000, 2, 5.0, 1),  # at least one
        (10_000_000, 16, 3.8, 12),
    ],
)
def test_by_size_and_load(parameters, available, busy, expected, monkeypatch):
    monkeypatch.setattr(process, "available_threads", lambda: available)
    monkeypatch.setattr(process, "busy_cores", lambda: busy)
    assert process.choose_threads(parameters) == expected


def test_the_load_is_that_of_other_processes():
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.3)
        assert process.busy_cores() > 0.2, "a process that loops is seen"
    finally:
        loop.kill()
        loop.wait()


@pytest.mark.slow
def test_a_cell_says_what_it_takes_and_keeps_it_when_it_is_resumed(places, tmp_path, monkeypatch, capsys):
    """The machine is idle at the start and busy at the resumption."""
    finish = TrainingCallback.on_train_batch_end

    def run(*overrides):
        cfg = compose([*CELL, *places, *overrides])
        shorten(cfg)  # beside another busy process, two threads wait for each other
        return run_cell(request_of(cfg))

    def stop(self, trainer, *rest):
        if trainer.global_step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        finish(self, trainer, *rest)

    monkeypatch.setattr(process, "available_threads", lambda: 2)
    monkeypatch.setattr(process, "ONE_THREAD_BELOW", 0)
    monkeypatch.setattr(process, "busy_cores", lambda: 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(TrainingCallback, "on_train_batch_end", stop)
        assert run().state == "interrupted"
    assert "2 of 2 CPU threads" in capsys.readouterr().err and torch.get_num_threads() == 2
    torch.set_num_threads(1)
    monkeypatch.setattr(process, "busy_cores", lambda: 2.0)
    assert run().state == "done"
    assert "2 of 2 CPU threads" in capsys.readouterr().err
    (path,) = (tmp_path / "records").rglob("*.json")
    assert record.read(path)["hardware"]["threads"] == 2
    assert run("seed=3", "resources.cpus=2").state == "done" and torch.get_num_threads() == 2
