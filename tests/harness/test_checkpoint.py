"""Checkpoints: the previous one replaces a damaged or foreign one. What a resumed run shares with the first.

Other conditions are said in one line and kept in the record, or refused where the recipe changes.
"""

import importlib.metadata
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harness.config import source_code
from harness.config.cell import cell_of
from harness.errors import UsageError
from harness.records import provenance, record
from harness.records.files import DamagedError, check_seal
from harness.records.run_directory import RunDirectory
from harness.training import attempt, conditions
from harness.training.attempt import Attempt
from harness.training.checkpoints.checkpoint import read_sealed, write_sealed
from harness.training.conditions import differences
from tasks.lra.listops import ListOps
from tests.helpers.interrupted_run import Run

ID = "0123456789abcdef"


@pytest.fixture
def run(tmp_path, tmp_path_factory):
    places = [f"paths.{name}={tmp_path / name}" for name in ("outputs", "records", "tables")]
    return Run([*places, f"paths.data={tmp_path_factory.getbasetemp() / 'listops-smoke'}"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An undisturbed run."""
    places = [f"paths.{name}={tmp_path_factory.mktemp('whole') / name}" for name in ("outputs", "records")]
    run = Run([*places, f"paths.data={tmp_path_factory.getbasetemp() / 'listops-smoke'}"])
    assert run().state == "done"
    return run


def same(run, whole):
    entries, before = run.record(), whole.record()
    keys = ("weights_sha256", "tested_weights_sha256", "metrics", "tokens", "examples", "steps")
    different = [key for key in keys if entries[key] != before[key]]
    return different == [] and run.folder.metrics.read_text() == whole.folder.metrics.read_text()


# files


def test_any_changed_bit_is_found(tmp_path):
    path, dice = tmp_path / "one.ckpt", random.Random(1)
    write_sealed(path, {"weights": torch.arange(40.0)}, ID)
    assert torch.equal(torch.load(path, weights_only=True)["weights"], torch.arange(40.0)), "a file as any other"
    data = path.read_bytes()
    for _ in range(200):
        changed = bytearray(data)
        changed[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(DamagedError):
            read_sealed(path, ID)
    for length in (0, 1, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(DamagedError, match="is damaged"):
            check_seal(path, ID)


def test_a_file_belongs_to_one_cell(tmp_path):
    write_sealed(tmp_path / "one.pt", {}, ID)
    with pytest.raises(DamagedError, match=f"belongs to another cell \\({ID}, not f"):
        read_sealed(tmp_path / "one.pt", "f" * 16)


def test_a_checkpoint_is_staged_beside_its_path(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "absent"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    write_sealed(tmp_path / "one.pt", {}, ID, keep=tmp_path / "before.pt")
    first = (tmp_path / "one.pt").read_bytes()
    write_sealed(tmp_path / "one.pt", {"a": 1}, ID, keep=tmp_path / "before.pt")
    assert (tmp_path / "before.pt").read_bytes() == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["before.pt", "one.pt"]


def test_a_full_disk_leaves_the_previous_checkpoint(tmp_path, monkeypatch):
    write_sealed(tmp_path / "one.pt", {"a": 1}, ID)
    monkeypatch.setattr(torch, "save", lambda *_: (_ for _ in ()).throw(RuntimeError("PytorchStreamWriter failed")))
    with pytest.raises(OSError, match="is the disk full"):
        write_sealed(tmp_path / "one.pt", {"a": 2}, ID)
    assert read_sealed(tmp_path / "one.pt", ID) == {"a": 1}
    assert len(list(tmp_path.iterdir())) == 1


# damage to a run


def flip(path: Path, offset: int = -1000) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 4
    path.write_bytes(data)


def flip_both(folder: RunDirectory) -> None:
    flip(folder.last)
    flip(folder.previous)


@pytest.mark.parametrize(("saves", "damage", "says", "resumes"), [
    (4, lambda folder: flip(folder.last), "last.ckpt is damaged: goes on from previous.ckpt", 1),
    (4, flip_both, "previous.ckpt is damaged: trains from the start", 0),
    (4, lambda folder: folder.last.rename(folder.previous), "", 1),  # a kill between the two renames loses nothing
    (5, lambda folder: folder.best.write_bytes(b"no weights"), "best.pt is damaged", None),  # of a checkpoint
], ids=["last", "both", "renamed", "weights"])  # fmt: skip
def test_a_run_goes_on_from_the_last_whole_checkpoint(run, whole, monkeypatch, capfd, saves, damage, says, resumes):
    run.killed(monkeypatch, saves)
    damage(run.folder)
    assert run().state == "done" and says in capfd.readouterr().err
    assert same(run, whole) and resumes in (None, run.record()["resumes"])


def test_a_checkpoint_of_another_seed_is_not_used(run, whole, monkeypatch, capfd):
    run.killed(monkeypatch, 4, "seed=2")
    other = RunDirectory(cell_of(run.config("seed=2")).folder(run.config()))
    run.folder.checkpoints.mkdir(parents=True)
    shutil.copytree(other.checkpoints, run.folder.checkpoints, dirs_exist_ok=True)
    assert run().state == "done" and "belongs to another cell" in capfd.readouterr().err
    assert same(run, whole)


def test_weights_that_change_before_the_test_are_not_tested(run, monkeypatch):
    real = Attempt._evaluate

    def evaluate(attempt, progress):
        write_sealed(run.folder.best, torch.load(run.folder.best), attempt.cell.id)
        content = {name: tensor + 1 for name, tensor in torch.load(run.folder.best).items()}
        write_sealed(run.folder.best, content, attempt.cell.id)
        return real(attempt, progress)

    run.killed(monkeypatch, 4)
    monkeypatch.setattr(Attempt, "_evaluate", evaluate)
    result = run()
    assert result.state == "refused" and "is not what this run wrote; rerun=all" in result.detail


NAMES = (
    *("owner", "heartbeat.json", "attempt.json", "job.json", "metrics.csv", "log.txt", "error.txt", ".hydra"),
    *(".hydra/config.yaml", ".hydra/overrides.yaml", "checkpoints/best.pt", "checkpoints/previous.ckpt"),
)


def test_a_folder_in_the_place_of_a_file_is_set_aside(run, whole, monkeypatch):
    """All files of a folder become folders, and its folder becomes a file; the last checkpoint stays."""
    run.killed(monkeypatch, 4)
    for name in NAMES:
        path = run.folder.path / name
        if path.is_dir():
            shutil.rmtree(path)
            path.write_text("?")
        elif path.parent.is_dir():
            path.unlink(missing_ok=True)
            path.mkdir()
            (path / "of the user").write_text("?")
    assert run().state == "done" and same(run, whole)
    assert (run.folder.path / "log.txt.aside-1" / "of the user").read_text() == "?", "nothing is deleted"


def test_small_files_may_hold_anything(run, whole, monkeypatch):
    run.killed(monkeypatch, 4)
    run.folder.metrics.write_text("step,train/loss\nx,y\n\0")
    texts = {"heartbeat.json": '{"time": 1e999}', "attempt.json": "\x00", "job.json": '{"since": "x"}', "owner": "[]"}
    for name, text in texts.items():
        (run.folder.path / name).write_text(text)
    assert run().state == "done" and same(run, whole)


# what a resumed run must share


def test_code_and_data_that_changed_since_are_refused(run, whole, monkeypatch):
    run.killed(monkeypatch, 4)
    real = ListOps.load
    other_data = lambda task: replace(real(task), fingerprint="f" * 64)  # noqa: E731
    for owner, name, changed, why in (
        (source_code, "code_of", lambda cfg: "f" * 16, "the code of model"),
        (ListOps, "load", other_data, "the data have changed"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, changed)
            result = run()
        assert (result.state, result.code) == ("refused", 2) and why in result.detail
    assert run().state == "done" and same(run, whole), "with the old code and data it goes on"


# which attempt counts


def test_a_record_that_is_older_than_its_checkpoint_is_done(whole):
    assert sorted(path.name for path in whole.folder.checkpoints.iterdir()) == ["best.pt", "last.ckpt"]
    os.utime(whole.record_path, (1, 1))
    assert whole().state == "skipped"


def test_a_killed_rerun_goes_on_although_the_old_record_is_younger(run, whole, monkeypatch):
    assert run().state == "done"
    run.killed(monkeypatch, 4, "rerun=all")
    os.utime(run.record_path)
    assert run().state == "done" and run.record()["resumes"] == 1 and same(run, whole)


@pytest.fixture(autouse=True)
def _restore_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_micro_batches_may_change_at_a_resume_and_the_number_of_threads_may_not(run, whole, monkeypatch, capfd):
    """The record names the instructions and the code of the training; older records and checkpoints do not."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    run.killed(monkeypatch, 4, "resources.cpus=1")
    assert run("resources.cpus=2", "train.micro_batch_size=2", "train.eval_batch_size=7").state == "done"
    entries, used = run.record(), torch.backends.cpu.get_cpu_capability()
    assert all(entries[key] == whole.record()[key] for key in ("tokens", "examples"))
    assert entries["hardware"]["threads"] == torch.get_num_threads() == 1
    said = capfd.readouterr().err
    assert "1 of 1 CPU threads, as the checkpoint, not resources.cpus=2" in said and "train.micro_batch_size" in said
    changes = ["train.micro_batch_size 16, now 2", "train.eval_batch_size 64, now 7"]
    assert entries["changed_at_resume"] == [f"step 12: {change}" for change in changes]
    assert entries["conditions"] == {
        "train.micro_batch_size": 2, "train.micro_batch_tokens": None, "train.eval_batch_size": 7,
        "resources.cpus": 1, "resources.kernels": "torch", "resources.compile": False,
        "resources.matmul": "highest", "resources.checkpoint_layers": False,
    }  # fmt: skip
    assert entries["training_sha256"] == source_code.training_code()
    assert entries["hardware"]["capability"] == f"{used}, ONEDNN_MAX_CPU_ISA=SSE41"
    for key in ("training_sha256", "changed_at_resume", "conditions"):
        del entries[key]
    del entries["hardware"]["capability"]
    record.validate(entries)
    assert differences({}, {"torch": "2.0"}) == differences({"torch": "2.0", "gone": "1"}, {"torch": "2.0"}) == []


def test_what_changed_is_said_in_one_line_and_kept_in_the_record(run, monkeypatch, capfd):
    run.killed(monkeypatch, 4)
    real = importlib.metadata.version
    with monkeypatch.context() as patched:
        version = lambda name: "9.9" if name == "torch" else real(name)  # noqa: E731
        patched.setattr(conditions.importlib.metadata, "version", version)
        patched.setattr(source_code, "training_code", lambda: "f" * 16)
        patched.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
        patched.setenv("MKL_CBWR", "COMPATIBLE")
        patched.setattr(provenance, "cpu_name", lambda: "Another CPU")
        assert run().state == "done"
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("resumed at step")]
    kept = [change.removeprefix("step 12: ") for change in run.record()["changed_at_resume"]]
    now = {
        "training code": "f" * 16, "torch": "9.9", "CPU": "Another CPU",
        "CPU capability": "DEFAULT, MKL_CBWR=COMPATIBLE",
    }  # fmt: skip
    for change, (name, value) in zip(kept, now.items(), strict=True):
        assert change.startswith(f"{name} ") and change.endswith(f", now {value}") and change in line


def test_other_kernels_are_a_condition_and_not_changed_code(run, monkeypatch):
    run.killed(monkeypatch, 4)
    assert run("resources.kernels=native").state == "done"
    assert run.record()["changed_at_resume"] == ["step 12: resources.kernels torch, now native"]
    assert "already done: " in run().detail


def test_each_resume_is_compared_with_the_one_before(run, monkeypatch):
    """Changed at the first resume, and back at the second: two lines, not three."""
    run.killed(monkeypatch, 2)
    with monkeypatch.context() as patched:
        patched.setattr(provenance, "cpu_name", lambda: "Another CPU")
        run.killed(patched, 2)
    run.killed(monkeypatch, 1)
    assert run().state == "done"
    kept = run.record()["changed_at_resume"]
    assert [line.split(":")[0] for line in kept] == ["step 6", "step 12"] and run.record()["resumes"] == 3
    assert kept[0].endswith(", now Another CPU") and kept[1].startswith("step 12: CPU Another CPU, now ")


def test_a_trainer_of_another_recipe_is_refused(run, monkeypatch):
    """Whatever route a setting took to the Trainer: what the Trainer has counts."""
    run.killed(monkeypatch, 4)
    try:
        detail = run("+trainer.gradient_clip_val=0.0001").detail
    except UsageError as error:
        detail = str(error)
    assert "gradient_clip_val" in detail and not run.record_path.exists()
    real = attempt.conditions_of
    for setting, value in (("gradient_clip_val", 1e-4), ("precision", "bf16-mixed")):
        with monkeypatch.context() as patched:
            other = {f"trainer.{setting}": str(value)}
            patched.setattr(attempt, "conditions_of", lambda *arguments, other=other: real(*arguments) | other)
            result = run()
        assert (result.state, result.code) == ("refused", 2) and result.detail.count("\n") == 0
        assert all(part in result.detail for part in (f"trainer.{setting}", f"now {value}", "rerun=all"))
    assert run().state == "done" and run.record()["changed_at_resume"] == []
