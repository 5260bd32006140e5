"""do=plan: the cells of a command, their states and the time they may take. Nothing is run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig

from harness.config.sweep import Command, PlannedCell, expand_all
from harness.launch.cell_state import cell_state
from harness.launch.queue import Queue
from harness.progress import clock
from harness.records.collect import valid_records

MEASURED, PUBLISHED = "on one device like the measured ones", "on one GPU of the table's scale"


@dataclass(frozen=True)
class Estimate:
    seconds: float
    source: str
    basis: str  # MEASURED or PUBLISHED


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    return run_all([Command(cfg, tuple(overrides))])


def run_all(commands: Sequence[Command], launcher: str = "") -> int:
    """The cells of all commands together, whatever launcher is to run them."""
    from rich.console import Console
    from rich.table import Table

    plan, cfg, queue = expand_all(commands), commands[0].cfg, Queue()
    records, _ = valid_records(cfg.paths.records)
    table = Table("cell", "state", "estimated time", "from", box=None, pad_edge=False)
    states, seconds_left, unknown = [], {MEASURED: 0.0, PUBLISHED: 0.0}, 0
    for planned in plan.cells:
        state = cell_state(planned.cell, cfg, queue).name
        states.append(state)
        found = None if state == "done" else estimate(planned, records)
        if found is not None:
            seconds_left[found.basis] += found.seconds
        unknown += state != "done" and found is None
        table.add_row(str(planned.cell), state, clock(found.seconds) if found else "", found.source if found else "")
    Console(width=None if Console().is_terminal else 160, highlight=False).print(table)
    print(f"cells: {len(states)}, " + ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))
    for basis, seconds in seconds_left.items():
        if seconds:
            print(f"to do: about {clock(seconds)} {basis}")
    if unknown:
        print(f"of unknown cost: {unknown}, until the first one has ended")
    for name, why in plan.absent.items():
        print(f"left out: {name} ({why})")
    return 0


def estimate(planned: PlannedCell, records: Sequence[dict[str, Any]]) -> Estimate | None:
    """The time that a cell may take, from the best source there is.

    First a finished cell that differs only in its seed; then, scaled by steps, another model in the same task, protocol
    and budget; then the published scale of the table.
    """
    config = planned.cell.config
    done = [entries for entries in records if entries["status"] == "done" and entries["steps"]]
    for entries in done:
        if all(entries["config"].get(key) == config[key] for key in config if key != "seed"):
            return Estimate(entries["wall_s"], f"seed {entries['cell']['seed']} on {device(entries)}", MEASURED)
    shared = ("task", "protocol", "budget")
    for entries in done:
        if all(entries["cell"][key] == getattr(planned.cell, key) for key in shared):
            seconds = entries["wall_s"] / entries["steps"] * config["train"]["max_steps"]
            return Estimate(seconds, f"{entries['cell']['model']} on {device(entries)}", MEASURED)
    if planned.gpu_hours is not None:
        return Estimate(planned.gpu_hours * 3600, "the table's scale, GPU-hours", PUBLISHED)
    return None


def device(entries: dict[str, Any]) -> str:
    return entries["hardware"]["gpu"] or entries["hardware"]["cpu"]
