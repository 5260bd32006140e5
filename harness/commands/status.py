"""do=status: the state of runs below paths.outputs and paths.records: queued, running, dead, failed, done, ...

What has not ended, what failed and the runs of paths.outputs are listed, the others are counted by task. `cells=true`
lists all. Words that narrow list what they leave: `model=`, `task=`, `protocol=`, `budget=` and `seed=` these runs,
`table=` the cells of a table, `state=failed,dead` these states, `since=12h` what changed since then. Without
`cells=true`, fifty runs are listed, the latest last.
"""

import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from omegaconf import DictConfig

from harness.config.cell import name_of
from harness.config.overrides import typed_values
from harness.config.places import folder_below, require_folders
from harness.config.sweep import Command, expand_all
from harness.errors import UsageError, did_you_mean, one_line, shown
from harness.launch.cell_state import UNFINISHED, CellState, cell_state, last_log_lines
from harness.launch.queue import Queue
from harness.progress import fitted, print_columns
from harness.records.cache import of_command
from harness.records.collect import TrialRecords, say_left_out, valid_summaries
from harness.records.index import Summary
from harness.records.listing import files_below
from harness.records.named import run_parts
from harness.records.ownership import HEARTBEAT
from harness.records.run_directory import JOB
from harness.records.schema import STATUSES

MOST_LISTED = 50  # runs
NARROWING = ("task", "protocol", "budget", "model", "seed")
STATES = (*UNFINISHED, *STATUSES, "refused", "invalid")
UNITS = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    root, states = folder_below(cfg.paths.outputs, "cells"), states_of(cfg, overrides)
    if states is None:
        print("no run yet: python run.py model=lavo task=lra/listops budget=smoke")
        return 0
    if not states:
        print(f"no run of {' '.join(overrides)} yet")
        return 0
    counts = Counter(state.name for state in states.values())
    typed = {key.split(".")[0] for key in typed_values(overrides)}
    every = cfg.each_cell or typed & {"status", "table", *NARROWING}
    listed = {name: state for name, state in states.items() if every or state.name != "done" or (root / name).exists()}
    is_counted = len(listed) < len(states)
    if not cfg.each_cell:
        listed = dict(list(listed.items())[-MOST_LISTED:])
    print_columns([(shown(name), one_line(state.name), one_line(state.detail)) for name, state in listed.items()])
    for run_folder in (root / name for name, state in listed.items() if state.name == "dead"):
        print(f"\ndead: {shown(run_folder)}, its last log lines:")
        for line in last_log_lines(run_folder):
            print(fitted(f"  {one_line(line)[:160]}"))
    if is_counted:
        print_columns(task_lines(states))
    note = " (cells=true lists all)" if len(listed) < len(states) else ""
    print(", ".join(f"{count} {name}" for name, count in counts.items()) + note)
    return 0


def task_lines(states: Mapping[str, CellState]) -> list[tuple[str, ...]]:
    """The number of models, runs and finished runs of each task and budget."""
    models, done = defaultdict(list), Counter[tuple[str, str]]()
    for name, state in states.items():
        parts = run_parts(name) or {}
        models[key := (parts.get("task", ""), parts.get("budget", ""))].append(parts.get("model"))
        done[key] += state.name == "done"
    lines = [(*key, f"{len(set(models[key]))}", f"{len(models[key])}", f"{done[key]}") for key in sorted(models)]
    return [("task", "budget", "models", "runs", "done"), *lines]


def states_of(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, CellState] | None:
    """{name of the run: its state} of the runs that the overrides name, the latest last; None if there is no run at
    all."""
    earliest = check_filters(cfg.status)
    root, queue = folder_below(cfg.paths.outputs, "cells"), Queue()
    problems: list[str] = []
    valid = valid_summaries(cfg.paths.records, problems, of_command(cfg.paths.outputs))
    runs: dict[str, Summary | None] = {name_of(**summary.cell): summary for summary in valid}
    files = [path for path in files_below(root, problems) if path.name in (HEARTBEAT, JOB)]
    say_left_out(problems)
    attempted = {path.parent.relative_to(root).as_posix() for path in files}
    runs |= dict.fromkeys(attempted - runs.keys())
    if not runs:  # a queued run has no folder of records yet
        require_folders(cfg.paths, typed_values(overrides), "records")
        return None
    changed = times_of(runs, files, root)
    names = sorted(narrow(runs, cfg, overrides), key=lambda name: (changed[name], name))
    names = [name for name in names if changed[name] >= earliest]
    records = Path(cfg.paths.records)
    states = {
        name: current_state(runs[name], records / f"{name}.json", root / name, queue)
        if name in attempted
        else CellState(runs[name].status, runs[name].outcome)
        for name in names
    }
    wanted = set(cfg.status.state)  # a look-up in `cfg` takes as long as a run's state
    return {name: state for name, state in states.items() if not wanted or state.name in wanted}


def narrow(names: Iterable[str], cfg: DictConfig, overrides: Sequence[str]) -> list[str]:
    """The runs, `<task>/<protocol>/<budget>/<model>-s<seed>-<id>`, with the typed names and of the typed table.

    A path that names no run is left out. Raises UsageError for a table without a cell that can run.
    """
    wanted = {key: value for key, value in typed_values(overrides).items() if key in NARROWING}.items()
    names = [name for name in names if (parts := run_parts(name)) and wanted <= parts.items()]
    if cfg.table is None:
        return names
    planned = expand_all([Command(cfg, tuple(overrides))], TrialRecords()).cells
    return [*filter({cell.cell.path.as_posix() for cell in planned}.__contains__, names)]


def as_typed(overrides: Sequence[str]) -> list[str]:
    """`task=lra/text model=lavo`: the overrides that narrow, in this order."""
    typed = typed_values(overrides)
    return [f"{key}={typed[key]}" for key in ("table", *NARROWING) if key in typed]


def check_filters(status: DictConfig) -> float:
    """The time.time() that `since` means. Raises UsageError for a state or a duration that does not exist."""
    if unknown := [str(name) for name in status.state if name not in STATES]:
        raise UsageError(f"state={unknown[0]}: {did_you_mean(unknown[0], STATES)}")
    if status.since is None:
        return 0.0
    duration = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)([mhdw])", str(status.since))
    if duration is None:
        raise UsageError(
            f"since={status.since}: a number with m, h, d or w is expected: since=30m, since=12h, since=7d"
        )
    return time.time() - float(duration[1]) * UNITS[duration[2]]


def times_of(runs: Mapping[str, Summary | None], files: Iterable[Path], root: Path) -> dict[str, float]:
    """When each run changed last: time.time() of the end of its record, or of its last heartbeat or job."""
    changed = {name: datetime.fromisoformat(run.finished).timestamp() if run else 0.0 for name, run in runs.items()}
    for path in files:
        name = path.parent.relative_to(root).as_posix()
        with suppress(OSError):  # a run that ended meanwhile, or a link to itself
            changed[name] = max(changed[name], path.stat().st_mtime)
    return changed


def current_state(summary: Summary | None, record_path: Path, run_folder: Path, queue: Queue) -> CellState:
    """The state of a run with a heartbeat or a job; where its record decides, the detail is its score or error."""
    file, status = (summary.file, summary.status) if summary else (record_path, None)
    state = cell_state(file, run_folder, queue, status)
    return CellState(state.name, summary.outcome) if summary and state.recorded else state
