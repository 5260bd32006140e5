"""do=plan: the cells of a command and their states; runs nothing."""

from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig

from harness.collect import load_records
from harness.progress import clock
from harness.states import state_of
from harness.sweep import Planned, expand


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    from rich.console import Console
    from rich.table import Table

    plan = expand(cfg, overrides)
    earlier = load_records(cfg.paths.records)
    table = Table("cell", "state", "estimated time", "from", box=None, pad_edge=False)
    states, seconds_left, unknown = [], 0.0, 0
    for planned in plan.cells:
        state = state_of(planned.cell, cfg).name
        states.append(state)
        seconds, source = (0.0, "") if state == "done" else estimate(planned, earlier)
        seconds_left, unknown = seconds_left + (seconds or 0.0), unknown + (seconds is None)
        table.add_row(str(planned.cell), state, clock(seconds) if seconds else "", source)
    Console(width=None if Console().is_terminal else 160, highlight=False).print(table)
    print(f"cells: {len(states)}, " + ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))
    if seconds_left:
        print(f"to do: about {clock(seconds_left)} on one such device")
    if unknown:
        print(f"of unknown cost: {unknown}; the first one that ends tells")
    for name, why in plan.absent.items():
        print(f"left out: {name} ({why})")
    return 0


def estimate(planned: Planned, earlier: Sequence[dict[str, Any]]) -> tuple[float | None, str]:
    """Seconds that a cell may take, and whose they are: of a finished one that differs in its seed alone, else of the
    table's published scale."""
    config = planned.cell.config
    for entries in earlier:
        same = all(entries["config"].get(key) == config[key] for key in config if key != "seed")
        if same and entries["status"] == "done":
            hardware = entries["hardware"]
            return entries["wall_s"], f"seed {entries['cell']['seed']} on {hardware['gpu'] or hardware['cpu']}"
    if planned.gpu_hours is not None:
        return planned.gpu_hours * 3600, "the table's scale, GPU-hours"
    return None, ""
