"""git runs without settings of the environment and without programs that a setting names."""

import subprocess

import pytest

from harness.launch import snapshot
from harness.records import provenance
from harness.records.git import git_output


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "clone"
    root.mkdir()
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    for arguments in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "x", "--allow-empty")):
        subprocess.run(["git", "-C", str(root), *arguments], check=True)
    return root


@pytest.fixture
def program(tmp_path):
    """A program that leaves a file when git starts it."""
    file = tmp_path / "program"
    file.write_text(f"#!/bin/sh\ntouch {tmp_path}/canary\n")
    file.chmod(0o755)
    return file


def test_a_variable_that_names_a_program_starts_none(repository, program, tmp_path, monkeypatch):
    settings = {"COUNT": "1", "KEY_0": "core.fsmonitor", "VALUE_0": str(program)}
    for name, value in settings.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    state = provenance.git(repository)
    assert len(state["sha"]) == 40 and not state["dirty"] and not (tmp_path / "canary").exists()


def test_a_setting_of_the_repository_starts_no_program(repository, program, tmp_path):
    for key in ("core.fsmonitor", "diff.external"):
        subprocess.run(["git", "-C", str(repository), "config", key, str(program)], check=True)
    (repository / "run.py").write_text("1")
    subprocess.run(["git", "-c", "core.fsmonitor=false", "-C", str(repository), "add", "."], check=True)
    (tmp_path / "canary").unlink(missing_ok=True)
    assert provenance.git(repository)["dirty"]
    assert b"run.py" in snapshot.output_of(repository, *snapshot.DIFF)
    assert not (tmp_path / "canary").exists()


def test_a_variable_names_no_other_repository(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    assert len(git_output(repository, "rev-parse", "HEAD").strip()) == 40
    assert git_output(tmp_path / "nowhere", "rev-parse", "HEAD") is None
