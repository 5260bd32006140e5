"""Signals that ask a run to stop. They only leave a mark: a run stops between two updates, when all of it is saved.

SIGINT (Ctrl-C) and SIGTERM (scancel) end the run. SIGUSR2 is what submitit has SLURM send before a time limit: its
handler, which queues the job again, is called once the run is saved. A preemption comes as either.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)
SCHEDULER = signal.SIGUSR2
STOPPED = 128  # exit statuses from here on: a signal ended the run
REQUEUED = ("timeout", "preempted")  # states of a run whose job goes on later


@dataclass
class StopSignal:
    number: int | None = None  # the signal that came


@contextlib.contextmanager
def catch_stop_signals() -> Iterator[StopSignal]:
    """Signals leave a mark while this lasts; a second SIGINT or SIGTERM ends the process at once."""
    mark = StopSignal()

    def leave(number: int, _frame: Any) -> None:
        # what ends the job for good stands above what queues it again
        mark.number = number if mark.number in (None, SCHEDULER) else mark.number
        if number != SCHEDULER:
            signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, leave) for number in NUMBERS}
    try:
        yield mark
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_status(number: int) -> str:
    """What a signal means for a run: `timeout` or `preempted` if the job is to go on later, else `interrupted`."""
    if not will_requeue(number):
        return "interrupted"
    # submitit's rule, whose count of time-outs decides whether the job is queued again
    job = getattr(signal.getsignal(SCHEDULER), "__self__", None)
    return "timeout" if job is not None and job.has_timed_out() else "preempted"


def will_requeue(number: int) -> bool:
    """Whether the scheduler sent this signal to a job that it has not given up.

    SLURM warns of a preemption with SIGTERM, and ends a cancelled job with it; only the latter is no longer running.
    """
    if number != signal.SIGTERM or not callable(signal.getsignal(SCHEDULER)) or "SLURM_JOB_ID" not in os.environ:
        return number == SCHEDULER
    try:
        asked = subprocess.run(
            ["squeue", "--noheader", "--format=%T", f"--jobs={os.environ['SLURM_JOB_ID']}"],
            capture_output=True, text=True, timeout=20,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.stdout.strip() == "RUNNING"


def requeue() -> None:
    """Let the scheduler's handler do what it does: it queues the job again and ends this process.

    Raises submitit's UncompletedJobError where it will not; nothing happens where there is no such handler.
    """
    handler = signal.getsignal(SCHEDULER)
    if callable(handler):
        handler(SCHEDULER, None)
