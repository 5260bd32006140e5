"""What a cell is, by its record, its run folder and what the scheduler says of its job."""

import json
import os
import socket
import subprocess
import sys
import time

import pytest

from harness.launch.cell_state import cell_state_at, last_words
from harness.launch.queue import GONE, LOCAL, SLURM, Queue, Submission
from harness.records import record
from harness.records.run_directory import DEAD_AFTER_S, RunDirectory


class Asked:
    """A scheduler that says the same of every job."""

    def __init__(self, answer):
        self.answer = answer

    def state(self, submitted):
        return self.answer


class Place:
    """A cell's record and folder. `at` is seconds before the test began."""

    def __init__(self, root):
        self.now = time.time()
        self.path, self.folder = root / "record.json", RunDirectory(root / "run")

    def state(self, answer=GONE):
        return cell_state_at(self.path, self.folder.path, Asked(answer))

    def submitted(self, at=0.0):
        Submission(SLURM, "12_3", str(self.folder.path / "job.log"), "login", self.now - at).write(self.folder.path)

    def beat(self, state, *, held=False, at=0.0):
        self.folder.claim()
        self.folder.beat(state, step=3, steps=12, force=True)
        path = self.folder.path / "heartbeat.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"time": self.now - at}))
        if not held:
            self.folder.release()

    def record(self, status, at=0.0):
        self.path.write_text(json.dumps({"status": status}))
        os.utime(self.path, (self.now - at, self.now - at))


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "validate", lambda entries: None)  # records here are no more than their status
    made = Place(tmp_path)
    yield made
    made.folder.release()


def summary(state):
    return state.name, state.at_work, state.recorded


def test_nothing_is_missing(place):
    assert summary(place.state()) == ("missing", False, False)


@pytest.mark.parametrize("answer", ["PENDING", "RUNNING", None])
def test_a_job_that_has_not_come_to_its_cell_is_queued(place, answer):
    place.submitted()
    state = place.state(answer)
    assert summary(state) == ("queued", True, False)
    assert state.detail == f"job 12_3, {answer.lower() if answer else 'squeue is not here to ask'}"


def test_a_job_that_went_before_it_began_is_dead(place):
    place.submitted()
    state = place.state(GONE)
    assert summary(state) == ("dead", False, False) and "before its run began" in state.detail


def test_a_job_begins_anew_where_an_earlier_run_stopped(place):
    place.beat("interrupted", at=20)
    place.submitted(at=10)
    assert place.state("PENDING").name == "queued" and place.state(GONE).name == "dead"


@pytest.mark.parametrize("answer", ["RUNNING", GONE, None])
def test_whoever_holds_the_folder_runs(place, answer):
    place.submitted(at=10)
    place.beat("running", held=True)
    assert summary(place.state(answer)) == ("running", True, False)


def test_a_run_s_phase_is_said(place):
    place.beat("preparing data", held=True)
    assert place.state().name == "running" and place.state().detail.startswith("preparing data, step 3/12")


@pytest.mark.parametrize(("age", "name"), [(0.0, "running"), (2 * DEAD_AFTER_S, "dead")])
def test_a_run_on_another_host_lives_as_long_as_it_is_heard(place, age, name):
    place.beat("running", at=age)
    path = place.folder.path / "heartbeat.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"host": f"not-{socket.gethostname()}"}))
    assert place.state().name == name


@pytest.mark.parametrize("answer", ["RUNNING", GONE, None])
def test_a_run_that_nobody_holds_is_dead_whatever_slurm_says(place, answer):
    place.submitted(at=10)
    place.beat("running")
    state = place.state(answer)
    assert summary(state) == ("dead", False, False) and "the same command resumes it" in state.detail


def test_a_killed_run_whose_job_waits_is_queued(place):
    place.submitted(at=10)
    place.beat("running")
    state = place.state("PENDING")
    assert summary(state) == ("queued", True, False) and state.detail.startswith("killed at step 3/12")


@pytest.mark.parametrize("name", ["timeout", "preempted"])
@pytest.mark.parametrize(
    ("answer", "at_work", "who"),
    [("PENDING", True, "job 12_3"), ("RUNNING", True, "job 12_3"), (None, True, "job 12_3"), (GONE, False, "the same")],
)
def test_a_run_that_made_way_is_at_work_as_long_as_its_job_is(place, name, answer, at_work, who):
    place.submitted(at=10)
    place.beat(name)
    state = place.state(answer)
    assert summary(state) == (name, at_work, False) and f"{who}" in state.detail.split("; ")[1]


def test_a_run_without_a_job_that_made_way_goes_on_by_command(place):
    place.beat("preempted")
    assert summary(place.state()) == ("preempted", False, False)


@pytest.mark.parametrize("status", ["done", "failed", "oom", "nan"])
def test_a_record_says_how_it_ended(place, status):
    place.submitted(at=20)
    place.beat(status, at=0)  # the heart beats once after the record is written
    place.record(status, at=1)
    assert summary(place.state()) == (status, False, True)


def test_a_job_that_was_queued_too_often_is_recorded(place):
    """As harness.training.run_cell leaves it: the last heartbeat, then the record of a time-out."""
    place.submitted(at=20)
    place.beat("timeout", at=1)
    place.record("timeout", at=0)
    assert summary(place.state(GONE)) == ("timeout", False, True)


def test_an_interrupted_run_whose_job_waits_is_at_work(place):
    place.submitted(at=10)
    place.beat("interrupted")
    assert place.state("PENDING").at_work


def test_a_new_attempt_stands_above_an_old_failure(place):
    place.record("failed", at=30)
    place.submitted(at=20)
    assert summary(place.state("PENDING")) == ("queued", True, False)
    place.beat("running", held=True, at=10)
    assert summary(place.state("RUNNING")) == ("running", True, False)
    place.folder.release()
    assert summary(place.state(GONE)) == ("dead", False, False)
    place.beat("interrupted", at=5)
    assert summary(place.state(GONE)) == ("interrupted", False, False)


def test_a_record_that_is_younger_than_the_attempt_stands(place):
    place.submitted(at=20)
    place.record("done", at=10)
    assert summary(place.state("PENDING")) == ("done", False, True)
    place.beat("interrupted", at=15)
    assert summary(place.state(GONE)) == ("done", False, True)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"job": "1"}'])
def test_a_broken_job_file_is_none(place, text):
    place.folder.path.mkdir()
    (place.folder.path / "job.json").write_text(text)
    assert place.state().name == "missing"


def test_last_words_are_the_run_s_and_its_job_s(place):
    place.folder.claim()
    assert last_words(place.folder.path) == []
    place.folder.note("train 2/12")
    place.folder.note("train 3/12")
    place.submitted()
    assert last_words(place.folder.path) == ["train 3/12"]
    (place.folder.path / "job.log").write_text("one\ntwo\nthree\nKilled\n")
    assert last_words(place.folder.path) == ["train 3/12", "two", "three", "Killed"]


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


def test_a_job_of_this_machine_that_nobody_reaped_is_gone():
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


def test_slurm_is_asked_once(squeue):
    asked = squeue("12_3|PENDING\\n13|RUNNING\\n")
    queue = Queue()
    assert [queue.state(slurm(job)) for job in ("12_3", "13", "12_4")] == ["PENDING", "RUNNING", GONE]
    assert asked.read_text() == "asked\n"


def test_a_slurm_that_does_not_answer_says_nothing(squeue, monkeypatch, tmp_path):
    squeue("", status=1)
    assert Queue().state(slurm("13")) is None
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert Queue().state(slurm("13")) is None
