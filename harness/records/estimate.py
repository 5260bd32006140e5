"""Estimates the duration of a cell from records of similar cells, or from the published scale of its table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.config.cell import Cell

MEASURED, PUBLISHED = "on one device like the measured ones", "on one GPU of the table's scale"


@dataclass(frozen=True)
class Estimate:
    seconds: float
    source: str
    basis: str  # MEASURED or PUBLISHED


def estimate(cell: Cell, records: Sequence[dict[str, Any]], gpu_hours: float | None = None) -> Estimate | None:
    """The duration of a cell from the best source.

    Sources are, in this order: a finished cell that differs only in the seed; another model on the same task, protocol
    and budget, scaled by steps; `gpu_hours`, the published scale.
    """
    config = cell.config
    done = [entries for entries in records if entries["status"] == "done" and entries["steps"]]
    for entries in done:
        if all(entries["config"].get(key) == config[key] for key in config if key != "seed"):
            return Estimate(entries["wall_s"], f"seed {entries['cell']['seed']} on {device(entries)}", MEASURED)
    shared = ("task", "protocol", "budget")
    for entries in done:
        if all(entries["cell"][key] == getattr(cell, key) for key in shared):
            seconds = entries["wall_s"] / entries["steps"] * config["train"]["max_steps"]
            return Estimate(seconds, f"{entries['cell']['model']} on {device(entries)}", MEASURED)
    if gpu_hours is not None:
        return Estimate(gpu_hours * 3600, "the table's scale, GPU-hours", PUBLISHED)
    return None


def device(entries: dict[str, Any]) -> str:
    return entries["hardware"]["gpu"] or entries["hardware"]["cpu"]
