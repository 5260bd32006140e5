"""A cell imports no library that it does not use."""

import subprocess
import sys

import pytest

from harness.config.places import ROOT

IMPORTS = """
import sys
from harness.training.lean_imports import import_torchmetrics
import_torchmetrics()
from lightning_utilities.core.imports import RequirementCache, package_available
from torchmetrics.utilities.imports import _SCIPY_AVAILABLE
assert _SCIPY_AVAILABLE and package_available("scipy") and RequirementCache("matplotlib"), "they are there"
import harness.training.attempt
print([name for name in ("matplotlib", "scipy.signal", "pandas", "sklearn") if name in sys.modules])
"""


@pytest.mark.slow
def test_a_cell_imports_no_plots():
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
