"""The state of a cell, from its record, its run folder and the state of its job."""

import json
import os
import socket
import subprocess
import sys
import time

import pytest

from harness.launch.cell_state import cell_state_at, last_log_lines
from harness.launch.queue import GONE, LOCAL, SLURM, Queue, Submission
from harness.records import record
from harness.records.ownership import DEAD_AFTER_S
from harness.records.run_directory import RunDirectory


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
        return cell_state_at(self.path, self.folder.path, FixedQueue(job_state))

    def submitted(self, at=0.0):
        Submission(SLURM, "12_3", str(self.folder.path / "job.log"), "login", self.now - at).write(self.folder.path)

    def beat(self, state, *, held=False, at=0.0):
        self.folder.acquire()
        self.folder.write_heartbeat(state, step=3, steps=12, force=True)
        path = self.folder.path / "heartbeat.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"time": self.now - at}))
        if not held:
            self.folder.release()

    def record(self, status, at=0.0):
        self.path.write_text(json.dumps({"status": status}))
        os.utime(self.path, (self.now - at, self.now - at))


@pytest.fixture
def attempt(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "validate", lambda entries: None)  # records here hold only their status
    attempt = Attempt(tmp_path)
    yield attempt
    attempt.folder.release()


def summary(state):
    return state.name, state.active, state.recorded


def test_nothing_is_missing(attempt):
    assert summary(attempt.state()) == ("missing", False, False)


@pytest.mark.parametrize("job_state", ["PENDING", "RUNNING", None])
def test_a_job_that_has_not_started_its_cell_is_queued(attempt, job_state):
    attempt.submitted()
    state = attempt.state(job_state)
    assert summary(state) == ("queued", True, False)
    assert state.detail == f"job 12_3, {job_state.lower() if job_state else 'squeue is not available here'}"


def test_a_job_that_ended_before_its_run_began_is_dead(attempt):
    attempt.submitted()
    state = attempt.state(GONE)
    assert summary(state) == ("dead", False, False) and "before its run began" in state.detail


def test_a_new_job_replaces_an_interrupted_run(attempt):
    attempt.beat("interrupted", at=20)
    attempt.submitted(at=10)
    assert attempt.state("PENDING").name == "queued" and attempt.state(GONE).name == "dead"


@pytest.mark.parametrize("job_state", ["RUNNING", GONE, None])
def test_a_held_folder_is_running(attempt, job_state):
    attempt.submitted(at=10)
    attempt.beat("running", held=True)
    assert summary(attempt.state(job_state)) == ("running", True, False)


def test_the_phase_of_a_run_is_shown(attempt):
    attempt.beat("preparing data", held=True)
    assert attempt.state().name == "running" and attempt.state().detail.startswith("preparing data, step 3/12")


@pytest.mark.parametrize(("age", "name"), [(0.0, "running"), (2 * DEAD_AFTER_S, "dead")])
def test_a_run_on_another_host_is_dead_without_heartbeats(attempt, age, name):
    attempt.beat("running", at=age)
    path = attempt.folder.path / "heartbeat.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"host": f"not-{socket.gethostname()}"}))
    assert attempt.state().name == name


@pytest.mark.parametrize("job_state", ["RUNNING", GONE, None])
def test_a_run_that_no_process_holds_is_dead_whatever_slurm_says(attempt, job_state):
    attempt.submitted(at=10)
    attempt.beat("running")
    state = attempt.state(job_state)
    assert summary(state) == ("dead", False, False) and "the same command resumes it" in state.detail


def test_a_killed_run_whose_job_waits_is_queued(attempt):
    attempt.submitted(at=10)
    attempt.beat("running")
    state = attempt.state("PENDING")
    assert summary(state) == ("queued", True, False) and state.detail.startswith("killed at step 3/12")


@pytest.mark.parametrize("name", ["timeout", "preempted"])
@pytest.mark.parametrize(
    ("job_state", "active", "resumed_by"),
    [("PENDING", True, "job 12_3"), ("RUNNING", True, "job 12_3"), (None, True, "job 12_3"), (GONE, False, "the same")],
)
def test_a_requeued_run_is_active_as_long_as_its_job_is(attempt, name, job_state, active, resumed_by):
    attempt.submitted(at=10)
    attempt.beat(name)
    state = attempt.state(job_state)
    assert summary(state) == (name, active, False) and resumed_by in state.detail.split("; ")[1]


