"""do=train: run the cells of one or several commands here, or submit them to a scheduler."""

import itertools
import os
import signal
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from omegaconf import DictConfig

from harness.commands.mistakes import require_choice
from harness.commands.plan import check_tables, named, telling_settings
from harness.config.compose import search_path
from harness.config.places import folder_below
from harness.config.sweep import Command, Plan, PlannedCell, expand_all
from harness.errors import UsageError
from harness.launch import serialized_cell
from harness.launch.local import devices_per_cell, run_parallel, run_sequential
from harness.progress import Progress, clock, fitted, late_bar, print_columns
from harness.records import record
from harness.records.collect import TrialRecords
from harness.training.checkpoints.dependency import Dependency
from harness.training.dependents import refused_at_once
from harness.training.extras.long_run import longest
from harness.training.process import (
    SCHEDULER,
    STOPPED,
    catch_stop_signals,
    exit_status,
    group,
    join_group,
    rank,
    requeue_own_job,
    warned_of_limit,
)
from harness.training.run_cell import CellRequest, CellResult, report_line

HERE = "here"
SKIPPED_S = 0.5  # a cell that takes less was done already
SUMMARY_AFTER_S = 120.0  # a sweep that takes longer ends with a page of curves


def run_all(commands: Sequence[Command], launcher: str = HERE) -> int:
    """Exit status: 0 if nothing failed, 2 if a cell was refused, 1 if one failed, 128 + n if signal n stopped them.

    `launcher`: HERE, or a scheduler of `harness.launch.queue`.
    """
    require_choice(commands)
    check_tables(commands)
    return run_here(commands) if launcher == HERE else submit_all(commands, launcher)


def run_here(commands: Sequence[Command]) -> int:
    """Run the cells, and then those whose learning rates their trials have chosen."""
    validation, begun, code = TrialRecords(), set[str](), 0
    while True:
        with late_bar("planned") as report:
            plan = expand_all(commands, validation, report)
        if requests := requests_of(plan, begun):
            code = max(code, run_requests(requests, plan, commands[0].cfg))
            begun |= {request.cell.id for request in requests}
        if not (requests and plan.unchosen) or code >= STOPPED:
            return code


def submit_all(commands: Sequence[Command], launcher: str) -> int:
    from harness.launch.submit import submit

    with late_bar("planned") as report:
        plan = expand_all(commands, TrialRecords(), report)
    code = submit(requests_of(plan), launcher)
    for name, why in plan.absent.items():
        print(f"left out: {name} ({why})")
    if plan.unchosen:
        print(f"{plan.unchosen} cells wait for the trials that choose their learning rates: when these have ended, "
              "the same command submits them")  # fmt: skip
    return code


def requests_of(plan: Plan, begun: Collection[str] = ()) -> list[CellRequest]:
    """The request of each planned cell but those `begun` (ids): with what it depends on and what starts from it."""
    planned_by_id = {planned.cell.id: planned for planned in plan.cells}
    dependents, levels = defaultdict(list), dict[str, int]()
    for planned in plan.cells:
        levels[planned.cell.id] = 1 + max((levels[id] for id in planned.depends_on), default=-1)
        for id, prefixes in planned.depends_on.items():
            if prefixes:
                dependents[id].append(str(planned.cell.record_path(planned.cfg)))
    return [
        CellRequest(
            planned.cell,
            planned.cfg,
            planned.overrides,
            search_path(),
            depends_on=[dependency(planned_by_id[id], prefixes) for id, prefixes in planned.depends_on.items()],
            dependents=dependents[planned.cell.id],
            level=levels[planned.cell.id],
            searched=planned.searched,
        )
        for planned in plan.cells
        if planned.cell.id not in begun
    ]


def dependency(first: PlannedCell, weights: Sequence[str]) -> Dependency:
    cell, cfg = first.cell, first.cfg
    places = {"record": str(cell.record_path(cfg)), "run_dir": str(cell.folder(cfg))}
    return Dependency(id=cell.id, name=str(cell), weights=weights, **places)


def run_requests(requests: Sequence[CellRequest], plan: Plan, cfg: DictConfig) -> int:
    join_group(request.cfg for request in requests)
    requests = [replace(request, longest_s=longest(request.overrides)) for request in requests]
    refused = refused_at_once(requests)
    kept = without_refused(requests, refused)
    if cfg.n_jobs * devices_per_cell(cfg) > 1 and not group():
        results = run_workers(kept, cfg)
    else:
        results = run_sequential(announce_each(kept), fail_fast=cfg.fail_fast)
    code = report_results(list(refused.values()), results, kept, plan)
    if code == exit_status(SCHEDULER) and cfg.cluster.requeue and "SLURM_JOB_ID" in os.environ and not rank():
        print(requeue_own_job(), file=sys.stderr, flush=True)
    return code


