"""What has become of a cell: its record, or what its run folder and the scheduler have said since."""

from dataclasses import dataclass
from math import inf
from pathlib import Path

from omegaconf import DictConfig

from harness.config.cell import Cell
from harness.launch.queue import GONE, Queue, submission
from harness.records import record
from harness.records.run_directory import ENDED, heartbeat
from harness.training.signals import REQUEUED

UNDECIDED = ("queued", "running", *REQUEUED, "interrupted", "dead")  # a new attempt is under way, or was


@dataclass(frozen=True)
class State:
    name: str  # missing, one of UNDECIDED, or a record's status
    detail: str = ""
    at: float = inf  # a record that is younger than this (time.time()) tells more
    at_work: bool = False  # it runs, or a job waits to run it
    recorded: bool = False


def state_of(cell: Cell, cfg: DictConfig, queue: Queue) -> State:
    return cell_state_at(cell.record_path(cfg), cell.folder(cfg), queue)


def cell_state_at(path: Path, folder: Path, queue: Queue) -> State:
    """By a cell's record, if there is one, and its run folder."""
    found = run_state(folder, queue)
    if not path.exists():
        return found or State("missing")
    again = found is not None and found.name in UNDECIDED and found.at > path.stat().st_mtime
    return found if again else State(record.read(path)["status"], recorded=True)


def run_state(folder: Path, queue: Queue) -> State | None:
    """State by heartbeat and job: dead if it says running, nobody holds the folder and no job waits to go on."""
    beat, job = heartbeat(folder), submission(folder)
    waits = queue.state(job) if job else GONE
    if job and (beat is None or beat["time"] < job.time):
        if waits == GONE:
            return State("dead", f"job {job.job} ended before its run began", job.time)
        said = f"job {job.job}, {(waits or 'squeue is not here to ask').lower()}"
        return State("queued", said, job.time, at_work=True)
    if beat is None:
        return None
    detail = f"step {beat['step']}/{beat['steps']}, heard {beat['age_s']:.0f} s ago from {beat['host']}"
    if beat["state"] in REQUEUED or (beat["state"] == "interrupted" and waits == "PENDING"):
        goes_on = "the same command goes on" if waits == GONE else f"job {job.job} goes on"
        return State(beat["state"], f"saved at {detail}; {goes_on}", beat["time"], at_work=waits != GONE)
    if beat["state"] in ENDED:
        return State(beat["state"], detail, beat["time"])
    if beat["alive"]:
        return State("running", f"{beat['state']}, {detail}" if beat["state"] != "running" else detail, at_work=True)
    if waits == "PENDING":
        return State("queued", f"killed at {detail}; job {job.job} goes on", beat["time"], at_work=True)
    return State("dead", f"{detail}; the same command resumes it", beat["time"])


def last_words(folder: Path) -> list[str]:
    """What a run said last, and the job that it was part of."""
    job = submission(folder)
    try:
        lines = (folder / "log.txt").read_text(encoding="utf-8").splitlines()[-1:]
    except OSError:
        lines = []
    return [*lines, *(job.last_lines if job else ())]
