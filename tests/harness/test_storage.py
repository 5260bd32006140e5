"""Memory and disks that run out: the cell's state, and that no earlier result is lost."""

import errno
import json
import os
import shutil
import time

import pytest

from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.launch.cell_state import cell_state
from harness.launch.queue import Queue
from harness.records import predictions, record
from harness.records.run_directory import RunDirectory
from harness.training import attempt, run_cell
from harness.training.callback import TrainingCallback
from harness.training.failures import failure_status
from tests.helpers.cells import request_of

CELL = ("model=latte", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1", "train.max_steps=4")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        RuntimeError("[enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("CUDA error: out of memory\nCompile with TORCH_USE_CUDA_DSA"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    ],
)
def test_no_memory_has_a_state_of_its_own(error):
    assert failure_status(error) == "oom"
    assert failure_status(RuntimeError("shapes differ")) == "failed"


@pytest.fixture
def cell(places):
    def run(*typed):
        return run_cell.run_cell(request_of(compose([*CELL, *places, *typed])))

    run.cfg = compose([*CELL, *places])
    run.path = cell_of(run.cfg).record_path(run.cfg)
    run.folder = RunDirectory(cell_of(run.cfg).folder(run.cfg))
    return run


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/disk/last.ckpt")


WRITERS = {
    "a checkpoint": (TrainingCallback, "_save"),
    "the predictions": (predictions, "write"),
    "the record": (record, "write"),
    "the mark of its end": (RunDirectory, "end"),
}


@pytest.mark.parametrize("written", WRITERS)
def test_a_full_disk_is_one_line_and_the_same_command_goes_on(cell, monkeypatch, written):
    with monkeypatch.context() as patched:
        patched.setattr(*WRITERS[written], full)
        result = cell()
    assert (result.state, result.code) == ("interrupted", 1)
    assert (
        result.detail
        == "/disk/last.ckpt: no space left on device; once it takes writes again, the same command goes on"
    )
    assert written == "the mark of its end" or not cell.path.exists()
    assert cell().state == "done"


def test_a_full_disk_leaves_an_earlier_record(cell, monkeypatch):
    assert cell().state == "done"
    before = cell.path.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(TrainingCallback, "_save", full)
        assert cell("rerun=all").state == "interrupted"
    assert cell.path.read_bytes() == before


def test_a_failure_that_cannot_be_recorded_is_one_line(cell, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(record, "write", full)
        patched.setattr(attempt.Attempt, "_fit", lambda _: (_ for _ in ()).throw(RuntimeError("broken")))
        assert cell().state == "interrupted"


def test_the_log_and_the_heartbeat_may_fail(cell, monkeypatch):
    """They only report progress; no result depends on them."""
    monkeypatch.setattr("harness.records.ownership.write_atomic", full)
    real = RunDirectory.__init__

    def init(folder, path):
        real(folder, path)
        folder.log = path / "nowhere" / "log.txt"

    monkeypatch.setattr(RunDirectory, "__init__", init)
    assert cell().state == "done"


def test_half_written_files_of_a_killed_process_are_swept(cell):
    for folder, name in ((cell.path.parent, cell.path.name), (cell.folder.checkpoints, "last.ckpt")):
        folder.mkdir(parents=True)
        (folder / f".{name}.12.abcd.tmp").write_text("half")
    (cell.path.parent / ".another.json.12.abcd.tmp").write_text("of another cell")
    assert cell().state == "done"
    left = [path.name for root in (cell.path.parent, cell.folder.path) for path in root.rglob("*.tmp")]
    assert left == [".another.json.12.abcd.tmp"]


def test_a_rerun_that_was_killed_before_its_first_checkpoint_leaves_the_record_and_nothing_else(cell):
    assert cell().state == "done"
    shutil.rmtree(cell.folder.checkpoints)
    cell.folder.checkpoints.mkdir()
    (cell.folder.checkpoints / ".last.ckpt.12.abcd.tmp").write_text("half")
    cell.folder.begin(time.time())
    heartbeat = json.loads((cell.folder.path / "heartbeat.json").read_text())
    (cell.folder.path / "heartbeat.json").write_text(json.dumps(heartbeat | {"state": "running"}))
    assert cell_state(cell.path, cell.folder.path, Queue()).name == "dead"
    assert cell().state == "skipped"
    assert not list(cell.folder.path.rglob("*.tmp"))
    assert cell_state(cell.path, cell.folder.path, Queue()).name == "done"
