"""do=status: the state of every run below paths.outputs and paths.records: queued, running, dead, failed, done, ...

`model=`, `task=`, `protocol=`, `budget=` and `seed=` narrow it to the runs with these names, `table=` to the cells of a
table.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from harness.commands.narrow import narrow
from harness.config.cell import path_of
from harness.config.places import folder_below
from harness.errors import one_line, shown
from harness.launch.cell_state import CellState, cell_state_at, last_log_lines
from harness.launch.queue import Queue
from harness.records.cache import of_command
from harness.records.collect import say_left_out, valid_summaries
from harness.records.index import Summary
from harness.records.listing import files_below
from harness.records.ownership import HEARTBEAT
from harness.records.run_directory import JOB


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    root, states = folder_below(cfg.paths.outputs, "cells"), states_of(cfg, overrides)
    if states is None:
        print("no run yet: python run.py model=lavo task=lra/listops budget=smoke")
        return 0
    if not states:
        print(f"no run of {' '.join(overrides)} yet")
        return 0
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


def states_of(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, CellState] | None:
    """{name of the run: its state} of the runs that the overrides name; None if there is no run at all."""
    root, queue = folder_below(cfg.paths.outputs, "cells"), Queue()
    problems: list[str] = []
    valid = valid_summaries(cfg.paths.records, problems, of_command(cfg.paths.outputs))
    runs: dict[str, Summary | None] = {path_of(**summary.cell).as_posix(): summary for summary in valid}
    files = [path for path in files_below(root, problems) if path.name in (HEARTBEAT, JOB)]
    say_left_out(problems)
    attempted = {path.parent.relative_to(root).as_posix() for path in files}
    runs |= dict.fromkeys(attempted - runs.keys())
    if not runs:
        return None
    records = Path(cfg.paths.records)
    return {
        name: current_state(runs[name], records / f"{name}.json", root / name, queue)
        if name in attempted
        else CellState(runs[name].status, runs[name].outcome)
        for name in sorted(narrow(runs, cfg, overrides))
    }


def current_state(summary: Summary | None, record_path: Path, run_folder: Path, queue: Queue) -> CellState:
    """The state of a run with a heartbeat or a job; where its record decides, the detail is its score or error."""
    file, status = (summary.file, summary.status) if summary else (record_path, None)
    state = cell_state_at(file, run_folder, queue, status)
    return CellState(state.name, summary.outcome) if summary and state.recorded else state
