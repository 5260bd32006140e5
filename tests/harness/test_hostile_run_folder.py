"""FIFOs, devices, links and forged content in a run folder: no command waits, and the run itself sets them aside."""

import errno
import itertools
import json
import os
import shutil
import socket

import pytest
from helpers.saved_cells import made, run_folder

import longhaul
from harness.commands import status
from harness.config.cell import Cell, cell_of
from harness.config.compose import compose
from harness.errors import UsageError
from harness.launch.cell_state import cell_state, last_log_lines
from harness.launch.queue import LOCAL, Queue, read_submission
from harness.records import predictions, record
from harness.records.curves import curve_panels
from harness.records.files import DamagedError
from harness.records.ownership import read_heartbeat
from harness.records.run_directory import CONFIG, RunDirectory
from harness.training.checkpoints.checkpoint import find_start, read_weights
from harness.training.checkpoints.dependency import Dependency
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of

pytestmark = pytest.mark.usefixtures("alarm")
CELL = ("model=latte", "task=lra/listops", "budget=smoke", "trainer=cpu", "resources.cpus=1", "train.max_steps=4")
FILES = ("owner", "heartbeat.json", "attempt.json", "job.json", "log.txt", "metrics.csv", "error.txt")
FILES = (*FILES, *(f"checkpoints/{name}" for name in ("last.ckpt", "previous.ckpt", "best.pt", "previous-best.pt")))
FILES = (*FILES, ".hydra/config.yaml", ".hydra/overrides.yaml")

IN_PLACE_OF_A_FILE = {
    "a FIFO": os.mkfifo,
    "a directory": os.mkdir,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to another file": lambda path: path.symlink_to("/etc/hostname"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a file of 10 TB": lambda path: path.touch() or os.truncate(path, 10**13),
}


@pytest.fixture
def cell(places):
    class Run:
        cfg = compose([*CELL, *places])
        path = cell_of(cfg).record_path(cfg)
        folder = RunDirectory(cell_of(cfg).folder(cfg))

        def __call__(self, *typed):
            words = [*CELL, *places, *typed]
            return run_cell(request_of(compose(words), words))

        def put(self, *kinds):
            """A kind after the other in the place of each file."""
            for name, kind in zip(FILES, itertools.cycle(kinds), strict=False):
                (path := self.folder.path / name).parent.mkdir(parents=True, exist_ok=True)
                IN_PLACE_OF_A_FILE[kind](path)

    return Run()


@pytest.mark.parametrize("kind", IN_PLACE_OF_A_FILE)
def test_no_reader_of_a_run_folder_waits(cell, kind, capsys):
    cell.put(kind)
    run = cell.folder
    assert read_heartbeat(run.path) is run.last_attempt() is read_submission(run.path) is None
    assert cell_state(cell.path, run.path, Queue()).name == "missing"
    assert last_log_lines(run.path) == [] or kind == "a file of 10 TB"
    run.ownership.require()
    assert find_start(run, cell_of(cell.cfg).id).checkpoint is None
    # a checkpoint may have any size, but has a seal
    with pytest.raises(DamagedError, match="is damaged" if kind == "a file of 10 TB" else "cannot be read"):
        read_weights(run, cell_of(cell.cfg).id, "")
    with pytest.raises(UsageError, match=r"config\.yaml: cannot be read"):
        run.read_hydra(CONFIG)
    assert status.run(cell.cfg, []) == 0


def test_a_run_sets_them_aside(cell):
    cell.put("a FIFO", "a link to a device", "a link to another file", "a directory")
    assert cell().state == "done"
    set_aside = {path.name.removesuffix(".aside-1") for path in cell.folder.path.rglob("*.aside-1")}
    assert set_aside == {name.split("/")[-1] for name in FILES if not name.startswith("checkpoints")}
    assert all(path.is_file() and not path.is_symlink() for path in (cell.folder.last, cell.folder.best))
    assert cell().state == "skipped"


def test_weights_and_an_exported_folder_are_read_only_as_files(cell, places, tmp_path):
    assert cell().state == "done"
    places = dict(word.split("=", 1) for word in places)
    for make in IN_PLACE_OF_A_FILE.values():
        for file in (cell.folder.best, cell.folder.path / ".hydra" / "overrides.yaml"):
            whole = file.rename(file.with_name("kept"))
            make(file)
            with pytest.raises(UsageError, match=r"cannot be read|are not there|is not there|is damaged"):
                longhaul.load(cell_of(cell.cfg).id, **places)
            file.rmdir() if file.is_dir() else file.unlink()
            whole.rename(file)
    assert longhaul.load(cell_of(cell.cfg).id, **places).record["status"] == "done"
    pytest.importorskip("safetensors")
    folder = longhaul.export(cell_of(cell.cfg).id, tmp_path / "exported", **places)
    hub = tmp_path / "hub"  # in the hub's cache, files are links
    hub.mkdir()
    for path in folder.iterdir():
        (hub / path.name).symlink_to(path)
    assert longhaul.load(hub, **places).record["status"] == "done"
    for name in ("config.json", "record.json"):
        for kind in ("a FIFO", "a directory", "a link to a device", "a file of 10 TB"):
            whole = (folder / name).rename(folder / "kept")
            IN_PLACE_OF_A_FILE[kind](folder / name)
            with pytest.raises(UsageError):
                longhaul.load(folder, **places)
            shutil.rmtree(folder / name) if kind == "a directory" else (folder / name).unlink()
            whole.rename(folder / name)
    (folder / "config.json").write_text("[" * 10**6)
    with pytest.raises(UsageError, match="no exported model"):
        longhaul.load(folder, **places)


