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
names = ("matplotlib", "scipy.signal", "pandas", "sklearn", "sympy", "torch._dynamo.utils", "torch.distributed.tensor")
print("imported:", [name for name in names if name in sys.modules])
from lightning_utilities.core.imports import RequirementCache, package_available
from torchmetrics.utilities.imports import _SCIPY_AVAILABLE
assert _SCIPY_AVAILABLE and package_available("scipy") and RequirementCache("matplotlib"), "they are there"
"""
TRACER = """
import sys
from harness.training.lean_imports import import_lean
import_lean()
import torch
from harness.training.late_tracer import LateTracer, OptimizedModule

@torch.compiler.disable
def double(x):
    return x * 2 if torch.compiler.is_compiling() else x * 3

def six(x):
    return double(x + 1) + 1

layer = torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW(layer.parameters())
layer(torch.ones(2)).sum().backward()
optimizer.step()
optimizer.zero_grad()
assert six(torch.ones(1)).item() == 7 and not isinstance(layer, OptimizedModule)
assert isinstance(torch._dynamo, LateTracer), "nothing is traced so far"

import torch._dynamo.config
assert torch._dynamo.config is sys.modules["torch._dynamo.config"] is torch._dynamo.eval_frame.config
assert not isinstance(torch._dynamo, LateTracer)
assert torch.compile(six, backend="eager")(torch.ones(1)).item() == 7, "excluded from the trace"
assert torch._dynamo.utils.counters["graph_break"] and torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2
layer(torch.ones(2)).sum().backward()
optimizer.step()
optimizer.zero_grad()
inner = torch.optim.Optimizer.zero_grad.__wrapped__
assert inner.__dynamo_disable is not inner, "the tracer excludes it now"
assert isinstance(torch.compile(layer, backend="eager"), OptimizedModule) and not isinstance(layer, OptimizedModule)
"""


@pytest.mark.slow
def test_a_cell_imports_what_it_uses(tmp_path):
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)}
    for place in ("do=prepare", f"paths.records={tmp_path}"):
        words = [sys.executable, "-c", CELL, f"paths.data={tmp_path}/data", f"paths.outputs={tmp_path}", place]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=300, env=environment)
        assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported: []", done.stdout


@pytest.mark.slow
def test_the_tracer_is_imported_once_something_is_traced():
    done = subprocess.run([sys.executable, "-c", TRACER], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
