"""do=plan: the cells of a command, their states and their estimated time. Nothing is run."""

import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from omegaconf import DictConfig

from harness.commands.refusals import refusals
from harness.commands.tables import check_tables
from harness.config.cell import Cell, flatten
from harness.config.declared import missing_file_message, missing_files
from harness.config.sweep import Command, Plan, PlannedCell, expand_all
from harness.config.table_rows import published_hours
from harness.errors import UsageError
from harness.garbage import rare_garbage_collection
from harness.launch.cell_state import cell_state_at
from harness.launch.local import visible_gpus
from harness.launch.queue import Queue
from harness.progress import clock, late_bar
from harness.records.cache import of_command
from harness.records.collect import RecordsByName
from harness.records.estimate import MEASURED, PUBLISHED, Estimate, estimate
from harness.records.validation import TrialRecords

REFUSED = "refused"


@dataclass(frozen=True)
class PlanRow:
    """`estimate`: the time that the cell still takes; None if it is unknown, and for a cell that is done or refused.

    `refusal`: the reason why a run would refuse the cell, whose state is then REFUSED.
    """

    cell: Cell
    state: str
    estimate: Estimate | None
    refusal: str | None = None


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    return run_all([Command(cfg, tuple(overrides))])


def run_all(commands: Sequence[Command], launcher: str = "") -> int:
    """Show the cells of all commands together, for any launcher."""
    check_tables(commands)
    with rare_garbage_collection():
        with late_bar("planned") as report:
            plan = expand_all(commands, TrialRecords(), report)
        rows = plan_rows(commands, plan)
    lines = [("cell", "state", "estimated time", "from")]
    seconds_left = {MEASURED: 0.0, PUBLISHED: 0.0}
    for planned, name in zip(rows, names_of([planned.cell for planned in rows]), strict=True):
        shown = ("", "")
        if planned.estimate is not None:
            seconds_left[planned.estimate.basis] += planned.estimate.seconds
            shown = (clock(planned.estimate.seconds), planned.estimate.source)
        lines.append((name, planned.state, *shown))
    print_columns(lines)
    states = [planned.state for planned in rows]
    print(f"cells: {len(states)}, " + ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))
    for basis, seconds in seconds_left.items():
        if seconds:
            print(f"to do: about {clock(seconds)} {basis}")
    if unknown := sum(planned.state not in ("done", REFUSED) and planned.estimate is None for planned in rows):
        print(f"of unknown cost: {unknown}, until the first one has ended")
    if plan.unchosen:
        trials = [row.estimate.seconds for row in rows if row.estimate and row.cell.config["train"].get("trial")]
        later = f": about {clock(plan.unchosen * statistics.fmean(trials))}, if as long as the trials" if trials else ""
        print(f"then {plan.unchosen} more, at the learning rates that the trials choose{later}")
    for name, why in plan.absent.items():
        print(f"left out: {name} ({why})")
    for path, cfg in missing_files(planned.cfg for planned in plan.one_per_variants()).items():
        print(f"data: {missing_file_message(path, cfg)}")
    refusals = [planned.refusal for planned in rows if planned.refusal]
    for refusal in dict.fromkeys(refusals):
        print(f"{refusals.count(refusal)} refused: {refusal}", file=sys.stderr)
    return 2 if refusals else 0


def names_of(cells: Sequence[Cell]) -> list[str]:
    """The name of each cell, with the settings that tell it from other cells of this name."""
    names = [str(cell) for cell in cells]
    alike = defaultdict(list)
    for index, name in enumerate(names):
        alike[name].append(index)
    for indices in alike.values():
        settings = [flatten(cells[index].config) for index in indices] if len(indices) > 1 else []
        keys = dict.fromkeys(key for config in settings for key in config)
        differing: list[str] = []
        kinds = 1  # of cells, by the values of these settings
        for key in keys:
            with_key = len({repr([config.get(name) for name in (*differing, key)]) for config in settings})
            if with_key > kinds:
                differing, kinds = [*differing, key], with_key
        for index, config in zip(indices, settings, strict=bool(settings)):
            names[index] += "".join(f" · {key}={config.get(key)}" for key in differing)
    return names


def print_columns(lines: Sequence[Sequence[str]]) -> None:
    """Print lines with aligned columns. A table of rich takes as long for 9,000 lines as a third of their planning."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def plan_rows(commands: Sequence[Command], plan: Plan | None = None) -> list[PlanRow]:
    """The cells of all commands together. `plan`: the expanded commands, if the caller has them.

    Raises UsageError if a run would refuse all of them.
    """
    plan, cfg, queue = plan or expand_all(commands, TrialRecords()), commands[0].cfg, Queue()
    records = RecordsByName(cfg.paths.records, of_command(cfg.paths.outputs))
    states: dict[str, str] = {}
    for planned in plan.cells:
        path = planned.cell.record_path(cfg)
        states[planned.cell.id] = cell_state_at(path, planned.cell.folder(cfg), queue, records.status(path)).name
    refused = refusals(commands, [planned for planned in plan.cells if states[planned.cell.id] != "done"])
    needed = {id for planned in plan.cells for id in planned.depends_on}
    if all(planned.cell.id in refused for planned in plan.cells if planned.cell.id not in needed):
        raise UsageError(next(iter(refused.values())))
    with_gpu = trains_on_gpu(cfg)
    rows = []
    for planned in plan.cells:
        state, refusal = states[planned.cell.id], refused.get(planned.cell.id)
        is_left = state != "done" and not refusal
        like = records.like(planned.cell) if is_left else []
        remaining = estimate(planned.cell, like, hours_of(planned), with_gpu) if is_left else None
        rows.append(PlanRow(planned.cell, REFUSED if refusal else state, remaining, refusal))
    records.say_left_out()
    return rows


def trains_on_gpu(cfg: DictConfig) -> bool:
    """Whether cells of this command would train on a GPU: as it says, or else by what this machine has."""
    accelerator = cfg.trainer.accelerator
    return bool(visible_gpus()) if accelerator == "auto" else accelerator != "cpu"


def hours_of(planned: PlannedCell) -> float | None:
    """GPU-hours of a cell at the paper's scale, from a published table."""
    if planned.gpu_hours is not None or planned.cell.budget != "paper":
        return planned.gpu_hours
    return published_hours(planned.cell.task, planned.cell.protocol)
