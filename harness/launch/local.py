"""Run cells on this machine: in this process one after another, or in parallel, one worker process per cell.

`python -m harness.launch.local CELL.yaml` is a worker. It runs a serialized cell and writes `CELL.result.json`. Words
such as paths.records=FOLDER and trusted_packages=[NAME] after the file allow what the cell has of them.
"""

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from omegaconf import DictConfig

from harness.config.cell import cell_of
from harness.config.places import ROOT
from harness.errors import UsageError, one_line
from harness.launch import serialized_cell
from harness.launch.serialized_cell import CellFile
from harness.records.provenance import command_output
from harness.training.process import SCHEDULER, STOPPED, StopSignal, rank, will_requeue
from harness.training.run_cell import CellRequest, CellResult, run_cell
from tasks.regular_files import last_lines, read_json
from tasks.workers import terminate_with_parent

POLL_S = 0.1
MAX_BYTES = 2**20  # of a result


def run_sequential(requests: Iterable[CellRequest], *, fail_fast: bool = False) -> Iterator[CellResult]:
    """Run cells one after another, until a stop signal or, with `fail_fast`, until a failure."""
    for request in requests:
        result = run_cell(request)
        yield result
        if result.code >= STOPPED or (fail_fast and result.code):
            return


def run_parallel(
    cells: Sequence[CellFile],
    max_workers: int,
    stop_signal: StopSignal,
    *,
    devices_per_cell: int = 1,
    on_progress: Callable[[int, int], None] = lambda done, running: None,
) -> Iterator[CellResult]:
    """Run serialized cells in one process per cell, `max_workers` at a time; yield each result when its cell ends.

    A stop signal is forwarded: no further cell starts, and the running cells save their state. Cells take turns at the
    visible GPUs, `devices_per_cell` per cell. Each poll calls `on_progress(done, running)`.
    """
    pending, running, done = list(cells), {}, 0
    free_slots, gpus = list(range(max_workers)), visible_gpus()
    starts = range(0, len(gpus) - devices_per_cell + 1, devices_per_cell)
    gpu_groups = [",".join(gpus[start : start + devices_per_cell]) for start in starts]
    threads = max(1, len(os.sched_getaffinity(0)) // (max_workers * devices_per_cell))
    forwarded = False
    while running or (pending and stop_signal.number is None):
        while pending and free_slots and stop_signal.number is None:
            cell, slot = pending.pop(0), free_slots.pop(0)
            gpus_of_cell = gpu_groups[slot % len(gpu_groups)] if gpu_groups else None
            running[start_worker(cell, gpus_of_cell, threads)] = (cell, slot)
        if stop_signal.number is not None and not forwarded:
            forwarded = True
            number = SCHEDULER if will_requeue(stop_signal.number) else stop_signal.number
            for process in running:
                process.send_signal(number)
        for process in [process for process in running if process.poll() is not None]:
            cell, slot = running.pop(process)
            free_slots.append(slot)
            done += 1
            yield read_result(cell, process.returncode, stop_signal)
        on_progress(done, len(running))
        time.sleep(POLL_S)


def start_worker(cell: CellFile, gpus: str | None, threads: int) -> subprocess.Popen:
    python_path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    # two processes that use all cores are many times slower than one process
    environment = {"OMP_NUM_THREADS": str(threads)} | os.environ | {"PYTHONPATH": os.pathsep.join(python_path)}
    if gpus is not None:
        environment["CUDA_VISIBLE_DEVICES"] = gpus
    with log_path(cell.path).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "harness.launch.local", str(cell.path.absolute()), *cell.typed],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, cwd=ROOT,
            start_new_session=True,  # Ctrl-C reaches only the parent, which forwards it once
            preexec_fn=functools.partial(terminate_with_parent, os.getpid()),
        )  # fmt: skip


def devices_per_cell(cfg: DictConfig) -> int:
    """The number of devices of a cell on one machine."""
    return cfg.trainer.devices if isinstance(cfg.trainer.devices, int) else 1


def visible_gpus() -> list[str]:
    """The GPUs that this process may use: indices or UUIDs, as in CUDA_VISIBLE_DEVICES."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [gpu for gpu in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if gpu]
    return (command_output("nvidia-smi", "--query-gpu=index", "--format=csv,noheader") or "").split()


def read_result(cell_file: CellFile, exit_status: int, stop_signal: StopSignal) -> CellResult:
    """The result that a worker wrote. If it was killed earlier, its exit status and log give the result."""
    path = cell_file.path
    try:
        return CellResult(**read_json(result_path(path), MAX_BYTES))
    except (OSError, ValueError, TypeError):
        cell = str(cell_of(serialized_cell.read(*cell_file).cfg))
        if stop_signal.number is not None and exit_status < 0:
            return CellResult(cell, "interrupted", STOPPED + stop_signal.number, "stopped before training")
        cause = (
            f"killed by {signal.Signals(-exit_status).name}" if exit_status < 0 else f"exited with status {exit_status}"
        )
        lines = last_lines(log_path(path), 1)
        last_line = f" after '{one_line(lines[0])[:200]}'" if lines else ""
        return CellResult(cell, "dead", 1, f"{cause}{last_line} · {log_path(path)}")


def log_path(path: Path) -> Path:
    return path.with_suffix(".log")


def result_path(path: Path) -> Path:
    return path.with_suffix(".result.json")


def main(path: Path, typed: Sequence[str]) -> int:
    try:
        request = serialized_cell.read(path, typed)
    except UsageError as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 2
    if rank() == 0:
        result_path(path).unlink(missing_ok=True)
    result = run_cell(request)
    if rank() == 0:
        result_path(path).write_text(json.dumps(asdict(result)), encoding="utf-8")
        if result.code:
            state = "" if result.state == "refused" else f"{result.state}: "
            print(f"error: {state}{one_line(result.detail)}", file=sys.stderr)
    return result.code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
