"""do=status: the state of every run below paths.outputs and paths.records: queued, running, dead, failed, done, ...

`model=`, `task=`, `protocol=`, `budget=` and `seed=` narrow it to the runs with these names, `table=` to the cells of a
table.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from harness.commands.narrow import narrow
from harness.config.cell import NAMES, path_of
from harness.errors import one_line, shown
from harness.launch.cell_state import CellState, cell_state_at, last_log_lines
from harness.launch.queue import Queue
from harness.records import record
from harness.records.collect import load_records, say_left_out
from harness.records.listing import files_below
from harness.records.ownership import HEARTBEAT
from harness.records.run_directory import JOB

Entries = dict[str, Any]


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    root, queue = Path(cfg.paths.outputs) / "cells", Queue()
    problems: list[str] = []
    runs: dict[str, Entries | None] = {
        name_of(entries): entries for entries in load_records(cfg.paths.records, problems)
    }
    for path in files_below(root, problems):
        if path.name in (HEARTBEAT, JOB):
            runs.setdefault(path.parent.relative_to(root).as_posix(), None)
    say_left_out(problems)
    if not runs:
        print("no run yet: python run.py model=lavo task=lra/listops budget=smoke")
        return 0
    names = sorted(narrow(runs, cfg, overrides))
    if not names:
        print(f"no run of {' '.join(overrides)} yet")
        return 0
    states = {name: current_state(runs[name], cfg, root / name, queue) for name in names}
    rows = [("run", "state", "")]
    rows += [(shown(name), one_line(state.name), one_line(state.detail)) for name, state in states.items()]
    width, state_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, state, detail in rows:
        print(f"{name:{width}}  {state:{state_width}}  {detail}".rstrip())
    for run_folder in (root / name for name, state in states.items() if state.name == "dead"):
        print(f"\ndead: {shown(run_folder)}, its last log lines:")
        for line in last_log_lines(run_folder):
            print(f"  {one_line(line)[:160]}")
    counts = Counter(state.name for state in states.values())
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    return 0


def name_of(entries: Entries) -> str:
    return path_of(**{key: entries["cell"][key] for key in NAMES}).as_posix()


def current_state(entries: Entries | None, cfg: DictConfig, run_folder: Path, queue: Queue) -> CellState:
    """The state of a run; where its record decides, the detail is the record's score or error."""
    record_path = Path(cfg.paths.records) / run_folder.relative_to(Path(cfg.paths.outputs) / "cells")
    file = entries["file"] if entries else record_path.with_name(f"{record_path.name}.json")
    state = cell_state_at(file, run_folder, queue, entries["status"] if entries else None)
    return CellState(state.name, record.outcome(entries)) if entries and state.recorded else state
