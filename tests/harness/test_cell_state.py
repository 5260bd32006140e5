"""The state of a cell, from its record, its run folder and its job, and the workers that take cell after cell.

A cell that does not end well takes no other with it.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from unittest.mock import Mock

import pytest

from harness.config.compose import compose
from harness.config.places import ROOT
from harness.config.sweep import compose_commands, expand_all
from harness.launch import local, serialized_cell
from harness.launch.cell_state import cell_state, last_log_lines
from harness.launch.queue import GONE, LOCAL, SLURM, Queue, Submission
from harness.records import record
from harness.records.ownership import DEAD_AFTER_S
from harness.records.run_directory import RunDirectory
from harness.training.checkpoints.dependency import Dependency
from harness.training.process import StopSignal
from tests.helpers.cells import request_of
from tests.helpers.places import below


class FixedQueue:
    """Every job is in the same state."""

    def __init__(self, job_state):
        self.job_state = job_state

    def state(self, submission):
        return self.job_state


class Attempt:
    """A cell's record and run folder. `at` is seconds before the test began."""

    def __init__(self, root):
        self.now = time.time()
        self.path, self.folder = root / "record.json", RunDirectory(root / "run")

    def state(self, job_state=GONE):
        return cell_state(self.path, self.folder.path, FixedQueue(job_state))

    def submitted(self, at=0.0):
        Submission(SLURM, "12_3", str(self.folder.path / "job.log"), "login", self.now - at).write(self.folder.path)

    def beat(self, state, *, held=False, at=0.0):
        self.folder.acquire()
        self.folder.ownership.beat(state, step=3, steps=12, force=True)
        path = self.folder.path / "heartbeat.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"time": self.now - at}))
        if not held:
            self.folder.ownership.release()

    def record(self, status, at=0.0):
        self.path.write_text(json.dumps({"status": status}))
        os.utime(self.path, (self.now - at, self.now - at))


@pytest.fixture
def attempt(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "validate", lambda entries: None)  # records here hold only their status
    attempt = Attempt(tmp_path)
    yield attempt
    attempt.folder.ownership.release()


GOES_ON, NOT_BEGUN = "the same command resumes it", "before its run began"
# events in their order, each with its age in seconds; the state of the job; the state of the cell, and its detail
STATES = [
    ("", GONE, "missing", ""),
    ("submitted", "PENDING", "queued, active", "job 12_3, pending"),
    ("submitted", "RUNNING", "queued, active", "job 12_3, running"),
    ("submitted", None, "queued, active", "job 12_3, squeue is not available here"),
    ("submitted", GONE, "dead", NOT_BEGUN),
    ("interrupted 20, submitted 10", "PENDING", "queued, active", ""),  # a new job replaces an interrupted run
    ("interrupted 20, submitted 10", GONE, "dead", ""),
    ("submitted 10, interrupted", "PENDING", "interrupted, active", ""),
    ("submitted 10, running held", GONE, "running, active", ""),
    ("preparing_data held", GONE, "running, active", "preparing data, step 3/12"),
    # no process holds the run, whatever SLURM says
    ("submitted 10, running", "RUNNING", "dead", GOES_ON),
    ("submitted 10, running", "PENDING", "queued, active", "killed at step 3/12"),
    # requeued, it is active as long as its job is
    ("submitted 10, timeout", "PENDING", "timeout, active", "; job 12_3 resumes it"),
    ("submitted 10, preempted", None, "preempted, active", "; job 12_3 resumes it"),
    ("submitted 10, timeout", GONE, "timeout", f"; {GOES_ON}"),
    ("preempted", GONE, "preempted", ""),
    # the heart beats once after the record is written
    *((f"submitted 20, {status}, record {status} 1", GONE, f"{status}, recorded", "")
      for status in ("done", "oom")),
    # as harness.training.run_cell leaves a job that was queued too often: the last heartbeat, then the record
    ("submitted 20, timeout 1, record timeout", GONE, "timeout, recorded", ""),
    # a new attempt overrides an old failure, and a record an older attempt
    ("record failed 30, submitted 20", "PENDING", "queued, active", ""),
    ("record failed 30, submitted 20, running held 10", "RUNNING", "running, active", ""),
    ("record failed 30, submitted 20, running 10", GONE, "dead", ""),
    ("record failed 30, submitted 20, interrupted 5", GONE, "interrupted", ""),
    ("submitted 20, record done 10", "PENDING", "done, recorded", ""),
    ("submitted 20, record done 10, interrupted 15", GONE, "done, recorded", ""),
]  # fmt: skip


