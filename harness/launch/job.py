"""The work of a scheduler's job."""

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

from harness.launch import serialized_cell
from harness.launch.local import run_parallel, run_sequential
from harness.launch.serialized_cell import CellFile
from harness.training.process import REQUEUED, catch_stop_signals, join_group, rank, requeue, will_requeue
from harness.training.run_cell import CellResult, report_line

OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")  # submission has checked the data


class CellsFailed(Exception):
    """Cells of this job failed. The scheduler then shows the job as failed, as the records do."""


class Job:
    """The callable that submitit runs in every process of a job."""

    def __call__(self, cell_files: Sequence[CellFile], *, max_workers: int, devices_per_cell: int) -> None:
        """Run serialized cells. `devices_per_cell` is 1 if SLURM starts the processes of a cell."""
        os.environ.update(dict.fromkeys(OFFLINE, "1"))
        if max_workers * devices_per_cell > 1:
            results = run_workers(cell_files, max_workers, devices_per_cell)
        else:
            requests = list(itertools.starmap(serialized_cell.read, cell_files))
            join_group(request.cfg for request in requests)
            results = run_sequential(requests)
        failed = []
        for result in results:
            report_line(result)
            # rank 0 requeues the job; SLURM would kill rank 0 first if another rank failed now
            if result.code and not (rank() and result.state in REQUEUED):
                failed.append(result)
        if failed:
            raise CellsFailed("; ".join(f"{result.state}: {result.cell} · {result.detail}" for result in failed))

    def checkpoint(self, *arguments: Any, **settings: Any) -> Any:
        """The call of a requeued job, for submitit: the same call, which skips finished cells."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, *arguments, **settings)


def run_workers(cell_files: Sequence[CellFile], max_workers: int, devices_per_cell: int) -> Iterator[CellResult]:
    """Run cells in worker processes; requeue the job after a signal that asks for it."""
    with catch_stop_signals() as stop_signal:
        yield from run_parallel(cell_files, max_workers, stop_signal, devices_per_cell=devices_per_cell)
    if stop_signal.number is not None and will_requeue(stop_signal.number):
        requeue()
