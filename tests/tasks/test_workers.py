"""Processes that make data end with the command that began them, also when it is killed before they have begun. Work
is divided between them and the command.
"""

import functools
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tasks.workers import divided

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


def with_another_process(folder, job):
    """The job and the process that does it; the command does nothing before the other process has begun."""
    (folder / f"{os.getpid()}").touch()
    ends = time.monotonic() + 60
    while multiprocessing.parent_process() is None and len(list(folder.iterdir())) < 2 and time.monotonic() < ends:
        time.sleep(0.01)
    return job, os.getpid()


def test_work_is_divided_and_its_results_are_in_order(tmp_path):
    finished = []
    results = divided(functools.partial(with_another_process, tmp_path), range(9), 1, finished.append)
    assert [job for job, _ in results] == list(range(9)) and sorted(finished) == sorted(results)
    assert len({process for _, process in results}) == 2
    assert divided(abs, [-2, 1], 0) == [2, 1]


def refuse_three(job):
    if job == 3:
        raise ValueError("three")
    return job


@pytest.mark.parametrize("last", [3, 9])
def test_an_error_in_any_process_is_raised(last):
    with pytest.raises(ValueError, match="three"):
        divided(refuse_three, range(last + 1), 1)
