"""do=plan: the cells of a command and their states; runs nothing."""

from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig

from harness.collect import load_records
from harness.progress import clock
from harness.states import state_of
from harness.sweep import expand


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    from rich.console import Console
    from rich.table import Table

    plan = expand(cfg, overrides)
    earlier = load_records(cfg.paths.records)
    table = Table("cell", "state", "estimated time", "from", title=None, box=None, pad_edge=False)
    total, unknown, counts = 0.0, 0, {}
    for planned in plan.cells:
        state = state_of(planned.cell, cfg)
        counts[state.name] = counts.get(state.name, 0) + 1
        seconds, source = (None, "") if state.name == "done" else estimate(planned.cell.config, earlier)
        if state.name != "done":
            total, unknown = total + (seconds or 0.0), unknown + (seconds is None)
        table.add_row(str(planned.cell), state.name, clock(seconds) if seconds else "", source)
    console = Console(width=None if Console().is_terminal else 160, highlight=False)
    console.print(table)
    print(f"{len(plan.cells)} cells: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    todo = len(plan.cells) - counts.get("done", 0)
    if todo:
        print(
            f"to do: {clock(total)} on one such device" + (f", and {unknown} cells of unknown cost" if unknown else "")
        )
        if unknown and cfg.table is not None and cfg.budget.name.name == "paper":
            print(f"published scale: about {cfg.table.gpu_hours} GPU-hours a row (A100)")
    for name, why in plan.absent.items():
        print(f"left out: {name} ({why})")
    return 0


def estimate(config: dict[str, Any], earlier: Sequence[dict[str, Any]]) -> tuple[float | None, str]:
    """Seconds that a cell may take, by the nearest finished one: the same up to its seed, and on what."""
    for entries in earlier:
        if entries["status"] != "done":
            continue
        if all(entries["config"].get(key) == config[key] for key in config if key != "seed"):
            hardware = entries["hardware"]
            return entries["wall_s"], f"seed {entries['cell']['seed']} on {hardware['gpu'] or hardware['cpu']}"
    return None, ""