@pytest.mark.parametrize(("events", "job_state", "expected", "detail"), STATES)
def test_states(attempt, events, job_state, expected, detail):
    for words in (event.split() for event in filter(None, events.split(", "))):
        at = float(words.pop()) if words[-1].isdigit() else 0.0
        if words[0] == "submitted":
            attempt.submitted(at)
        elif words[0] == "record":
            attempt.record(words[1], at)
        else:
            attempt.beat(words[0].replace("_", " "), held="held" in words, at=at)
    state = attempt.state(job_state)
    marks = [mark for mark in ("active", "recorded") if getattr(state, mark)]
    assert ", ".join([state.name, *marks]) == expected and detail in state.detail


@pytest.mark.parametrize(("age", "name"), [(0.0, "running"), (2 * DEAD_AFTER_S, "dead")])
def test_a_run_on_another_host_is_dead_without_heartbeats(attempt, age, name):
    attempt.beat("running", at=age)
    path = attempt.folder.path / "heartbeat.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"host": f"not-{socket.gethostname()}"}))
    assert attempt.state().name == name


def test_the_last_log_lines_are_the_run_s_and_its_job_s(attempt):
    attempt.folder.acquire()
    assert last_log_lines(attempt.folder.path) == []
    attempt.folder.append_log("train 2/12")
    attempt.folder.append_log("train 3/12")
    attempt.submitted()
    assert last_log_lines(attempt.folder.path) == ["train 3/12"]
    (attempt.folder.path / "job.log").write_text("one\ntwo\nthree\nKilled\n")
    assert last_log_lines(attempt.folder.path) == ["train 3/12", "two", "three", "Killed"]


def process(pid, host=None):
    return Submission(LOCAL, str(pid), "", host or socket.gethostname(), time.time())


def test_a_job_of_this_machine_is_its_process():
    job = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)", "submitit"])
    try:
        assert Queue().state(process(job.pid)) == "RUNNING", "also right after exec, when its command line is empty"
    finally:
        job.kill()
        os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)
    assert Queue().state(process(job.pid)) == GONE, "a zombie"
    job.wait()
    assert Queue().state(process(job.pid)) == GONE
    assert Queue().state(process(os.getpid())) == GONE, "another program that was given the number"
    assert Queue().state(process(os.getpid(), "elsewhere")) is None


