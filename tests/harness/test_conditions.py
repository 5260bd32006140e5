"""A resume under other conditions: said in one line and kept in the record, or refused where the recipe changes."""

import importlib.metadata

import pytest
import torch

from harness.config import source_code
from harness.errors import UsageError
from harness.records import provenance, record
from harness.training import attempt, conditions
from harness.training.conditions import differences
from tests.helpers.interrupted_run import Run


@pytest.fixture
def run(tmp_path, tmp_path_factory):
    places = [f"paths.{name}={tmp_path / name}" for name in ("outputs", "records")]
    return Run([*places, f"paths.data={tmp_path_factory.getbasetemp() / 'listops-smoke'}"])


@pytest.fixture(autouse=True)
def _restore_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_another_typed_number_of_threads_is_not_taken_at_a_resume(run, monkeypatch, capfd):
    """The record names the instructions and the code of the training; older records and checkpoints do not."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    run.killed(monkeypatch, 4, "resources.cpus=1")
    assert run("resources.cpus=2").state == "done"
    entries, used = run.record(), torch.backends.cpu.get_cpu_capability()
    assert entries["hardware"]["threads"] == torch.get_num_threads() == 1
    assert "1 of 1 CPU threads, as the checkpoint, not resources.cpus=2" in capfd.readouterr().err
    assert entries["changed_at_resume"] == [] and entries["training_sha256"] == source_code.training_code()
    assert entries["hardware"]["capability"] == f"{used}, ONEDNN_MAX_CPU_ISA=SSE41"
    for key in ("training_sha256", "changed_at_resume"):
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
