"""Commands that resume a killed cell on another processor, with another library, or with edited code.

`test_conditions.py` has each condition; here nothing of the project is replaced in the process that resumes.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.clone import copy_tracked_files
from tests.helpers.interrupted_run import CELL, Run

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("resume_elsewhere")]  # the fixture takes seconds
ROOT = Path(__file__).resolve().parents[2]
OTHER_TORCH = """
import importlib.metadata
real = importlib.metadata.version
importlib.metadata.version = lambda name: "9.9.9" if name == "torch" else real(name)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A folder with the run folders and data of a cell that was killed after 16 of 24 steps."""
    folder = tmp_path_factory.mktemp("killed")
    with pytest.MonkeyPatch.context() as monkeypatch:
        Run([f"paths.{name}={folder / name}" for name in ("outputs", "records", "data")]).killed(monkeypatch, 4)
    return folder


def resumed(killed, folder, clone=ROOT, **environment):
    """What the command says that resumes the cell in a copy of the folder."""
    shutil.copytree(killed, folder)
    places = [f"paths.{name}={folder / name}" for name in ("outputs", "records", "data")]
    done = subprocess.run(
        [sys.executable, "run.py", *CELL, *places],
        cwd=clone,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert list((folder / "records").rglob("*.json"))
    return " ".join(line for line in done.stderr.splitlines() if line.startswith("resumed at step"))


def test_another_type_of_processor_is_said(killed, tmp_path):
    said = resumed(killed, tmp_path / "run", ATEN_CPU_CAPABILITY="default")
    assert "CPU capability" in said and "now DEFAULT" in said


def test_another_torch_is_said(killed, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(OTHER_TORCH)
    assert "now 9.9.9" in resumed(killed, tmp_path / "run", PYTHONPATH=str(tmp_path / "site"))


def test_edited_code_of_the_training_is_said(killed, tmp_path):
    clone = tmp_path / "clone"
    copy_tracked_files(clone)
    module = clone / "harness" / "training" / "module.py"
    module.write_text(module.read_text() + "\n\nEDITED = True\n")
    assert "training code" in resumed(killed, tmp_path / "run", clone, PYTHONPATH=str(clone))
