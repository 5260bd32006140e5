"""Run cells on this machine: one after another in this process, or several at a time in worker processes.

`python -m harness.launch.local CELL.yaml` runs a serialized cell and writes `CELL.result.json`. Words such as
paths.records=FOLDER and trusted_packages=[NAME] after the file allow what the cell has of them.

`python -m harness.launch.local -` is a worker: it reads cells from standard input, one JSON list [file, words..] per
line, and answers each with a line on standard output, the cell's exit status. Imports, kernels and compositions are
paid once per worker. It ends after the first cell with another status than 0, so the next one starts in a new process.
"""

import contextlib
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
from harness.garbage import begin_program
from harness.launch import serialized_cell
from harness.launch.serialized_cell import CellFile
from harness.records.provenance import command_output
from harness.training.process import SCHEDULER, STOPPED, StopSignal, join_group, rank, will_requeue
from harness.training.run_cell import CellRequest, CellResult, run_cell
from tasks.regular_files import last_lines, read_json
from tasks.workers import terminate_with_parent

POLL_S = 0.1
MAX_BYTES = 2**20  # of a result
FROM_INPUT = "-"  # the argument of a worker


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
    """Run serialized cells in worker processes, `max_workers` at a time; yield each result when its cell ends.

    A stop signal is forwarded: no further cell starts, and the running cells save their state. Cells take turns at the
    visible GPUs, `devices_per_cell` per cell. Each poll calls `on_progress(done, running)`.
    """
    pending, running, done = list(cells), {}, 0
    gpus = visible_gpus()
    starts = range(0, len(gpus) - devices_per_cell + 1, devices_per_cell)
    gpu_groups = [",".join(gpus[start : start + devices_per_cell]) for start in starts]
    threads = max(1, len(os.sched_getaffinity(0)) // (max_workers * devices_per_cell))
    idle = [
        Worker(gpu_groups[slot % len(gpu_groups)] if gpu_groups else None, threads, devices_per_cell)
        for slot in range(max_workers)
    ]
    forwarded = False
    try:
        while running or (pending and stop_signal.number is None):
            while pending and idle and stop_signal.number is None:
                worker, cell = idle.pop(0), pending.pop(0)
                worker.run(cell)
                running[worker] = cell
            if stop_signal.number is not None and not forwarded:
                forwarded = True
                number = SCHEDULER if will_requeue(stop_signal.number) else stop_signal.number
                for worker in running:
                    worker.process.send_signal(number)
            for worker, status in [(worker, worker.poll()) for worker in running]:
                if status is not None:
                    idle.append(worker)
                    done += 1
                    yield read_result(running.pop(worker), status, stop_signal)
            on_progress(done, len(running))
            time.sleep(POLL_S)
    finally:
        for worker in idle:
            worker.end()


class Worker:
    """Runs one cell at a time, in the same process as long as its cells end with status 0.

    A cell on several devices has a process of its own, because Lightning repeats the command for each device.
    """

    def __init__(self, gpus: str | None, threads: int, devices: int = 1):
        self.gpus, self.threads, self.devices = gpus, threads, devices
        self.process: subprocess.Popen | None = None

    def run(self, cell: CellFile) -> None:
        words = [str(cell.path.absolute()), *cell.typed]
        if self.devices > 1:
            self._start(words, cell, subprocess.DEVNULL)
            return
        if self.process is not None and self.process.poll() is not None:
            self.end()  # it was killed between two cells
        if self.process is None:
            self._start([FROM_INPUT], cell, subprocess.PIPE)
        with contextlib.suppress(BrokenPipeError):  # it is being killed: `poll` tells
            self.process.stdin.write(f"{json.dumps(words)}\n".encode())

    def poll(self) -> int | None:
        """The exit status of the cell, -n after signal n; None while it runs."""
        exited = self.process.poll()
        answer = self.process.stdout.read() if self.process.stdout else None  # does not block
        status = int(answer) if answer else exited
        if status or exited is not None:
            self.end()
        return status

    def end(self) -> None:
        """End the process, which runs no cell."""
        if self.process is None:
            return
        for stream in filter(None, (self.process.stdin, self.process.stdout)):
            stream.close()
        self.process.wait()
        self.process = None

    def _start(self, words: Sequence[str], cell: CellFile, stdin: int) -> None:
        python_path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        # two processes that use all cores are many times slower than one process
        environment = {"OMP_NUM_THREADS": str(self.threads)} | os.environ
        environment["PYTHONPATH"] = os.pathsep.join(python_path)
        if self.gpus is not None:
            environment["CUDA_VISIBLE_DEVICES"] = self.gpus
        with log_path(cell.path).open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "harness.launch.local", *words],
                stdin=stdin, stdout=subprocess.PIPE if stdin == subprocess.PIPE else log, stderr=log, bufsize=0,
                env=environment, cwd=ROOT,
                start_new_session=True,  # Ctrl-C reaches only the parent, which forwards it once
                preexec_fn=functools.partial(terminate_with_parent, os.getpid()),
            )  # fmt: skip
        if self.process.stdout:
            os.set_blocking(self.process.stdout.fileno(), False)


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
    join_group([request.cfg])
    if rank() == 0:
        result_path(path).unlink(missing_ok=True)
    result = run_cell(request)
    if rank() == 0:
        result_path(path).write_text(json.dumps(asdict(result)), encoding="utf-8")
        if result.code:
            state = "" if result.state == "refused" else f"{result.state}: "
            print(f"error: {state}{one_line(result.detail)}", file=sys.stderr)
    return result.code


def serve() -> int:
    """Run the cells of standard input until one of them has a status other than 0. Returns the last status."""
    answers = os.dup(1)
    for line in sys.stdin:
        path, *typed = json.loads(line)
        with log_path(Path(path)).open("ab") as log:
            for descriptor in (1, 2):
                os.dup2(log.fileno(), descriptor)
        status = main(Path(path), typed)
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(answers, f"{status}\n".encode())
        if status:
            return status
    return 0


if __name__ == "__main__":
    begin_program()
    sys.exit(serve() if sys.argv[1:] == [FROM_INPUT] else main(Path(sys.argv[1]), sys.argv[2:]))
