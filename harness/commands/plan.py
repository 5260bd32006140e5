"""do=plan: the cells of a command and their states; runs nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig

from harness.config.sweep import Command, PlannedCell, expand_all
from harness.launch.cell_state import state_of
from harness.launch.queue import Queue
from harness.progress import clock
from harness.records.collect import load_records


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    return run_all([Command(cfg, tuple(overrides))])


def run_all(commands: Sequence[Command], place: str = "") -> int:
    """The grid of all commands together; wherever they are to run."""
    from rich.console import Console
    from rich.table import Table

    plan, cfg, queue = expand_all(commands), commands[0].cfg, Queue()
    earlier = load_records(cfg.paths.records)
    table = Table("cell", "state", "estimated time", "from", box=None, pad_edge=False)
    states, left, unknown = [], {MEASURED: 0.0, PUBLISHED: 0.0}, 0
    for planned in plan.cells:
        state = state_of(planned.cell, cfg, queue).name
        states.append(state)
        found = None if state == "done" else estimate(planned, earlier)
        if found is not None:
            left[found.of] += found.seconds
        unknown += state != "done" and found is None
        table.add_row(str(planned.cell), state, clock(found.seconds) if found else "", found.source if found else "")
    Console(width=None if Console().is_terminal else 160, highlight=False).print(table)
    print(f"cells: {len(states)}, " + ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))
    for of, seconds in left.items():
        if seconds:
            print(f"to do: about {clock(seconds)} {of}")
    if unknown:
        print(f"of unknown cost: {unknown}; the first one that ends tells")
    for name, why in plan.absent.items():
        print(f"left out: {name} ({why})")
    return 0


MEASURED, PUBLISHED = "on one device of those that were measured", "on one GPU of the table's scale"


@dataclass(frozen=True)
class Estimate:
    seconds: float
    source: str
    of: str  # MEASURED or PUBLISHED


def estimate(planned: PlannedCell, earlier: Sequence[dict[str, Any]]) -> Estimate | None:
    """What a cell may take, and by whom that is known: a finished one that differs in its seed alone; else, for as many
    steps, another model's in the same task, protocol and budget; else the scale that the table's authors had."""
    config = planned.cell.config
    done = [entries for entries in earlier if entries["status"] == "done" and entries["steps"]]
    for entries in done:
        if all(entries["config"].get(key) == config[key] for key in config if key != "seed"):
            return Estimate(entries["wall_s"], f"seed {entries['cell']['seed']} on {device(entries)}", MEASURED)
    place = ("task", "protocol", "budget")
    for entries in done:
        if all(entries["cell"][key] == getattr(planned.cell, key) for key in place):
            seconds = entries["wall_s"] / entries["steps"] * config["train"]["max_steps"]
            return Estimate(seconds, f"{entries['cell']['model']} on {device(entries)}", MEASURED)
    if planned.gpu_hours is not None:
        return Estimate(planned.gpu_hours * 3600, "the table's scale, GPU-hours", PUBLISHED)
    return None


def device(entries: dict[str, Any]) -> str:
    return entries["hardware"]["gpu"] or entries["hardware"]["cpu"]
