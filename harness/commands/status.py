"""do=status: the state of every run below paths.outputs and paths.records: queued, running, dead, failed, done, ...

`model=`, `task=`, `protocol=`, `budget=` and `seed=` narrow it to the runs with these names, `table=` to the cells of a
table.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from harness.commands.narrow import meant
from harness.config.cell import Cell
from harness.errors import one_line
from harness.launch.cell_state import CellState, cell_state_at, last_log_lines
from harness.launch.queue import JOB_FILE, Queue
from harness.records.collect import valid_records
from harness.training.run_cell import summary


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    from rich.console import Console
    from rich.table import Table

    root, queue = Path(cfg.paths.outputs) / "cells", Queue()
    runs: dict[str, dict[str, Any] | None] = {}  # path below the root -> the entries of its record
    for entries in valid_records(cfg.paths.records)[0]:
        runs[Cell(entries["cell"]["id"], entries["config"]).path.as_posix()] = entries
    for file in ("heartbeat.json", JOB_FILE):
        for path in root.rglob(file):
            runs.setdefault(path.parent.relative_to(root).as_posix(), None)
    if not runs:
        print("no run yet: python run.py model=lavo task=lra/listops budget=smoke")
        return 0
    runs = {name: runs[name] for name in meant(runs, cfg, overrides)}
    if not runs:
        print(f"no run of {' '.join(overrides)} yet")
        return 0
    table = Table("run", "state", "", box=None, pad_edge=False)
    states, dead = [], []
    for name, entries in sorted(runs.items()):
        state = current_state(entries, Path(cfg.paths.records) / f"{name}.json", root / name, queue)
        states.append(state.name)
        table.add_row(name, state.name, state.detail)
        if state.name == "dead":
            dead.append(root / name)
    Console(width=None if Console().is_terminal else 200, highlight=False).print(table)
    for run_folder in dead:
        print(f"\ndead: {run_folder}, its last log lines:")
        for line in last_log_lines(run_folder):
            print(f"  {line[:160]}")
    print(", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))
    return 0


def current_state(entries: dict[str, Any] | None, record_path: Path, run_folder: Path, queue: Queue) -> CellState:
    """The state of a run; where its record decides, the detail is the record's summary or error."""
    state = cell_state_at(record_path, run_folder, queue)
    if not state.recorded or entries is None:
        return state
    if entries["status"] == "done":
        return CellState("done", summary(entries))
    return CellState(entries["status"], one_line((entries["error"] or {"message": ""})["message"])[:160])
