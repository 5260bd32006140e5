"""The drills at random moments (tests/drills) with a new, printed seed: all kinds in turn for DRILL_MINUTES."""

import os
import subprocess
import sys

import pytest

from harness.config.places import ROOT
from tests.drills.__main__ import KINDS


@pytest.mark.slow
def test_nothing_lost_nothing_wrong_nothing_stuck():
    command = [sys.executable, "-m", "tests.drills", "--minutes", os.environ.get("DRILL_MINUTES", "1")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    print(done.stdout)
    assert done.returncode == 0 and "seed " in done.stdout, done.stdout + done.stderr[-3000:]
    assert all(f"\n{kind} " in done.stdout for kind in KINDS)
