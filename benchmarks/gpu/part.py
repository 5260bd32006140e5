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
    "models": (3.0, "benchmarks.gpu.models", "model_rows"),
    "repeat": (2.0, "benchmarks.gpu.cells", "repeated"),
    "devices": (2.0, "benchmarks.gpu.cells", "several_devices"),
    "compile": (1.5, "benchmarks.gpu.forms", "compiled_rows"),
    "kernels": (1.5, "benchmarks.gpu.forms", "kernel_rows"),
    "speed": (3.0, "benchmarks.goals", "speed_rows"),
    "cell": (3.5, "benchmarks.gpu.cells", "paper_cell"),
}

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
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds until the part should end, at least 0."""
        return max(0.0, self.began + self.seconds - time.monotonic())

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
    done = 0
    try:
        with part_run.limited():
            for item in items:
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
    """Run a part. A crash or a hang adds a row and keeps the earlier rows."""
    # without this variable cuBLAS may choose another algorithm in a second run
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    folder = options.work.absolute() / name
    folder.mkdir(parents=True, exist_ok=True)
    (path := folder / "rows.jsonl").write_bytes(b"")
    arguments = (name, time.time() + seconds * WORKING, path, options)
    process = multiprocessing.get_context("spawn").Process(target=serve, args=arguments)
    process.start()
    try:
        process.join(seconds)
        ended = f"its process ended with status {process.exitcode}"
        if process.exitcode is None:
            ended = f"no end within {seconds:.0f} s: it hangs, or compiles for longer; `--minutes` gives more"
    finally:
        with contextlib.suppress(ProcessLookupError):  # all processes of its session
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.join()
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError):  # a killed process may leave half a row
            rows.append(json.loads(line))
    return rows[:-1] if rows[-1:] == [END] else [*rows, row(name, FAILED, ended)]


def serve(name: str, until: float, path: Path, options: Namespace) -> None:
    """The process of a part; `until` is a time.time(). An error of the part or of its import adds a row."""
    os.setsid()
    torch.set_num_threads(min(THREADS, torch.get_num_threads()))
    part_run = PartRun(torch.device(options.device), until - time.time(), path.parent, tiny=options.tiny)
    with path.open("w", encoding="utf-8") as file:
        for part_row in rows_of(name, part_run):
            print(
                f"  {part_row['name']} {part_row.get('pattern', '')}: {part_row['state']} {part_row['text']}".rstrip()
            )
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
