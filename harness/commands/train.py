"""do=train: run the cells of one or several commands here, or submit them to a scheduler."""

import itertools
import signal
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from harness.commands.mistakes import require_choice
from harness.commands.plan import check_tables, named, telling_settings
from harness.config.compose import search_path
from harness.config.declared import missing_file, missing_file_message, missing_files
from harness.config.places import folder_below
from harness.config.sweep import Command, Plan, PlannedCell, expand_all, parse_depends_on
from harness.config.variants import VariedConfig
from harness.errors import UsageError
from harness.launch import serialized_cell
from harness.launch.local import devices_per_cell, run_parallel, run_sequential
from harness.progress import Progress, clock, fitted, late_bar, print_columns
from harness.records import record
from harness.records.collect import TrialRecords
from harness.records.estimate import estimate
from harness.training.checkpoints.dependency import Dependency
from harness.training.dependents import refused_dependents
from harness.training.extras.long_run import longest, records_here
from harness.training.process import STOPPED, catch_stop_signals, group, join_group, rank
from harness.training.run_cell import CellRequest, CellResult, is_done, report_line

HERE = "here"
REFUSED = 2  # exit status
SKIPPED_S = 0.5  # a cell that takes less was done already


def run_all(commands: Sequence[Command], launcher: str = HERE) -> int:
    """Exit status: 0 if nothing failed, 2 if a cell was refused, 1 if one failed, 128 + n if signal n stopped them.

    `launcher`: HERE, or a scheduler of `harness.launch.queue`.
    """
    require_choice(commands)
    check_tables(commands)
    validation = TrialRecords()
    with late_bar("planned") as report:
        plan = expand_all(commands, validation, report)
    if launcher != HERE:
        from harness.launch.submit import submit

        code = submit(plan, requests_of(plan, search_path()), launcher)
        if plan.unchosen:
            print(f"{plan.unchosen} cells wait for the trials that choose their learning rates: when these have ended, "
                  "the same command submits them")  # fmt: skip
        return code
    begun: set[str] = set()
    code = 0
    while new := [planned for planned in plan.cells if planned.cell.id not in begun]:
        waiting, plan = plan.unchosen, replace(plan, cells=tuple(new))
        code = max(code, run_here(plan, commands[0].cfg))
        begun |= {planned.cell.id for planned in new}
        if not waiting or code >= STOPPED:
            break
        plan = expand_all(commands, validation)
    return code


def run_here(plan: Plan, cfg: DictConfig) -> int:
    join_group(planned.cfg for planned in plan.one_per_variants())
    whole, plan = plan, without_missing_data(plan)
    requests = [replace(request, longest_s=longest(request.overrides)) for request in requests_of(plan, search_path())]
    refused = {} if group() else refused_dependents(requests)
    if refused:
        kept = without_refused(plan, refused)
        requests = [request for request, cell in zip(requests, plan.cells, strict=True) if cell in kept]
        plan = replace(plan, cells=tuple(kept))
    if cfg.n_jobs * devices_per_cell(cfg) > 1 and not group():
        results = run_workers(requests, plan.levels(), cfg)
    else:
        results = run_sequential(announce_each(requests), fail_fast=cfg.fail_fast)
    code = report_results(itertools.chain(refused.values(), results), plan, len(plan.cells) + len(refused))
    return code if plan.absent == whole.absent else max(code, REFUSED)


def without_missing_data(plan: Plan) -> Plan:
    """The plan without the cells that are to run and whose files are not there; `absent` names each file once.

    If no other cell is left, the plan itself: its first cell says what is missing.
    """
    without: dict[str, Path] = {}
    missing = missing_files(planned.cfg for planned in plan.one_per_variants())
    for planned in plan.cells if missing else ():
        path = missing_file(planned.cfg)
        if path and not is_done(str(planned.cell.record_path(planned.cfg))):
            without[planned.cell.id] = path
    kept = without_refused(plan, without)
    if not kept:
        return plan
    absent = {}
    for path, cfg in missing.items():
        if tasks := [planned.cell.task for planned in plan.cells if without.get(planned.cell.id) == path]:
            name = f"{len(tasks)} cell{'s' * (len(tasks) > 1)} of {', '.join(sorted(set(tasks)))}"
            absent[name] = missing_file_message(path, cfg)
    return replace(plan, cells=tuple(kept), absent=plan.absent | absent)


def without_refused(plan: Plan, refused: Collection[str]) -> list[PlannedCell]:
    """The cells that still run: not the refused ones, and not those that only refused cells start from."""
    needed: dict[str, bool] = {}
    for planned in reversed(plan.cells):  # each cell comes after those that it depends on
        needed[planned.cell.id] = planned.cell.id not in refused and needed.get(planned.cell.id, True)
        for id in planned.depends_on:
            needed[id] = needed.get(id, False) or needed[planned.cell.id]
    return [planned for planned in plan.cells if needed[planned.cell.id]]


def requests_of(plan: Plan, search: Sequence[str]) -> list[CellRequest]:
    """The request of each planned cell, with the cells that it depends on and those that start from its weights."""
    planned_by_id = {planned.cell.id: planned for planned in plan.cells}
    dependencies, dependents = defaultdict(list), defaultdict(list)
    for planned in plan.cells:
        for id, entry in zip(planned.depends_on, planned.cfg.depends_on, strict=True):
            first, weights = planned_by_id[id], parse_depends_on(entry).weights
            record, run_dir = first.cell.record_path(first.cfg), first.cell.folder(first.cfg)
            dependencies[planned.cell.id].append(Dependency(id, str(first.cell), str(record), str(run_dir), weights))
            if weights:
                dependents[id].append(str(planned.cell.record_path(planned.cfg)))
    return [
        CellRequest(
            planned.cell,
            planned.cfg,
            planned.overrides,
            search,
            depends_on=dependencies[planned.cell.id],
            dependents=dependents[planned.cell.id],
            varied=planned.config if isinstance(planned.config, VariedConfig) else None,
            searched=planned.searched,
        )
        for planned in plan.cells
    ]


