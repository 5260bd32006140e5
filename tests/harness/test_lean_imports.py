"""A cell imports no library that it does not use."""

import subprocess
import sys

import pytest

from harness.config.places import ROOT

CELL = """
import sys
from longhaul.__main__ import main
cell = ["model=lavo", "task=lra/listops", "budget=smoke", "train.trial=true"]
sys.argv = ["run.py", *cell, *sys.argv[1:]]
assert main() == 0
names = ("matplotlib", "scipy.signal", "pandas", "sklearn")
print("imported:", [name for name in names if name in sys.modules])
from lightning_utilities.core.imports import RequirementCache, package_available
from torchmetrics.utilities.imports import _SCIPY_AVAILABLE
assert _SCIPY_AVAILABLE and package_available("scipy") and RequirementCache("matplotlib"), "they are there"
"""


@pytest.mark.slow
def test_a_cell_imports_what_it_uses(tmp_path):
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)}
    for place in ("do=prepare", f"paths.records={tmp_path}"):
        words = [sys.executable, "-c", CELL, f"paths.data={tmp_path}/data", f"paths.outputs={tmp_path}", place]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=300, env=environment)
        assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported: []", done.stdout
