"""do=plan: the cells of a command, their states and their estimated time. Nothing is run.

A line is a row of a table: its tasks and seeds, the state that these cells share, and their time together.
`cells=true` prints a line per cell, with the source of its estimate. `costs=true` counts what an update of each model
and task takes that is not done (harness.bench.counted).
"""

import itertools
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from harness.config.cell import Cell, flatten
from harness.config.compose import folders, names_in
from harness.config.declared import declared, missing_file, missing_file_message
from harness.config.overrides import typed_values
from harness.config.search import RATE
from harness.config.sweep import Command, Plan, PlannedCell, expand_all
from harness.config.table_files import ALL
from harness.config.table_rows import published_hours
from harness.errors import UsageError, did_you_mean
from harness.garbage import rare_garbage_collection
from harness.launch.cell_state import cell_state
from harness.launch.local import visible_gpus
from harness.launch.queue import Queue
from harness.progress import announce_torch, clock, fitted, late_bar, print_columns
from harness.records.cache import of_command
from harness.records.collect import TrialRecords, valid_records
from harness.records.estimate import MEASURED, PUBLISHED, Estimate, estimate

REFUSED = "refused"
BUILT = ("model", "task", "backbone", "train")  # what a model and its task are built from
CHANGING = (*BUILT, "protocol", "settings", "trusted_packages")  # typed keys that change it
SELECTING = ("task", "protocol")  # keys that only select cells of a table
SCALE = ("task", "protocol", "budget")  # names of cells whose times say something about each other


@dataclass(frozen=True)
class PlanRow:
    """`estimate`: the time that the cell still takes; None if it is unknown, and for a cell that is done or refused.

    `refusal`: the reason why a run would refuse the cell, whose state is then REFUSED.
    """

    cell: Cell
    state: str
    estimate: Estimate | None
    refusal: str | None = None


def run_all(commands: Sequence[Command], launcher: str = "") -> int:
    """Show the cells of all commands together, for any launcher."""
    check_tables(commands)
    with rare_garbage_collection():
        with late_bar("planned") as report:
            plan = expand_all(commands, TrialRecords(), report)
        rows = plan_rows(commands, plan)
    print_columns(lines_of(rows, commands[0].cfg.each_cell))
    seconds_left = {MEASURED: 0.0, PUBLISHED: 0.0}
    for planned in rows:
        if planned.estimate is not None:
            seconds_left[planned.estimate.basis] += planned.estimate.seconds
    if commands[0].cfg.costs:
        print_costs(plan, rows)
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
        print(fitted(f"then {plan.unchosen} more, at the learning rates that the trials choose{later}"))
    for name, why in plan.absent.items():
        print(fitted(f"left out: {name} ({why})"))
    for path, cfg in missing_files(plan.cells).items():
        print(fitted(f"data: {missing_file_message(path, cfg)}"))
    refusals = [planned.refusal for planned in rows if planned.refusal]
    for refusal in dict.fromkeys(refusals):
        print(f"{refusals.count(refusal)} refused: {refusal}", file=sys.stderr)
    return 2 if refusals else 0


def print_costs(plan: Plan, rows: Sequence[PlanRow]) -> None:
    """A line for each of the cells to run that differ in more than the seed."""
    announce_torch()
    from harness.bench.counted import cost_of
    from harness.config.allowed import devices_of

    states = {row.cell.id: row.state for row in rows}
    left = [planned for planned in plan.cells if states[planned.cell.id] not in ("done", REFUSED)]
    names = [
        named(each.cell.model, told) for each, told in zip(left, telling_settings([p.cell for p in left]), strict=True)
    ]
    counted: set[str] = set()
    for planned, name in zip(left, names, strict=True):
        key = json.dumps(planned.cell.config | {"seed": None}, sort_keys=True)
        if key not in counted:
            counted.add(key)
            print(f"{name} · {planned.cell.task}: {cost_of(planned.cfg, devices_of(planned.cfg))}", flush=True)


