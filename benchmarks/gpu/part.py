"""What the parts of `benchmarks.gpu` share: device, time limit and rows; and each part's process."""

import contextlib
import importlib
import json
import multiprocessing
import os
import signal
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from harness.errors import UsageError, one_line

# a check is ok or failed, a number is measured; both may be skipped (not possible here) or unfinished (no time)
OK, FAILED, MEASURED, SKIPPED, UNFINISHED = "ok", "failed", "measured", "skipped", "unfinished"
THREADS = 8  # CPU threads at most: the tensors of the parts are too small for more
WORKING = 0.85  # share of a part's time; the rest is for starting Python and for ending what runs
# part -> share of the time, module and function: each part imports only what it needs
PARTS = {
    "models": (2.0, "benchmarks.gpu.models", "model_rows"),
    "repeat": (1.0, "benchmarks.gpu.cells", "repeated"),
    "devices": (1.0, "benchmarks.gpu.cells", "several_devices"),
    "compile": (3.0, "benchmarks.gpu.forms", "compiled_rows"),
    "kernels": (1.5, "benchmarks.gpu.forms", "kernel_rows"),
    "speed": (2.5, "benchmarks.goals", "speed_rows"),
    "cell": (2.0, "benchmarks.gpu.cells", "paper_cell"),
}
HANGS = 0.4  # share of a part's time, after which one of its items hangs
POLL_S = 0.2
BEGUN = "begun.txt"  # in a part's folder: number and label of the item that it works on

Row = dict[str, Any]  # name, state, text, and the numbers of its part
END: Row = {"end": True}  # follows the last row of a part that ended normally


class OutOfTimeError(BaseException):
    """Ends a part now. It is a BaseException, so that no handler of errors catches it."""


@dataclass(frozen=True)
class PartRun:
    """The device, time limit and output folder of a part. `tiny`: the sizes of tests."""

    device: torch.device
    seconds: float
    folder: Path
    tiny: bool = False
    skip: int = 0  # items that an earlier process of the part worked on
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds until the part should end, at least 0."""
        return max(0.0, self.began + self.seconds - time.monotonic())

    def begin(self, number: int, label: str) -> None:
        (self.folder / BEGUN).write_text(f"{number}\n{label}", encoding="utf-8")

    @contextlib.contextmanager
    def limited(self) -> Iterator[None]:
        """Raise OutOfTimeError in the body once the time is over. A call that never returns is not interrupted."""

        def over(*_: Any) -> None:
            raise OutOfTimeError

        before = signal.signal(signal.SIGALRM, over)
        signal.setitimer(signal.ITIMER_REAL, max(self.left, 1e-3))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)

    @property
    def accelerator(self) -> str:
        """As `resources.accelerator` has it."""
        return "gpu" if self.device.type == "cuda" else self.device.type


def row(name: str, state: str, text: str = "", **numbers: Any) -> Row:
    return {"name": name, "state": state, "text": text} | numbers


class Item(NamedTuple):
    """A piece of a part: its label, its rows, and the further entries of an error's row."""

    label: str
    rows: Callable[[], Iterable[Row]]
    error_row: dict[str, Any]


def rows_in_time(name: str, items: Sequence[Item], part_run: PartRun) -> Iterator[Row]:
    """The rows of all items until the time is over. A last row names the items without time.

    An error adds a row, even if the device has failed.
    """
    done = part_run.skip
    try:
        with part_run.limited():
            for item in items[done:]:
                part_run.begin(done, item.label)
                try:
                    yield from item.rows()
                except Exception as error:
                    kind = "" if isinstance(error, UsageError) else f"{type(error).__name__}: "
                    yield {"state": FAILED, "text": f"{kind}{one_line(error)[:300]}", **item.error_row}
                    torch.cuda.empty_cache()
                done += 1
    except OutOfTimeError:
        late = ", ".join(item.label for item in items[done:])
        yield row(name, UNFINISHED, f"no time for {len(items) - done} of {len(items)}: {late}")


def in_separate_process(name: str, seconds: float, options: Namespace) -> list[Row]:
    """Run a part. A crash or a hang adds a row; the other rows stay, and a new process continues with the next item."""
    # without this variable cuBLAS may choose another algorithm in a second run
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    folder = options.work.absolute() / name
    folder.mkdir(parents=True, exist_ok=True)
    path, begun = folder / "rows.jsonl", folder / BEGUN
    until, rows, skip = time.monotonic() + seconds, [], 0
    while True:
        path.write_bytes(b"")
        begun.unlink(missing_ok=True)
        left = until - time.monotonic()
        process = server().Process(target=serve, args=(name, time.time() + left * WORKING, path, options, skip))
        process.start()
        try:
            while process.exitcode is None and time.monotonic() < until and age(begun) < HANGS * seconds:
                process.join(POLL_S)
            ended = f"its process ended with status {process.exitcode}"
            if process.exitcode is None:
                limit = HANGS * seconds if begun.exists() else seconds
                ended = f"no end within {limit:.0f} s: it hangs, or compiles for longer; `--minutes` gives more"
        finally:
            with contextlib.suppress(ProcessLookupError):  # all processes of its session
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.join()
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):  # a killed process may leave half a row
                rows.append(json.loads(line))
        if rows[-1:] == [END]:
            return rows[:-1]
        number, label = begun.read_text(encoding="utf-8").split("\n") if begun.exists() else (None, name)
        rows.append(row(label, FAILED, ended))
        if number is None or time.monotonic() > until - seconds * (1 - WORKING):
            return rows
        skip = int(number) + 1


def age(file: Path) -> float:
    """Seconds since a file was written; 0 if it is not there."""
    with contextlib.suppress(OSError):
        return max(0.0, time.time() - file.stat().st_mtime)
    return 0.0


def server() -> multiprocessing.context.BaseContext:
    """Processes are forks of one that has imported torch and the parts, once; it has not used the device."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(sorted({module for _, module, _ in PARTS.values()}))
    return context


def serve(name: str, until: float, path: Path, options: Namespace, skip: int = 0) -> None:
    """The process of a part; `until` is a time.time(). An error of the part or of its import adds a row."""
    os.setsid()
    torch.set_num_threads(min(THREADS, torch.get_num_threads()))
    part_run = PartRun(torch.device(options.device), until - time.time(), path.parent, options.tiny, skip)
    with path.open("w", encoding="utf-8") as file:
        for part_row in rows_of(name, part_run):
            text = f"  {part_row['name']} {part_row.get('pattern', '')}: {part_row['state']} {part_row['text']}"
            print(text.rstrip(), flush=True)
            print(json.dumps(part_row), file=file, flush=True)
        print(json.dumps(END), file=file, flush=True)


def rows_of(name: str, part_run: PartRun) -> Iterator[Row]:
    _, module, function = PARTS[name]
    try:
        yield from getattr(importlib.import_module(module), function)(part_run)
    except OutOfTimeError:
        yield row(name, UNFINISHED, "the time was over")
    except Exception as error:
        yield row(name, FAILED, f"{type(error).__name__}: {one_line(error)[:400]}")
