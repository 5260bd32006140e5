"""do=plan: the cells of a command, their states and the time they may take. Nothing is run."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from omegaconf import DictConfig, OmegaConf

from harness.config.cell import Cell
from harness.config.compose import file_of, options
from harness.config.data_files import missing_files, what_is_missing
from harness.config.sweep import Command, Plan, PlannedCell, expand_all, task_columns
from harness.config.table_rows import row, row_hours, runs
from harness.launch.cell_state import cell_state
from harness.launch.queue import Queue
from harness.progress import clock
from harness.records.collect import valid_records
from harness.records.estimate import MEASURED, PUBLISHED, Estimate, estimate


@dataclass(frozen=True)
class PlanRow:
    """`estimate`: of the time that is still to be spent; None where nothing tells it, and for a cell that is done."""

    cell: Cell
    state: str
    estimate: Estimate | None


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    return run_all([Command(cfg, tuple(overrides))])


def run_all(commands: Sequence[Command], launcher: str = "") -> int:
    """The cells of all commands together, whatever launcher is to run them."""
    from rich.console import Console
    from rich.table import Table

    plan = expand_all(commands)
    rows = plan_rows(commands, plan)
    table = Table("cell", "state", "estimated time", "from", box=None, pad_edge=False)
    seconds_left = {MEASURED: 0.0, PUBLISHED: 0.0}
    for one in rows:
        if one.estimate is not None:
            seconds_left[one.estimate.basis] += one.estimate.seconds
        shown = (clock(one.estimate.seconds), one.estimate.source) if one.estimate else ("", "")
        table.add_row(str(one.cell), one.state, *shown)
    Console(width=None if Console().is_terminal else 160, highlight=False, markup=False).print(table)
    states = [one.state for one in rows]
    print(f"cells: {len(states)}, " + ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))
    for basis, seconds in seconds_left.items():
        if seconds:
            print(f"to do: about {clock(seconds)} {basis}")
    if unknown := sum(one.state != "done" and one.estimate is None for one in rows):
        print(f"of unknown cost: {unknown}, until the first one has ended")
    for name, why in plan.absent.items():
        print(f"left out: {name} ({why})")
    for path, cfg in missing_files(planned.cfg for planned in plan.cells).items():
        print(f"data: {what_is_missing(path, cfg)}")
    return 0


def plan_rows(commands: Sequence[Command], plan: Plan | None = None) -> list[PlanRow]:
    """The cells of all commands together. `plan`: what they expand to, where that is known."""
    plan, cfg, queue = plan or expand_all(commands), commands[0].cfg, Queue()
    records, _ = valid_records(cfg.paths.records)
    rows = []
    for planned in plan.cells:
        state = cell_state(planned.cell, cfg, queue).name
        found = None if state == "done" else estimate(planned.cell, records, hours_of(planned))
        rows.append(PlanRow(planned.cell, state, found))
    return rows


def hours_of(planned: PlannedCell) -> float | None:
    """GPU-hours at the scale of the published table that the cell belongs to."""
    if planned.gpu_hours is not None or planned.cell.budget != "paper":
        return planned.gpu_hours
    return published_hours(planned.cell.task, planned.cell.protocol)


@functools.cache
def published_hours(task: str, protocol: str) -> float | None:
    """GPU-hours of a run of a task by the first table that has it under this protocol."""
    for name, _ in options("table"):
        table = OmegaConf.create({}) if name == "all" else OmegaConf.load(file_of("table", name))
        columns = task_columns(table).values() if table.get("gpu_hours") else ()
        rows = [row(raw, table.protocol) for raw in table.rows.values()] if columns else []
        if any(column.task == task for column in columns) and any(one.protocol == protocol for one in rows):
            return row_hours(table.gpu_hours, protocol) / runs((one.task, one.get("set", {})) for one in columns)
    return None
