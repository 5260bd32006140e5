"""do=status: every run this folder knows of: queued, running, dead, failed, done."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from harness.config.cell import Cell
from harness.errors import one_line
from harness.launch.cell_state import State, cell_state_at, last_words
from harness.launch.queue import FILE as JOB
from harness.launch.queue import Queue
from harness.records.collect import load_records
from harness.training.run_cell import summary


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    from rich.console import Console
    from rich.table import Table

    root, queue = Path(cfg.paths.outputs) / "cells", Queue()
    names: dict[str, dict[str, Any] | None] = {}
    for entries in load_records(cfg.paths.records):
        names[Cell(entries["cell"]["id"], entries["config"]).path.as_posix()] = entries
    for name in ("heartbeat.json", JOB):
        for path in root.rglob(name):
            names.setdefault(path.parent.relative_to(root).as_posix(), None)
    if not names:
        print("no run yet: python run.py model=lavo task=lra/listops budget=smoke")
        return 0
    table = Table("run", "state", "", box=None, pad_edge=False)
    states, dead = [], []
    for name in sorted(names):
        state = state_now(root / name, names[name], Path(cfg.paths.records) / f"{name}.json", queue)
        states.append(state.name)
        table.add_row(name, state.name, state.detail)
        if state.name == "dead":
            dead.append(root / name)
    Console(width=None if Console().is_terminal else 200, highlight=False).print(table)
    for folder in dead:
        print(f"\ndead: {folder}, its last words:")
        for line in last_words(folder):
            print(f"  {line[:160]}")
    print(", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))
    return 0


def state_now(folder: Path, entries: dict[str, Any] | None, path: Path, queue: Queue) -> State:
    """With a record's own summary."""
    state = cell_state_at(path, folder, queue)
    if not state.recorded or entries is None:
        return state
    if entries["status"] == "done":
        return State("done", summary(entries))
    return State(entries["status"], one_line((entries["error"] or {"message": ""})["message"])[:160])