def without_refused(requests: Sequence[CellRequest], refused: Collection[str]) -> list[CellRequest]:
    """The cells that still run: not the refused ones, and not those that only refused cells start from."""
    needed: dict[str, bool] = {}
    for request in reversed(requests):  # each cell comes after those that it depends on
        id = request.cell.id
        needed[id] = id not in refused and needed.get(id, True)
        for first in request.depends_on:
            needed[first.id] = needed.get(first.id, False) or needed[id]
    return [request for request in requests if needed[request.cell.id]]


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


def run_workers(requests: Sequence[CellRequest], cfg: DictConfig) -> Iterator[CellResult]:
    """Run cells in `n_jobs` worker processes, which take cell after cell; one that dies ends its current cell alone.

    A level starts when all cells of the levels below it have ended.
    """
    at_once = min(cfg.n_jobs, len(requests))
    folder = serialized_cell.new_folder(folder_below(cfg.paths.outputs, "sweeps"))
    cells = [serialized_cell.write(folder / f"{number:04d}.yaml", request) for number, request in enumerate(requests)]
    with warned_of_limit(cfg.cluster.signal_s), catch_stop_signals() as stop_signal, Progress() as progress:
        progress.say(f"{len(requests)} cell{'s' if len(requests) > 1 else ''}, {at_once} at once · {folder}")
        ended = 0  # cells of the levels below

        def show(done: int, running: int) -> None:
            progress.update("cells", ended + done, len(cells), f"{running} running")

        for level in sorted({request.level for request in requests}):
            batch = [cell for cell, request in zip(cells, requests, strict=True) if request.level == level]
            for result in run_parallel(
                batch, at_once, stop_signal, devices_per_cell=devices_per_cell(cfg), on_progress=show
            ):
                if result.code and cfg.fail_fast and stop_signal.number is None:
                    stop_signal.number = signal.SIGTERM  # the others save their state
                yield result
            ended += len(batch)


def report_results(
    refused: Collection[CellResult], results: Iterable[CellResult], cells: Sequence[CellRequest], plan: Plan
) -> int:
    """Print why cells are refused and the result of each of the other `cells` as it ends, a line per row, and counts.

    Returns the highest exit status.
    """
    number, ended, started = len(refused) + len(cells), list(refused), time.monotonic()
    for reason in dict.fromkeys(result.detail for result in refused if number > 1):
        first, *others = [result for result in refused if result.detail == reason]
        report_line(replace(first, cell=f"{len(others) + 1} x {first.cell}") if others else first, sys.stderr)
    for result in itertools.chain(refused if number == 1 else (), results):
        if result.state == "refused" and number == 1:
            raise UsageError(result.detail)
        ended.append(result)
        report_line(result, sys.stderr if result.code else sys.stdout)
    if number > 1 and rank() == 0:
        if lines := score_lines(cells, {result.cell for result in ended if result.state == "done"}):
            print_columns([("model", "task", "metric", "mean", "lowest to highest", "n", "time"), *lines])
        states = [result.state for result in ended]
        counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
        left = number - len(ended)
        print(", ".join([*counts, *([f"{left} not begun"] if left else [])]))
        if plan.unchosen:
            print(f"{plan.unchosen} cells follow at the learning rates that these trials choose")
        for name, why in plan.absent.items():
            print(fitted(f"left out: {name} ({why})"))
        if time.monotonic() - started >= SUMMARY_AFTER_S:
            print_summary(cells, {result.cell for result in ended if result.state == "done"})
    return max((result.code for result in ended), default=0)


def print_summary(cells: Sequence[CellRequest], ran: Collection[str]) -> None:
    """Print the path of a page with the curves of the cells that `ran`."""
    from harness.commands.curves import MOST, page_of

    done = [request for request in cells if str(request.cell) in ran]
    if 1 < len(done) <= MOST:
        records = [record.read(request.cell.record_path(request.cfg)) for request in done]
        folders = {str(request.cell.path): request.cell.folder(request.cfg) for request in done}
        if page := page_of(done[0].cfg, folders, records):
            print(f"curves: {page}")


def score_lines(cells: Sequence[CellRequest], ran: Collection[str]) -> list[tuple[str, ...]]:
    """For each row and task of which a cell `ran`: its scores in the records of all its seeds, and their time.

    A trial has no test score, and so no line.
    """
    cells = [request for request in cells if not request.cell.config["train"].get("trial")]
    rows = defaultdict(list)
    for request, settings in zip(cells, telling_settings([request.cell for request in cells]), strict=True):
        cell = request.cell
        rows[named(cell.model, settings), cell.task, cell.protocol, cell.budget].append(request)
    lines = []
    for (row, task, *_), of_row in rows.items():
        has_run = ran & {str(request.cell) for request in of_row}
        paths = [request.cell.record_path(request.cfg) for request in of_row if has_run]
        if not (records := [record.read(path) for path in paths if record.is_done(path)]):
            continue
        scores = [record.score_of(entries) for entries in records]
        mean, ends = f"{statistics.fmean(scores):.4g}", f"{min(scores):.4g} to {max(scores):.4g}"
        seconds = clock(sum(entries["wall_s"] for entries in records))
        lines.append((row, task, records[0]["metric"]["name"], mean, ends, f"{len(scores)}", seconds))
    return lines