def test_a_dependency_whose_record_is_no_file_is_one_line(places, tmp_path):
    os.mkfifo(tmp_path / "other.json")
    record = str(tmp_path / "other.json")
    dependency = Dependency(id="0" * 16, name="another cell", record=record, run_dir=str(tmp_path))
    result = run_cell(request_of(compose([*CELL, *places]), depends_on=[dependency]))
    assert (result.state, result.code) == ("waiting", 2) and "depends on another cell, which is not" in result.detail


FORGED_JOBS = (
    {"time": "soon"}, {"time": 1e400}, {"job": None}, {"job": "\0"}, {"job": "../../../dev/zero"}, {"job": "self"},
    {"log": "/dev/zero"}, {"host": [1]}, {"scheduler": {}}, {"more": 1},
)  # fmt: skip


@pytest.mark.parametrize("forged", FORGED_JOBS, ids=str)
def test_a_forged_job_stops_no_command(cell, forged, capsys):
    cell.folder.path.mkdir(parents=True)
    job = {"scheduler": LOCAL, "job": "1", "log": "x", "host": socket.gethostname(), "time": 1.0} | forged
    (cell.folder.path / "job.json").write_text(json.dumps(job))
    beat = {"state": "running", "host": "x", "step": 1, "steps": 2, "pid": 1, "time": 0}
    for name in ("heartbeat.json", "attempt.json"):
        assert status.run(cell.cfg, []) == 0
        (cell.folder.path / name).write_text(json.dumps(beat))
    assert status.run(cell.cfg, []) == 0


def test_a_folder_in_the_place_of_a_result_is_named(cell, monkeypatch):
    """Before the run, or when it appears during the run. A folder that only resembles an artifact stays as it is."""
    for end in (".json", ".npz"):
        (path := cell.path.with_suffix(end)).mkdir(parents=True)
        (path / "of the user").touch()
        for typed in ((), ("rerun=all",)):
            result = cell(*typed)
            assert (result.state, result.code) == ("refused", 2)
            assert str(path) in result.detail and "move it away" in result.detail and "rerun=all" not in result.detail
            assert not cell.folder.path.exists()
        path.rename(path.with_name(f"moved{end}s"))
    (mine := cell.path.with_name(f"{cell.path.stem}.mine")).mkdir()
    write = predictions.write

    def in_the_way(file, scores):
        predictions.path_of(file).mkdir()
        write(file, scores)

    with monkeypatch.context() as patched:
        patched.setattr(predictions, "write", in_the_way)
        result = cell()
    path = predictions.path_of(cell.path)
    assert result.state == "interrupted"
    way = "a folder is in the way; move it away"
    assert result.detail == f"{path}: {way}; after that, the same command goes on"
    path.rmdir()
    assert cell().state == "done" and mine.is_dir()


def test_a_full_disk_at_the_first_file_is_one_line(cell, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # of a descriptor: no name

    for call in ("pwrite", "fsync"):
        with monkeypatch.context() as patched:
            patched.setattr(os, call, full)
            result = cell()
        assert (result.state, result.code) == ("interrupted", 1)
        assert result.detail.startswith(str(cell.folder.path))
        assert result.detail.endswith(": no space left on device; once it takes writes again, the same command goes on")
        assert not cell.folder.ownership._lock and not cell.path.exists()
        shutil.rmtree(cell.folder.path, ignore_errors=True)
    assert cell().state == "done" and record.read(cell.path)["status"] == "done"


@pytest.mark.parametrize("kind", ["a FIFO", "a directory", "a link to a device"])
@pytest.mark.parametrize("name", ["metrics.csv", ".hydra/config.yaml"])
def test_curves_of_other_runs_are_drawn(tmp_path, capsys, kind, name):
    records, rows = [made(seed=seed) for seed in (1, 2)], [(5, 2.0, {"acc": 10.0}), (10, 1.0, {"acc": 30.0})]
    folders = {str(Cell(entries["cell"]["id"], entries["config"]).path): entries for entries in records}
    folders = {run: run_folder(tmp_path, entries, rows) for run, entries in folders.items()}
    (file := min(folders.values()) / name).unlink()
    IN_PLACE_OF_A_FILE[kind](file)
    (panel,) = curve_panels(folders, records)
    assert sum(len(line.curves) for line in panel.lines) == (1 if name == "metrics.csv" else 2)
    said = capsys.readouterr().err
    assert said.startswith(f"left out: {file}: cannot be read") and said.count("\n") == 1
