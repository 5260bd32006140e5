"""Carrying out cells: in this process one after another, or side by side, each in a process of its own.

`python -m harness.launch.local CELL.yaml` carries out one frozen cell and leaves `CELL.result.json`.
"""

import contextlib
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
from harness.config.compose import ROOT
from harness.errors import one_line
from harness.launch import serialized_cell
from harness.training.rank import rank
from harness.training.run_cell import CellRequest, CellResult, run_cell
from harness.training.signals import SCHEDULER, STOPPED, StopSignal, will_requeue

LOOK_S = 0.1


def run_sequential(requests: Iterable[CellRequest], *, fail_fast: bool = False) -> Iterator[CellResult]:
    """Outcomes of cells, one after another; none begins after a signal, or with `fail_fast` after a failure."""
    for request in requests:
        outcome = run_cell(request)
        yield outcome
        if outcome.code >= STOPPED or (fail_fast and outcome.code):
            return


def run_parallel(
    paths: Sequence[Path],
    at_once: int,
    mark: StopSignal,
    *,
    width: int = 1,
    watch: Callable[[int, int], None] = lambda done, running: None,
) -> Iterator[CellResult]:
    """Outcomes of cells, each in a process of its own, as they come; `at_once` of them at any moment.

    A signal in `mark` is passed on: no further cell begins, those that run save what they have. `width`: devices of a
    cell; cells take turns at the GPUs that can be seen. `watch(done, running)` is called now and then.
    """
    waiting, running, done = list(paths), {}, 0
    slots, seen = list(range(at_once)), gpus()
    shares = [",".join(seen[i : i + width]) for i in range(0, len(seen) - width + 1, width)]
    threads = max(1, len(os.sched_getaffinity(0)) // (at_once * width))
    passed_on = False
    while running or (waiting and mark.number is None):
        while waiting and slots and mark.number is None:
            path, slot = waiting.pop(0), slots.pop(0)
            running[start(path, shares[slot % len(shares)] if shares else None, threads)] = (path, slot)
        if mark.number is not None and not passed_on:
            passed_on = True
            number = SCHEDULER if will_requeue(mark.number) else mark.number
            for process in running:
                process.send_signal(number)
        for process in [process for process in running if process.poll() is not None]:
            path, slot = running.pop(process)
            slots.append(slot)
            done += 1
            yield result_of(path, process.returncode, mark)
        watch(done, len(running))
        time.sleep(LOOK_S)


def start(path: Path, devices: str | None, threads: int) -> subprocess.Popen:
    modules = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    # two processes that both take all cores are many times slower than one
    environment = {"OMP_NUM_THREADS": str(threads)} | os.environ | {"PYTHONPATH": os.pathsep.join(modules)}
    if devices is not None:
        environment["CUDA_VISIBLE_DEVICES"] = devices
    with log_of(path).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "harness.launch.local", str(path.absolute())],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, cwd=ROOT,
            start_new_session=True,  # Ctrl-C reaches us alone; it is passed on once
            preexec_fn=end_with_parent,
        )  # fmt: skip


def end_with_parent() -> None:
    """Have this process asked to stop (SIGTERM) when the one that started it is gone; on Linux."""
    import ctypes

    parent_death = 1  # PR_SET_PDEATHSIG, sys/prctl.h
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(parent_death, signal.SIGTERM)


def width(cfg: DictConfig) -> int:
    """Devices of a cell on one machine."""
    return cfg.trainer.devices if isinstance(cfg.trainer.devices, int) else 1


def gpus() -> list[str]:
    """Names of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES takes them."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name]
    try:
        asked = subprocess.run(
            ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return asked.stdout.split() if asked.returncode == 0 else []


def result_of(path: Path, code: int, mark: StopSignal) -> CellResult:
    """What a process left; one that was killed leaves nothing but its log. `mark`: the signal that it was sent."""
    try:
        return CellResult(**json.loads(left_by(path).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        name = str(cell_of(serialized_cell.read(path).cfg))
        if mark.number is not None and code < 0:
            return CellResult(name, "interrupted", STOPPED + mark.number, "stopped before it had trained")
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        lines = log_of(path).read_text(encoding="utf-8", errors="replace").splitlines()[-1:]
        said = f" after '{one_line(lines[0])[:200]}'" if lines else ""
        return CellResult(name, "dead", 1, f"{how}{said} · {log_of(path)}")


def log_of(path: Path) -> Path:
    return path.with_suffix(".log")


def left_by(path: Path) -> Path:
    return path.with_suffix(".result.json")


def main(path: Path) -> int:
    if rank() == 0:
        left_by(path).unlink(missing_ok=True)
    outcome = run_cell(serialized_cell.read(path))
    if rank() == 0:
        left_by(path).write_text(json.dumps(asdict(outcome)), encoding="utf-8")
    return outcome.code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
