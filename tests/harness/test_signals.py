"""Signals: how a run records them, and what they mean for its job."""

import os
import signal
import subprocess
import time

import pytest

from harness.training import process
from harness.training.process import (
    NUMBERS,
    SchedulerError,
    StopSignal,
    catch_stop_signals,
    exit_status,
    requeue,
    requeue_own_job,
    stop_status,
    warned_of_limit,
    will_requeue,
)


@pytest.fixture(autouse=True)
def handlers():
    """Restore the handlers after each test."""
    outside = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield before
    for number, handler in {**before, signal.SIGHUP: outside}.items():
        signal.signal(number, handler)


@pytest.fixture
def in_a_job(monkeypatch, tmp_path):
    """Run in job 7. Gives a function that sets the answer of a command and returns the file with its arguments."""

    def set_answer(answer, status=0, command="squeue"):
        script = tmp_path / command
        script.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\necho {answer}\nexit {status}\n')
        script.chmod(0o755)
        return tmp_path / "asked"

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    return set_answer


class Scheduler:
    """What submitit binds to SIGUSR2."""

    def __init__(self, timed_out=False, refusals=0):
        self.timed_out, self.refusals, self.called = timed_out, refusals, []

    def has_timed_out(self):
        return self.timed_out

    def checkpoint_and_try_requeue(self, number, frame):
        self.called.append((number, frame))
        if len(self.called) <= self.refusals:
            raise subprocess.CalledProcessError(1, ["scontrol", "requeue", "7"])


def send(*numbers):
    for number in numbers:
        os.kill(os.getpid(), number)


def test_under_nohup_a_closed_terminal_ends_nothing():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with catch_stop_signals() as stop_signal:
        send(signal.SIGHUP)
        assert stop_signal.number is None
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_is_noted_and_handlers_come_back(handlers, number):
    with catch_stop_signals() as stop_signal:
        assert stop_signal == StopSignal(None)
        send(number)
        assert stop_signal.number == number
    assert {number: signal.getsignal(number) for number in NUMBERS} == handlers
    with pytest.raises(ValueError, match="any"), catch_stop_signals():
        raise ValueError("any")
    assert {number: signal.getsignal(number) for number in NUMBERS} == handlers


def test_a_saved_run_has_not_the_status_of_one_that_the_signal_of_a_time_limit_killed():
    assert exit_status(signal.SIGTERM) == 128 + signal.SIGTERM
    assert exit_status(signal.SIGUSR1) == exit_status(signal.SIGUSR2) == 128 + signal.SIGUSR2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_the_process(number):
    with catch_stop_signals():
        send(number)
        assert signal.getsignal(number) is signal.SIG_DFL


def test_a_scheduler_may_warn_more_than_once():
    with catch_stop_signals() as stop_signal:
        send(signal.SIGUSR2, signal.SIGUSR2)
        assert stop_signal.number == signal.SIGUSR2 and callable(signal.getsignal(signal.SIGUSR2))


@pytest.mark.parametrize(
    ("sent", "stays"),
    [
        ((signal.SIGTERM, signal.SIGUSR2), signal.SIGTERM),
        ((signal.SIGUSR2, signal.SIGTERM), signal.SIGTERM),
        ((signal.SIGUSR2, signal.SIGINT), signal.SIGINT),
        ((signal.SIGINT, signal.SIGTERM), signal.SIGINT),
    ],
)
def test_a_signal_that_ends_a_job_wins_over_one_that_queues_it_again(sent, stays):
    with catch_stop_signals() as stop_signal:
        send(*sent)
        assert stop_signal.number == stays


def test_what_a_signal_means_without_and_with_a_scheduler():
    assert stop_status(signal.SIGINT) == stop_status(signal.SIGTERM) == "interrupted"
    assert stop_status(signal.SIGUSR2) == "preempted"
    for handler, state in (
        (lambda number, frame: None, "preempted"),
        (Scheduler(timed_out=True).checkpoint_and_try_requeue, "timeout"),
        (Scheduler().checkpoint_and_try_requeue, "preempted"),
    ):
        signal.signal(signal.SIGUSR2, handler)
        assert (stop_status(signal.SIGUSR2), stop_status(signal.SIGINT)) == (state, "interrupted")