def test_a_preempted_run_without_a_job_waits_for_the_command(attempt):
    attempt.beat("preempted")
    assert summary(attempt.state()) == ("preempted", False, False)


@pytest.mark.parametrize("status", ["done", "failed", "oom", "nan"])
def test_a_record_says_how_it_ended(attempt, status):
    attempt.submitted(at=20)
    attempt.beat(status, at=0)  # the heart beats once after the record is written
    attempt.record(status, at=1)
    assert summary(attempt.state()) == (status, False, True)


def test_a_job_that_was_queued_too_often_is_recorded(attempt):
    """As harness.training.run_cell leaves it: the last heartbeat, then the record of a time-out."""
    attempt.submitted(at=20)
    attempt.beat("timeout", at=1)
    attempt.record("timeout", at=0)
    assert summary(attempt.state(GONE)) == ("timeout", False, True)


def test_an_interrupted_run_whose_job_waits_is_active(attempt):
    attempt.submitted(at=10)
    attempt.beat("interrupted")
    assert attempt.state("PENDING").active


def test_a_new_attempt_overrides_an_old_failure(attempt):
    attempt.record("failed", at=30)
    attempt.submitted(at=20)
    assert summary(attempt.state("PENDING")) == ("queued", True, False)
    attempt.beat("running", held=True, at=10)
    assert summary(attempt.state("RUNNING")) == ("running", True, False)
    attempt.folder.release()
    assert summary(attempt.state(GONE)) == ("dead", False, False)
    attempt.beat("interrupted", at=5)
    assert summary(attempt.state(GONE)) == ("interrupted", False, False)


def test_a_record_overrides_an_older_attempt(attempt):
    attempt.submitted(at=20)
    attempt.record("done", at=10)
    assert summary(attempt.state("PENDING")) == ("done", False, True)
    attempt.beat("interrupted", at=15)
    assert summary(attempt.state(GONE)) == ("done", False, True)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"job": "1"}'])
def test_a_broken_job_file_is_ignored(attempt, text):
    attempt.folder.path.mkdir()
    (attempt.folder.path / "job.json").write_text(text)
    assert attempt.state().name == "missing"


def test_the_last_log_lines_are_the_run_s_and_its_job_s(attempt):
    attempt.folder.acquire()
    assert last_log_lines(attempt.folder.path) == []
    attempt.folder.append_log("train 2/12")
    attempt.folder.append_log("train 3/12")
    attempt.submitted()
    assert last_log_lines(attempt.folder.path) == ["train 3/12"]
    (attempt.folder.path / "job.log").write_text("one\ntwo\nthree\nKilled\n")
    assert last_log_lines(attempt.folder.path) == ["train 3/12", "two", "three", "Killed"]


def local(pid, host=None):
    return Submission(LOCAL, str(pid), "", host or socket.gethostname(), time.time())


def test_a_job_of_this_machine_is_its_process():
    program = "print(flush=True); import time; time.sleep(60)"
    job = subprocess.Popen([sys.executable, "-c", program, "submitit"], stdout=subprocess.PIPE)
    try:
        job.stdout.readline()  # it is itself now, no copy of us
        assert Queue().state(local(job.pid)) == "RUNNING"
    finally:
        job.kill()
        job.communicate()
    assert Queue().state(local(job.pid)) == GONE
    assert Queue().state(local(os.getpid())) == GONE, "another program that was given the number"
    assert Queue().state(local(os.getpid(), "elsewhere")) is None


def test_a_job_that_has_just_started_is_not_gone():
    """Right after exec, the command line of a process is empty."""
    for _ in range(20):
        job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "submitit"])
        try:
            assert Queue().state(local(job.pid)) == "RUNNING"
        finally:
            job.kill()
            job.wait()


def test_a_zombie_is_gone():
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert Queue().state(local(process.pid)) == GONE
    finally:
        process.wait()


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