@pytest.fixture
def squeue(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def says(text, status=0):
        script = tmp_path / "squeue"
        script.write_text(f"#!/bin/sh\necho asked >> {tmp_path}/asked\nprintf '{text}'\nexit {status}\n")
        script.chmod(0o755)
        return tmp_path / "asked"

    return says


def slurm(job):
    return Submission(SLURM, job, "", "login", time.time())


def test_squeue_is_called_once(squeue):
    asked = squeue("12_3|PENDING\\n13|RUNNING\\n")
    queue = Queue()
    assert [queue.state(slurm(job)) for job in ("12_3", "13", "12_4")] == ["PENDING", "RUNNING", GONE]
    assert asked.read_text() == "asked\n"


def test_no_state_where_squeue_fails_or_is_missing(squeue, monkeypatch, tmp_path):
    squeue("", status=1)
    assert Queue().state(slurm("13")) is None
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert Queue().state(slurm("13")) is None


RECORDS = ROOT / "results" / "records"


@pytest.fixture
def started(monkeypatch):
    """The processes that workers start."""
    processes, popen = [], subprocess.Popen

    def start(*arguments, **settings):
        processes.append(popen(*arguments, **settings))
        return processes[-1]

    monkeypatch.setattr(local.subprocess, "Popen", start)
    return processes


@pytest.fixture
def done(tmp_path):
    """Files of cells whose records are committed: a worker skips them in a moment."""
    typed = ("model=vanilla", "task=probe/recall", "budget=reduced", "task.pattern=causal_self")
    typed = (*typed, f"paths.records={RECORDS}", f"paths.outputs={tmp_path}")
    planned = expand_all(compose_commands([[*typed, f"seed={seed}"] for seed in (1, 2)])).cells
    return [serialized_cell.write(tmp_path / f"{cell.cell.seed}.yaml", request_of(cell.cfg)) for cell in planned]


def waiting(done, path):
    """A cell that cannot run: its dependency has no record."""
    cfg = serialized_cell.read(*done).cfg
    cfg.seed, cfg.paths.records = 9, str(path.parent / "none")
    places = {"record": str(path.parent / "none.json"), "run_dir": str(path.parent / "none")}
    missing = Dependency(id="0" * 16, name="another cell", **places)
    return serialized_cell.write(path, request_of(cfg, depends_on=[missing]))


@pytest.mark.slow
def test_a_worker_goes_on_until_a_cell_does_not_end_well(tmp_path, done, started):
    cells = [done[0], waiting(done[0], tmp_path / "waiting.yaml"), done[1]]
    results = list(local.run_parallel(cells, 1, StopSignal()))
    assert [(result.state, result.code) for result in results] == [("skipped", 0), ("waiting", 2), ("skipped", 0)]
    assert len(started) == 2 and all(process.returncode is not None for process in started), "none is left behind"


@pytest.mark.slow
def test_a_worker_that_was_killed_between_two_cells_is_replaced(done, started):
    worker = local.Worker(None, 1)
    for cell in done[:2]:
        worker.run(cell)
        while (status := worker.poll()) is None:
            time.sleep(0.01)
        assert status == 0
        os.kill(worker.process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, worker.process.pid, os.WEXITED | os.WNOWAIT)
    worker.end()
    assert len(started) == 2


def test_a_cell_of_several_devices_has_a_process_of_its_own(done, monkeypatch):
    """Lightning repeats the command for each device, so the command names the cell."""
    start = Mock(return_value=Mock(stdout=None))
    monkeypatch.setattr(local.subprocess, "Popen", start)
    local.Worker(None, 1, devices=2).run(done[0])
    assert [call.args[0][3] for call in start.call_args_list] == [str(done[0].path)]


SAME = ("metrics", "weights_sha256", "tested_weights_sha256", "steps", "tokens", "examples", "baseline", "data", "cell")


@pytest.mark.slow
def test_a_cell_after_others_in_one_process_has_the_bits_of_a_cell_alone(tmp_path):
    """The first one draws random numbers, sets another number of threads, and asks for deterministic algorithms."""
    common = ["task=lra/listops", "budget=smoke", f"paths.data={tmp_path}/data"]
    first = ["model=lavo", "seed=3", "resources.cpus=2", "trainer=cpu", "+trainer.deterministic=true"]
    second = ["model=local", "seed=1", "backbone.dropout=0.1", "trainer=cpu"]
    records = {}
    for name, sweep in (("after", [first, second]), ("alone", [second])):
        cells = []
        for number, typed in enumerate(sweep):
            typed = [*typed, *common]
            cfg = compose([*typed, *below(tmp_path / name, typed)])
            (tmp_path / name).mkdir(exist_ok=True)
            cells.append(serialized_cell.write(tmp_path / name / f"{number}.yaml", request_of(cfg, typed)))
        results = list(local.run_parallel(cells, 1, StopSignal()))
        assert [result.state for result in results] == ["done"] * len(sweep), results
        (path,) = (tmp_path / name / "results").rglob("local-s1-*.json")
        records[name] = record.read(path)
        beats = (tmp_path / name / "outputs").rglob("heartbeat.json")
        assert len({json.loads(beat.read_text())["pid"] for beat in beats}) == 1, "one process ran them"
    after, alone = ({key: entries[key] for key in SAME} for entries in records.values())
    assert after == alone
