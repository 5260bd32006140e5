"""do=status: every run this folder knows of: running, dead, failed, done."""

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from harness.cell import Cell
from harness.collect import load_records
from harness.errors import one_line
from harness.outcome import summary
from harness.states import last_line, state_of_folder


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    from rich.console import Console
    from rich.table import Table

    rows = {}
    root = Path(cfg.paths.outputs) / "cells"
    for beat in sorted(root.rglob("heartbeat.json")):
        folder = beat.parent
        state = state_of_folder(folder)
        if state is not None:
            said = f" · {last_line(folder)}" if state.name == "dead" else ""
            rows[folder.relative_to(root).as_posix()] = (state.name, state.detail + said)
    for entries in load_records(cfg.paths.records):
        name = Cell(entries["cell"]["id"], entries["config"]).path.as_posix()
        if name in rows and rows[name][0] == "running":
            continue  # again, with rerun=
        if entries["status"] == "done":
            rows[name] = ("done", summary(entries))
        else:
            error = entries["error"] or {"message": ""}
            rows[name] = (entries["status"], one_line(error["message"])[:160])
    if not rows:
        print("no run yet: python run.py model=lavo task=lra/listops budget=smoke")
        return 0
    table = Table("run", "state", "", box=None, pad_edge=False)
    for name in sorted(rows):
        table.add_row(name, *rows[name])
    Console(width=None if Console().is_terminal else 200, highlight=False).print(table)
    states = [state for state, _ in rows.values()]
    print(", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))
    return 0
