"""do=train: the cells of one or several commands, here one after another or side by side, or handed to a scheduler."""

import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from omegaconf import DictConfig

from harness.config.compose import search_path
from harness.config.sweep import Command, Plan, expand_all
from harness.errors import UsageError
from harness.launch import serialized_cell
from harness.launch.local import run_parallel, run_sequential, width
from harness.progress import Progress
from harness.training.rank import launched_as_group, rank
from harness.training.run_cell import CellRequest, CellResult, report_line
from harness.training.signals import catch_stop_signals

HERE = "here"


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    return run_all([Command(cfg, tuple(overrides))])


def run_all(commands: Sequence[Command], place: str = HERE) -> int:
    """Exit status: 0 if nothing failed, 2 if a cell was refused, 1 if one failed, 128 + n if signal n stopped them.

    `place`: HERE, or a scheduler of `harness.launch.submit`.
    """
    plan = expand_all(commands)
    cfg = commands[0].cfg
    search = search_path()
    record = {
        planned.cell.id: (str(planned.cell), str(planned.cell.record_path(planned.cfg))) for planned in plan.cells
    }
    requests = [
        CellRequest(planned.cfg, planned.overrides, search, needs=[record[earlier] for earlier in planned.depends_on])
        for planned in plan.cells
    ]
    if place != HERE:
        from harness.launch.submit import submit

        return submit(plan, requests, place)
    if cfg.n_jobs * width(cfg) > 1 and not launched_as_group():
        return tell(run_apart(requests, plan.levels(), cfg), plan)
    return tell(run_sequential(announced(requests), fail_fast=cfg.fail_fast), plan)


def announced(requests: Sequence[CellRequest]) -> Iterator[CellRequest]:
    for place, request in enumerate(requests, 1):
        if len(requests) > 1 and rank() == 0:
            print(f"cell {place} of {len(requests)}", file=sys.stderr, flush=True)
        yield request


def run_apart(requests: Sequence[CellRequest], levels: Sequence[int], cfg: DictConfig) -> Iterator[CellResult]:
    """Each cell in a process of its own, `n_jobs` of them at any moment: one that dies takes no other with it.

    A level begins when the ones below it have ended.
    """
    folder = serialized_cell.new_folder(Path(cfg.paths.outputs) / "sweeps")
    paths = [folder / f"{number:04d}.yaml" for number in range(len(requests))]
    for path, request in zip(paths, requests, strict=True):
        serialized_cell.write(path, request)
    with catch_stop_signals() as mark, Progress() as progress:
        progress.say(f"{len(requests)} cells, {cfg.n_jobs} at once · {folder}")

        before = 0

        def watch(done: int, running: int) -> None:
            progress.update("cells", before + done, len(paths), f"{running} running")

        for level in sorted(set(levels)):
            part = [path for path, of in zip(paths, levels, strict=True) if of == level]
            for outcome in run_parallel(part, cfg.n_jobs, mark, width=width(cfg), watch=watch):
                if outcome.code and cfg.fail_fast and mark.number is None:
                    mark.number = signal.SIGTERM  # the others save what they have
                yield outcome
            before += len(part)


def tell(results: Iterator[CellResult], plan: Plan) -> int:
    """Say what became of each cell as it ends, then of all."""
    seen: list[CellResult] = []
    for outcome in results:
        seen.append(outcome)
        if outcome.state == "refused" and len(plan.cells) == 1:
            raise UsageError(outcome.detail)
        report_line(outcome, sys.stderr if outcome.code else sys.stdout)
    if len(plan.cells) > 1 and rank() == 0:
        states = [outcome.state for outcome in seen]
        counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
        left = len(plan.cells) - len(seen)
        print(", ".join([*counts, *([f"{left} not begun"] if left else [])]))
        for name, why in plan.absent.items():
            print(f"left out: {name} ({why})")
    return max((outcome.code for outcome in seen), default=0)
