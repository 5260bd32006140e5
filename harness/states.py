"""What has become of a cell: its record, else its run folder's heartbeat."""

from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from harness import record
from harness.cell import Cell
from harness.runfolder import heartbeat

ENDED = ("interrupted", "refused", "done")


@dataclass(frozen=True)
class State:
    name: str  # missing, running, dead, interrupted, or a record's status
    detail: str = ""


def state_of(cell: Cell, cfg: DictConfig) -> State:
    path = cell.record_path(cfg)
    if path.exists():
        return State(record.read(path)["status"])
    return state_of_folder(cell.folder(cfg)) or State("missing")


def state_of_folder(folder: Path) -> State | None:
    """State by heartbeat alone: dead if it says running and nobody holds the folder."""
    beat = heartbeat(folder)
    if beat is None:
        return None
    detail = f"step {beat['step']}/{beat['steps']}, heard {beat['age_s']:.0f} s ago from {beat['host']}"
    if beat["state"] in ENDED:
        return State(beat["state"], detail)
    if beat["alive"]:
        return State("running", f"{beat['state']}, {detail}" if beat["state"] != "running" else detail)
    return State("dead", f"{detail}; the same command resumes it")


def last_line(folder: Path) -> str:
    try:
        lines = (folder / "log.txt").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