def lines_of(rows: Sequence[PlanRow], each_cell: bool) -> list[tuple[str, ...]]:
    """A line per cell, or per row and state: model, what tells it from other rows of the model, cells and time."""
    kinds = [len({getattr(planned.cell, key) for planned in rows}) > 1 for key in ("protocol", "budget")]
    groups = defaultdict(list)
    for planned, settings in zip(rows, telling_settings([planned.cell for planned in rows]), strict=True):
        cell, trial = planned.cell, ["trials"] if planned.cell.config["train"].get("trial") else []
        row = " · ".join([cell.model, *itertools.compress((cell.protocol, cell.budget), kinds), *trial])
        shown = settings if each_cell else {key: value for key, value in settings.items() if key != RATE}
        groups[named(str(cell) if each_cell else row, shown), planned.state, each_cell and cell.id].append(planned)
    lines = [("cell", "", "state", "estimated time", "from") if each_cell else ("row", "cells", "state", "time", "")]
    for (name, state, _), cells in groups.items():
        left = [planned.estimate for planned in cells if planned.estimate]
        seconds = sum(estimate.seconds for estimate in left)
        time = "" if not left else clock(seconds) if seconds < 36_000 else f"{seconds / 3600:,.0f} h"
        ends = ("", left[0].source if left else "") if each_cell else (count_of(cells), "")
        lines.append((name, ends[0], state, time, ends[1]))
    return lines