def announce_each(requests: Sequence[CellRequest]) -> Iterator[CellRequest]:
    """The requests, each after a line with its number and the time left by the cells that have run."""
    durations: list[float] = []
    for number, request in enumerate(requests, 1):
        if len(requests) > 1 and rank() == 0:
            left = (len(requests) - number + 1) * statistics.fmean(durations) if durations else 0.0
            line = f"cell {number} of {len(requests)}" + (f", about {clock(left)} left" if left else "")
            print(line, file=sys.stderr, flush=True)
        started = time.monotonic()
        yield request
        if (seconds := time.monotonic() - started) > SKIPPED_S:
            durations.append(seconds)


def expected_s(requests: Sequence[CellRequest], at_once: int) -> float | None:
    """The seconds of all cells, by records of this machine; None if a cell has no such record."""
    records: dict[Path, list[dict[str, Any]]] = {}
    seconds = 0.0
    for request in requests:
        folder = request.cell.record_path(request.cfg).parent
        if folder not in records:
            records[folder] = records_here(folder)
        if (expected := estimate(request.cell, records[folder])) is None:
            return None
        seconds += expected.seconds
    return seconds / at_once


def run_workers(requests: Sequence[CellRequest], levels: Sequence[int], cfg: DictConfig) -> Iterator[CellResult]:
    """Run cells in `n_jobs` worker processes, which take cell after cell; one that dies ends its current cell alone.

    A level starts when all cells of the levels below it have ended.
    """
    folder = serialized_cell.new_folder(folder_below(cfg.paths.outputs, "sweeps"))
    cells = [serialized_cell.write(folder / f"{number:04d}.yaml", request) for number, request in enumerate(requests)]
    with catch_stop_signals() as stop_signal, Progress() as progress:
        at_once = min(cfg.n_jobs, len(requests))
        progress.say(f"{len(requests)} cell{'s' if len(requests) > 1 else ''}, {at_once} at once · {folder}")
        ended, expected = 0, expected_s(requests, at_once)  # ended: cells of the levels below

        def show(done: int, running: int) -> None:
            progress.update("cells", ended + done, len(cells), f"{running} running", expected)

        for level in sorted(set(levels)):
            batch = [cell for cell, level_of_cell in zip(cells, levels, strict=True) if level_of_cell == level]
            for result in run_parallel(
                batch, at_once, stop_signal, devices_per_cell=devices_per_cell(cfg), on_progress=show
            ):
                if result.code and cfg.fail_fast and stop_signal.number is None:
                    stop_signal.number = signal.SIGTERM  # the others save their state
                yield result
            ended += len(batch)


def report_results(results: Iterable[CellResult], plan: Plan, number: int) -> int:
    """Print the result of each cell as it ends, then a line per row and the counts of all `number` cells.

    Returns the highest exit status.
    """
    ended: list[CellResult] = []
    for result in results:
        ended.append(result)
        if result.state == "refused" and number == 1:
            raise UsageError(result.detail)
        report_line(result, sys.stderr if result.code else sys.stdout)
    if number > 1 and rank() == 0:
        if lines := score_lines(plan.cells, {result.cell for result in ended if result.state == "done"}):
            print_columns([("model", "task", "metric", "mean", "lowest to highest", "n", "time"), *lines])
        states = [result.state for result in ended]
        counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
        left = number - len(ended)
        print(", ".join([*counts, *([f"{left} not begun"] if left else [])]))
        if plan.unchosen:
            print(f"{plan.unchosen} cells follow at the learning rates that these trials choose")
        for name, why in plan.absent.items():
            print(fitted(f"left out: {name} ({why})"))
    return max((result.code for result in ended), default=0)


def score_lines(cells: Sequence[PlannedCell], ran: Collection[str]) -> list[tuple[str, ...]]:
    """For each row and task of which a cell `ran`: its scores in the records of all its seeds, and their time.

    A trial has no test score, and so no line.
    """
    cells = [planned for planned in cells if not planned.cell.config["train"].get("trial")]
    rows = defaultdict(list)
    for planned, settings in zip(cells, telling_settings([planned.cell for planned in cells]), strict=True):
        cell = planned.cell
        rows[named(cell.model, settings), cell.task, cell.protocol, cell.budget].append(planned)
    lines = []
    for (row, task, *_), of_row in rows.items():
        has_run = ran & {str(planned.cell) for planned in of_row}
        paths = [planned.cell.record_path(planned.cfg) for planned in of_row if has_run]
        if not (records := [record.read(path) for path in paths if is_done(str(path))]):
            continue
        scores = [record.score_of(entries) for entries in records]
        mean, ends = f"{statistics.fmean(scores):.4g}", f"{min(scores):.4g} to {max(scores):.4g}"
        seconds = clock(sum(entries["wall_s"] for entries in records))
        lines.append((row, task, records[0]["metric"]["name"], mean, ends, f"{len(scores)}", seconds))
    return lines