@pytest.mark.parametrize(
    ("answer", "on"), [("RUNNING", True), ("COMPLETING", False), ("CANCELLED", False), ("", False)]
)
def test_sigterm_ends_a_job_unless_slurm_still_runs_it(in_a_job, answer, on):
    asked = in_a_job(answer)
    signal.signal(signal.SIGUSR2, Scheduler().checkpoint_and_try_requeue)
    assert will_requeue(signal.SIGTERM) is on
    assert "--jobs=7" in asked.read_text()
    assert stop_status(signal.SIGTERM) == ("preempted" if on else "interrupted")


def test_slurm_is_not_asked_outside_its_jobs_nor_of_other_signals(in_a_job, monkeypatch):
    asked = in_a_job("RUNNING")
    assert not will_requeue(signal.SIGTERM), "no handler that would queue the job again"
    signal.signal(signal.SIGUSR2, Scheduler().checkpoint_and_try_requeue)
    assert not will_requeue(signal.SIGINT) and will_requeue(signal.SIGUSR2)
    monkeypatch.delenv("SLURM_JOB_ID")
    assert not will_requeue(signal.SIGTERM)
    assert not asked.exists()


def test_a_job_without_squeue_ends(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    signal.signal(signal.SIGUSR2, Scheduler().checkpoint_and_try_requeue)
    assert not will_requeue(signal.SIGTERM)


@pytest.mark.parametrize(
    ("place", "left_s", "warned"),
    [("variable", 2, True), ("squeue", 2, True), ("variable", 900, False), ("submitit", 2, False), ("", 2, False)],
)
def test_a_script_of_ones_own_is_warned_before_its_job_ends(in_a_job, monkeypatch, place, left_s, warned):
    """With half of the time that is left where that is less than the warning."""
    process.job_end.cache_clear()
    ends = int(time.time()) + left_s
    in_a_job(time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(ends)) if place == "squeue" else "N/A")
    if place in ("variable", "submitit"):
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(ends))
    if place == "submitit":
        monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    with warned_of_limit(60), catch_stop_signals() as stop_signal:
        waited = time.monotonic()
        while stop_signal.number is None and time.monotonic() - waited < (60 if warned else 1.5):
            time.sleep(0.05)
        assert stop_signal.number == (signal.SIGUSR1 if warned else None)
    assert stop_status(signal.SIGUSR1) == "timeout"
    process.job_end.cache_clear()


def test_a_script_of_ones_own_is_queued_again_by_scontrol(in_a_job, monkeypatch, tmp_path):
    asked = in_a_job("", command="scontrol")
    assert requeue_own_job() == "job 7 is queued again" and asked.read_text() == "requeue 7\n"
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho Job is pending >&2; exit 1\n")
    assert requeue_own_job() == "job 7 is not queued again: Job is pending"
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert "scontrol is not found, as in a container; outside it, scontrol requeue 7 resumes" in requeue_own_job()


@pytest.mark.parametrize("refusals", [0, 1, 3, 4])
def test_a_busy_scheduler_is_asked_again(monkeypatch, refusals):
    scheduler = Scheduler(refusals=refusals)
    monkeypatch.setattr(process, "REQUEUE_PAUSES_S", (0, 0, 0))
    requeue()  # no handler
    signal.signal(signal.SIGUSR2, scheduler.checkpoint_and_try_requeue)
    if refusals < 4:
        requeue()
        assert scheduler.called == [(signal.SIGUSR2, None)] * (refusals + 1)
        return
    with pytest.raises(SchedulerError, match=r"did not queue the job again: .*scontrol"):
        requeue()
