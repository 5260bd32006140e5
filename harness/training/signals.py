"""Signals that ask a run to stop. They are only noted: a run stops between two updates, once everything is saved.

SIGINT (Ctrl-C), SIGTERM (scancel) and SIGHUP (a terminal that was closed) end the run. SIGUSR2 is what submitit has
SLURM send before a time limit: its handler, which queues the job again, is called once the run is saved. A preemption
comes as either.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)
SCHEDULER = signal.SIGUSR2
STOPPED = 128  # exit statuses from here on mean that a signal ended the run
REQUEUED = ("timeout", "preempted")  # states of a run whose job is queued again


@dataclass
class StopSignal:
    number: int | None = None  # the signal that was received


@contextlib.contextmanager
def catch_stop_signals() -> Iterator[StopSignal]:
    """Note signals within this context; a second one that ends the run ends the process at once.

    Under nohup SIGHUP is ignored, as it was before.
    """
    stop_signal = StopSignal()

    def note(number: int, _frame: Any) -> None:
        # a signal that ends the job for good wins over one that queues it again
        if stop_signal.number in (None, SCHEDULER):
            stop_signal.number = number
        if number != SCHEDULER:
            signal.signal(number, signal.SIG_DFL)

    under_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    before = {number: signal.signal(number, note) for number in NUMBERS if number != signal.SIGHUP or not under_nohup}
    try:
        yield stop_signal
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_status(number: int) -> str:
    """What a signal means for a run: `timeout` or `preempted` if the job is queued again, else `interrupted`."""
    if not will_requeue(number):
        return "interrupted"
    # submitit's rule, whose count of time-outs decides whether the job is queued again
    job = getattr(signal.getsignal(SCHEDULER), "__self__", None)
    return "timeout" if job is not None and job.has_timed_out() else "preempted"


def will_requeue(number: int) -> bool:
    """Whether the scheduler sent this signal to a job that it will queue again.

    SLURM sends SIGTERM before a preemption and to a cancelled job; the cancelled one is no longer running.
    """
    if number != signal.SIGTERM or not callable(signal.getsignal(SCHEDULER)) or "SLURM_JOB_ID" not in os.environ:
        return number == SCHEDULER
    try:
        squeue = subprocess.run(
            ["squeue", "--noheader", "--format=%T", f"--jobs={os.environ['SLURM_JOB_ID']}"],
            capture_output=True, text=True, timeout=20,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return squeue.stdout.strip() == "RUNNING"


def requeue() -> None:
    """Call the scheduler's handler, which queues the job again and ends this process; nothing happens without one.

    Raises submitit's UncompletedJobError if the job was queued again too often.
    """
    handler = signal.getsignal(SCHEDULER)
    if callable(handler):
        handler(SCHEDULER, None)
