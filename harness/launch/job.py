"""What runs in a job of a scheduler."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.launch import serialized_cell
from harness.launch.local import run_parallel, run_sequential
from harness.training.rank import rank
from harness.training.run_cell import CellResult, report_line
from harness.training.signals import REQUEUED, catch_stop_signals, requeue, will_requeue

OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")  # data were checked at submission


def apart(paths: Sequence[Path], at_once: int, width: int) -> Iterator[CellResult]:
    with catch_stop_signals() as mark:
        yield from run_parallel(paths, at_once, mark, width=width)
    if mark.number is not None and will_requeue(mark.number):
        requeue()


class CellFailed(Exception):
    """Makes the scheduler see what the records say: this job did not do all that it was given."""


class Job:
    """Called by submitit in every process of a job."""

    def __call__(self, files: Sequence[str], *, at_once: int, width: int) -> None:
        """Carry out frozen cells. `width`: devices that a cell starts processes for itself; 1 where SLURM did."""
        os.environ.update(dict.fromkeys(OFFLINE, "1"))
        paths, bad = [Path(file) for file in files], []
        for outcome in (
            apart(paths, at_once, width) if at_once * width > 1 else run_sequential(map(serialized_cell.read, paths))
        ):
            report_line(outcome)
            # the first process queues the job again; another that failed meanwhile would have it killed before it can
            bad += [outcome] if outcome.code and not (rank() and outcome.state in REQUEUED) else []
        if bad:
            raise CellFailed("; ".join(f"{outcome.state}: {outcome.cell} · {outcome.detail}" for outcome in bad))

    def checkpoint(self, *arguments: Any, **settings: Any) -> Any:
        """submitit asks what to run when the job is queued again: the same; what is done is skipped."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, *arguments, **settings)
