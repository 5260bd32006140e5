"""A cell imports no library that it does not use. Freed memory is kept within a phase, and returned between phases."""

import subprocess
import sys

import pytest

from harness.config.build import build
from harness.config.compose import compose
from harness.config.places import ROOT
from tests.helpers.tasks import no_progress

CELL = """
import sys
from longhaul.__main__ import main
cell = ["model=lavo", "task=lra/listops", "budget=smoke", "train.trial=true"]
sys.argv = ["run.py", *cell, *sys.argv[1:]]
assert main() == 0
names = ("matplotlib", "scipy.signal", "pandas", "sklearn", "requests")
print("imported:", [name for name in names if name in sys.modules])
from lightning_utilities.core.imports import RequirementCache, package_available
from torchmetrics.utilities.imports import _SCIPY_AVAILABLE
assert _SCIPY_AVAILABLE and package_available("scipy") and RequirementCache("matplotlib"), "they are there"
"""


@pytest.mark.slow
def test_a_cell_imports_what_it_uses(tmp_path):
    data = f"paths.data={tmp_path}/data"
    build(compose(["model=lavo", "task=lra/listops", "budget=smoke", data])).task.prepare(no_progress)
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)}
    words = [sys.executable, "-c", CELL, data, f"paths.outputs={tmp_path}", f"paths.records={tmp_path}"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported: []", done.stdout


# each phase makes and frees 200 MiB in tensors of 1 MiB
PHASES = """
import torch
from harness.records.machine import keep_freed_memory
from harness.records.provenance import resident_mb
from harness.training.evaluate import PeakMemory

def work():
    tensors = [torch.ones(2**18) for _ in range(200)]

keep_freed_memory()
memory = PeakMemory(torch.device("cpu"))
base = resident_mb()
work()
kept = resident_mb() - base
with memory.of_pass() as peak:
    begun = resident_mb() - base
    work()
    within = resident_mb() - base
    of_pass = peak() - base
print(kept, begun, within, of_pass, resident_mb() - base)
"""


@pytest.mark.slow  # imports Lightning
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_an_evaluation_neither_inherits_nor_leaves_freed_memory():
    done = subprocess.run([sys.executable, "-c", PHASES], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    kept, begun, within, of_pass, left = map(float, done.stdout.split())
    assert min(kept, within, of_pass) > 190, "within a phase it is kept"
    assert max(begun, left) < 30, "between two phases it is returned"
    assert of_pass < 230, "the peak of a pass is its own"
