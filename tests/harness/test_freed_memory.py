"""Freed memory is kept within a phase of a run, and returned between phases."""

import subprocess
import sys

import pytest

from harness.config.places import ROOT

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
    done = subprocess.run([sys.executable, "-c", PHASES], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    kept, begun, within, of_pass, left = map(float, done.stdout.split())
    assert min(kept, within, of_pass) > 190, "within a phase it is kept"
    assert max(begun, left) < 30, "between two phases it is returned"
    assert of_pass < 230, "the peak of a pass is its own"
