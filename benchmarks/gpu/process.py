"""A part of `benchmarks.gpu` in a process of its own, which sends its rows one after another."""

import contextlib
import importlib
import multiprocessing
import os
import signal
import time
from argparse import Namespace
from collections.abc import Callable
from multiprocessing.connection import Connection

from benchmarks.gpu.part import END, FAILED, UNFINISHED, OutOfTimeError, Part, Place, Row, row
from harness.errors import one_line

THREADS = 8  # CPU threads at most: on the small tensors of the parts a hundred would wait for each other
WORKING = 0.85  # share of a part's time; the rest is for starting Python and for ending what runs
# part -> module and function: a part imports nothing that only others need
FUNCTIONS = {
    "models": ("benchmarks.gpu.models", "part"),
    "repeat": ("benchmarks.gpu.cells", "repeated"),
    "devices": ("benchmarks.gpu.cells", "several_devices"),
    "compile": ("benchmarks.gpu.compiled", "part"),
    "speed": ("benchmarks.gpu.speed", "part"),
    "cell": ("benchmarks.gpu.cells", "paper_cell"),
}


def in_process_of_its_own(name: str, seconds: float, options: Namespace) -> list[Row]:
    """Run a part. Its rows stay if it crashes or hangs, which is a row, too."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    # without it cuBLAS may choose another algorithm in a second run
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    until, rows = time.monotonic() + seconds, []
    arguments = (sender, name, FUNCTIONS[name], time.time() + seconds * WORKING, options)
    process = context.Process(target=serve, args=arguments)
    process.start()
    sender.close()  # so that the end of the process is the end of the rows
    ended = f"no end within {seconds:.0f} s: it hangs"
    try:
        while receiver.poll(max(0.0, until - time.monotonic())):
            rows.append(receiver.recv())
    except (EOFError, OSError):  # OSError: a process that was killed may leave half a row
        process.join(max(0.0, until - time.monotonic()))
        if process.exitcode is not None:
            ended = f"its process ended with status {process.exitcode}"
    finally:
        stop(process)
    return rows[:-1] if rows[-1:] == [END] else [*rows, row(name, FAILED, ended)]


def stop(process: multiprocessing.process.BaseProcess) -> None:
    """End a part with all processes that it started, which belong to its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def serve(sender: Connection, name: str, function: tuple[str, str], until: float, options: Namespace) -> None:
    """The process of a part; `until` is a time.time()."""
    os.setsid()
    import torch

    torch.set_num_threads(min(THREADS, torch.get_num_threads()))
    folder = options.work.absolute() / name
    folder.mkdir(parents=True, exist_ok=True)
    place = Place(torch.device(options.device), until - time.time(), folder, tiny=options.tiny)

    def tell(part_row: Row) -> None:
        print(shown(part_row), flush=True)
        sender.send(part_row)

    run_part(name, lambda: getattr(importlib.import_module(function[0]), function[1]), place, tell)
    sender.send(END)


def run_part(name: str, find: Callable[[], Part], place: Place, tell: Callable[[Row], None]) -> None:
    """Tell the rows of a part; an error that ends it is a row, too, also an error of its import."""
    try:
        for part_row in find()(place):
            tell(part_row)
    except OutOfTimeError:
        tell(row(name, UNFINISHED, "the time was over"))
    except Exception as error:
        tell(row(name, FAILED, f"{type(error).__name__}: {one_line(error)[:400]}"))


def shown(part_row: Row) -> str:
    """A row on the terminal."""
    head = f"  {part_row['name']}" + (f" ({part_row['pattern']})" if part_row.get("pattern") else "")
    if "value" in part_row:
        value = "never" if part_row["value"] is None else f"{part_row['value']:.4g} {part_row['unit']}".strip()
        return f"{head}: {value} (goal {'≥' if part_row['at_least'] else '≤'} {part_row['goal']:g})"
    return f"{head}: {part_row['state']}" + (f": {part_row['text']}" if part_row["text"] else "")
