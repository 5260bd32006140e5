"""Processes that make data end with the command that began them, also when it is killed before they have begun."""

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.0, 4.0])
def test_they_do_not_outlive_a_command_that_is_killed(tmp_path, after):
    typed = ["do=prepare", "task=lra/listops", "budget=reduced", "task.workers=2", f"paths.data={tmp_path}"]
    with subprocess.Popen([sys.executable, "run.py", *typed], cwd=ROOT, stdout=subprocess.DEVNULL) as command:
        workers: list[psutil.Process] = []
        while len(workers) < 2:
            assert command.poll() is None
            children = psutil.Process(command.pid).children(recursive=True)
            workers = [child for child in children if any("spawn_main" in word for word in child.cmdline())]
            time.sleep(0.1)
        time.sleep(after)
        command.kill()
    _, alive = psutil.wait_procs(workers, timeout=60)
    for process in alive:
        process.kill()
    assert not alive
