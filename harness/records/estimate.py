"""Estimates the duration of a cell from records of similar cells, or from the published scale of its table."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.config.cell import Cell

MEASURED, PUBLISHED = "on one device like the measured ones", "on one GPU of the table's scale"


@dataclass(frozen=True)
class Estimate:
    seconds: float
    source: str
    basis: str  # MEASURED or PUBLISHED


def estimate(
    cell: Cell, records: Sequence[dict[str, Any]], gpu_hours: float | None = None, on_gpu: bool | None = None
) -> Estimate | None:
    """The duration of a cell from the best source.

    Sources are, in this order: a finished cell that differs only in the seed; the median of those that differ in the
    learning rate as well, of the same model, or of other models, on the same task, protocol and budget, scaled by
    steps; `gpu_hours`, the published scale. `on_gpu`: whether the cell would run on a GPU, None if that is the same for
    all records. A record from a GPU tells nothing of a CPU; one from a CPU tells how long a GPU takes at most.
    """
    done = [entries for entries in records if entries["status"] == "done" and entries["steps"]]
    if on_gpu is not None:
        alike = [entries for entries in done if bool(entries["hardware"]["gpu"]) == on_gpu]
        done = alike or (done if on_gpu else [])
    config = cell.config
    for entries in done:
        if all(entries["config"].get(key) == config[key] for key in config if key != "seed"):
            return Estimate(entries["wall_s"], f"seed {entries['cell']['seed']} on {device(entries)}", MEASURED)
    others = [
        entries
        for entries in done
        if all(entries["cell"][key] == getattr(cell, key) for key in ("task", "protocol", "budget"))
    ]
    of_model = [entries for entries in others if entries["cell"]["model"] == cell.model]
    row = _without_search(config)
    of_row = [entries for entries in of_model if _without_search(entries["config"]) == row]
    if similar := of_row or of_model or others:
        by_step = {entries["wall_s"] / entries["steps"]: entries for entries in similar}
        seconds = statistics.median_low(by_step)
        source = f"{by_step[seconds]['cell']['model']} on {device(by_step[seconds])}"
        return Estimate(seconds * config["train"]["max_steps"], source, MEASURED)
    if gpu_hours is not None:
        return Estimate(gpu_hours * 3600, "the table's scale, GPU-hours", PUBLISHED)
    return None


def _without_search(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a cell apart from its seed and from what a search for a learning rate sets."""
    optimizer = {key: value for key, value in config["train"].get("optimizer", {}).items() if key != "lr"}
    train = {key: value for key, value in config["train"].items() if key != "trial"} | {"optimizer": optimizer}
    return {key: value for key, value in config.items() if key != "seed"} | {"train": train}


def device(entries: dict[str, Any]) -> str:
    return entries["hardware"]["gpu"] or entries["hardware"]["cpu"]
