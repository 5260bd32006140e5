"""The state of a cell, from its record or from the heartbeat and the job of a newer attempt."""

import contextlib
import os
from dataclasses import dataclass
from math import inf
from pathlib import Path

from harness.errors import one_line
from harness.launch.queue import GONE, Queue, read_submission
from harness.records import record
from harness.records.ownership import ENDED_STATES, read_heartbeat
from harness.records.run_directory import RunDirectory
from harness.training.process import REQUEUED
from tasks.regular_files import last_lines

LOG_LINES = 3  # of a job
UNFINISHED = ("queued", "running", *REQUEUED, "interrupted", "dead")  # states of an attempt without a record


@dataclass(frozen=True)
class CellState:
    name: str  # missing, a state of UNFINISHED, a record's status, or invalid: the file is no valid record
    detail: str = ""
    since: float = inf  # time.time() of the attempt's last sign of life; a later record overrides the state
    active: bool = False  # the cell runs, or a job that will run it is queued
    recorded: bool = False


def cell_state(record_path: Path, run_folder: Path, queue: Queue, status: str | None = None) -> CellState:
    """The state of the cell with this run folder and this record, which may be missing.

    `status`: the record's status, for a caller that has read it.
    """
    attempt = attempt_state(run_folder, queue)
    if status is None and not os.path.exists(record_path):
        return attempt or CellState("missing")
    if attempt is not None and attempt.name in UNFINISHED:
        begun = RunDirectory(run_folder).last_attempt() if attempt.name not in ("queued", "running") else None
        newer = attempt.since > record_path.stat().st_mtime if begun is None else not begun.ended
        if newer:
            return attempt
    if status is not None:
        return CellState(status, recorded=True)
    try:
        return CellState(record.read(record_path)["status"], recorded=True)
    except record.RecordError as error:
        return CellState("invalid", one_line(error))


def attempt_state(run_folder: Path, queue: Queue) -> CellState | None:
    """The state of the last attempt, from its heartbeat and its job; None if there was no attempt.

    An attempt is dead if its heartbeat says that it runs, but no process holds its folder and no job will resume it.
    """
    beat, job = read_heartbeat(run_folder), read_submission(run_folder)
    job_state = queue.state(job) if job else GONE
    if job and (beat is None or beat["time"] < job.time):
        if job_state == GONE:
            return CellState("dead", f"job {job.job} ended before its run began", job.time)
        detail = f"job {job.job}, {(job_state or 'squeue is not available here').lower()}"
        return CellState("queued", detail, job.time, active=True)
    if beat is None:
        return None
    detail = f"step {beat['step']}/{beat['steps']}, last heartbeat {beat['age_s']:.0f} s ago on {beat['host']}"
    if beat["state"] in REQUEUED or (beat["state"] == "interrupted" and job_state == "PENDING"):
        resumes = "the same command resumes it" if job_state == GONE else f"job {job.job} resumes it"
        return CellState(beat["state"], f"saved at {detail}; {resumes}", beat["time"], active=job_state != GONE)
    if beat["state"] in ENDED_STATES:
        return CellState(beat["state"], detail, beat["time"])
    if beat["alive"]:
        phase = "" if beat["state"] == "running" else f"{beat['state']}, "
        return CellState("running", f"{phase}{detail}", active=True)
    if job_state == "PENDING":
        return CellState("queued", f"killed at {detail}; job {job.job} resumes it", beat["time"], active=True)
    return CellState("dead", f"{detail}; the same command resumes it", beat["time"])


def last_log_lines(run_folder: Path) -> list[str]:
    """The last line of the run's log, and the last lines of its job's log."""
    job, lines = read_submission(run_folder), list[str]()
    for log, count in ((RunDirectory(run_folder).log, 1), (job and job.log, LOG_LINES)):
        with contextlib.suppress(OSError):
            lines += last_lines(log, count) if log else []
    return lines