def count_of(rows: Sequence[PlanRow]) -> str:
    """`5 tasks x 5 seeds`, with `x 3 rates` between them in a search; if some of these are elsewhere, `17 cells`."""
    trains = [planned.cell.config["train"] for planned in rows]
    tasks, seeds = ({getattr(planned.cell, key) for planned in rows} for key in ("task", "seed"))
    rates = {train["optimizer"]["lr"] if train.get("trial") else None for train in trains}  # else one for each task
    if len(tasks) * len(rates) * len(seeds) != len(rows):
        return f"{len(rows)} cells of {f'{len(tasks)} tasks' if len(tasks) > 1 else rows[0].cell.task}"
    parts = [f"{len(tasks)} tasks" if len(tasks) > 1 else rows[0].cell.task]
    parts += [f"{len(rates)} rates"] if len(rates) > 1 else []
    return " x ".join([*parts, f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {rows[0].cell.seed}"])


def named(name: str, settings: Mapping[str, Any]) -> str:
    return name + "".join(f" · {key}={value}" for key, value in settings.items())


def telling_settings(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """For each cell the settings that tell it from other cells of its name."""
    telling: list[dict[str, Any]] = [{} for _ in cells]
    alike = defaultdict(list)
    for index, cell in enumerate(cells):
        alike[str(cell)].append(index)
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
            telling[index] = {key: config.get(key) for key in differing}
    return telling


def plan_rows(commands: Sequence[Command], plan: Plan | None = None) -> list[PlanRow]:
    """The cells of all commands together. `plan`: the expanded commands, if the caller has them.

    Raises UsageError if a run would refuse all of them.
    """
    plan, cfg, queue = plan or expand_all(commands, TrialRecords()), commands[0].cfg, Queue()
    tasks = {planned.cell.task for planned in plan.cells}
    records, _ = valid_records(cfg.paths.records, tasks=tasks, cache=of_command(cfg.paths.outputs))
    status = {entries["file"]: entries["status"] for entries in records}
    alike = defaultdict(list)
    for entries in records:
        alike[tuple(entries["cell"][key] for key in SCALE)].append(entries)
    states: dict[str, str] = {}
    for planned in plan.cells:
        path = planned.cell.record_path(cfg)
        states[planned.cell.id] = cell_state(path, planned.cell.folder(cfg), queue, status.get(path)).name
    refused = refusals(commands, [planned for planned in plan.cells if states[planned.cell.id] != "done"])
    needed = {id for planned in plan.cells for id in planned.depends_on}
    if all(planned.cell.id in refused for planned in plan.cells if planned.cell.id not in needed):
        raise UsageError(next(iter(refused.values())))
    with_gpu = trains_on_gpu(cfg)
    rows = []
    for planned in plan.cells:
        state, refusal = states[planned.cell.id], refused.get(planned.cell.id)
        is_left = state != "done" and not refusal
        like = alike[tuple(getattr(planned.cell, key) for key in SCALE)]
        remaining = estimate(planned.cell, like, hours_of(planned), with_gpu) if is_left else None
        rows.append(PlanRow(planned.cell, REFUSED if refusal else state, remaining, refusal))
    return rows


def refusals(commands: Sequence[Command], cells: Sequence[PlannedCell]) -> dict[str, str]:
    """{cell id: reason} of the cells that a run would refuse before it trains, if something typed can be the reason.

    Cells are built without memory, which takes torch and a part of a second per model and task. A table to which
    nothing is typed is not built: tests build all of them.
    """
    if not any(map(is_changed, commands)):
        return {}
    typed = {key for command in commands for key in typed_values(command.overrides)}
    alike = defaultdict(list)
    for planned in cells:
        parts = {part: planned.cell.config.get(part) for part in (*BUILT, "depends_on")}
        train = parts.pop("train")
        same = {**train, "optimizer": {**train.get("optimizer", {}), "lr": None}}  # seed and rate change no model
        alike[json.dumps([parts, same], sort_keys=True)].append(planned)
    refused: dict[str, str] = {}
    with late_bar("checked") as report:
        for number, (first, *others) in enumerate(alike.values()):
            report(number, len(alike))
            if reason := refusal(first, typed):
                refused |= {planned.cell.id: reason for planned in (first, *others)}
    return {planned.cell.id: refused[planned.cell.id] for planned in cells if planned.cell.id in refused}


def missing_files(cells: Sequence[PlannedCell]) -> dict[Path, DictConfig]:
    """{missing file: the first configuration that names it}. Variants of a configuration read the same files."""
    kinds = {getattr(planned.config, "pickled", id(planned.config)): planned for planned in reversed(cells)}
    missing = {path: planned.cfg for planned in kinds.values() if (path := missing_file(planned.cfg))}
    return dict(reversed(missing.items()))


def is_changed(command: Command) -> bool:
    """Whether something typed makes the command's cell, or changes the cells of its table."""
    typed = typed_values(command.overrides)
    changing = {key for key in typed if key.split(".")[0] in CHANGING}
    return bool(changing if typed.get("table", "null") == "null" else changing - {*SELECTING})


def refusal(planned: PlannedCell, typed: Collection[str]) -> str | None:
    """The reason why a run would refuse the cell; None without one. A missing file that nobody typed is none."""
    from harness.config.build import build_or_refuse

    cfg = planned.cfg
    if path := missing_file(cfg):
        is_typed = any(f"task.{key}" in typed for key in declared(cfg.task).paths)
        return missing_file_message(path, cfg) if is_typed else None
    announce_torch()
    try:
        model = build_or_refuse(cfg).model
        for prefixes in planned.depends_on.values():
            if prefixes:
                from harness.training.checkpoints.dependency import require_prefixes

                require_prefixes(model.state_dict(), prefixes)
    except UsageError as error:
        return str(error)
    return None


def check_tables(commands: Sequence[Command]) -> None:
    """Raises UsageError for a typed table whose page could not be made from its cells, and for an unknown protocol."""
    typed = {(typed_values(command.overrides).get("table", ALL), command.cfg.paths.paper) for command in commands}
    typed = {(name, paper) for name, paper in typed if name not in (ALL, "null")}
    if not typed:
        return
    from harness.report.spec.table import TableSpec  # with the report's modules, which a cell without a table spares
    from harness.report.spec_files import load_table

    protocols = set(names_in("protocol"))
    for name, paper in sorted(typed):
        spec = load_table(name, folders(), paper)
        for label, row in spec.rows.items() if isinstance(spec, TableSpec) else ():
            if row.protocol not in protocols:
                hint = did_you_mean(row.protocol, protocols)
                raise UsageError(f"conf/table/{name}.yaml: rows.{label}: there is no protocol '{row.protocol}': {hint}")


def trains_on_gpu(cfg: DictConfig) -> bool:
    """Whether cells of this command would train on a GPU: as it says, or else by what this machine has."""
    accelerator = cfg.trainer.accelerator
    return bool(visible_gpus()) if accelerator == "auto" else accelerator != "cpu"


def hours_of(planned: PlannedCell) -> float | None:
    """GPU-hours of a cell at the paper's scale, from a published table."""
    if planned.gpu_hours is not None or planned.cell.budget != "paper":
        return planned.gpu_hours
    return published_hours(planned.cell.task, planned.cell.protocol)
