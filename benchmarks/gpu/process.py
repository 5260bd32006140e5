"""A part of `benchmarks.gpu` in a separate process, which sends its rows one at a time."""

import contextlib
import importlib
import multiprocessing
import os
import signal
import time
from argparse import Namespace
from collections.abc import Callable
from multiprocessing.connection import Connection

from benchmarks.gpu.part import END, FAILED, UNFINISHED, OutOfTimeError, Part, PartRun, Row, goal_texts, row
from harness.errors import one_line

THREADS = 8  # CPU threads at most: the tensors of the parts are too small for more
WORKING = 0.85  # share of a part's time; the rest is for starting Python and for ending what runs
# part -> module and function: each part imports only what it needs
FUNCTIONS = {
    "models": ("benchmarks.gpu.models", "model_rows"),
    "repeat": ("benchmarks.gpu.cells", "repeated"),
    "devices": ("benchmarks.gpu.cells", "several_devices"),
    "compile": ("benchmarks.gpu.compiled", "compiled_rows"),
    "kernels": ("benchmarks.gpu.kernels", "kernel_rows"),
    "speed": ("benchmarks.gpu.speed", "speed_rows"),
    "cell": ("benchmarks.gpu.cells", "paper_cell"),
}


def in_separate_process(name: str, seconds: float, options: Namespace) -> list[Row]:
    """Run a part. A crash or a hang adds a row and keeps the earlier rows."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    # without this variable cuBLAS may choose another algorithm in a second run
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    until, rows = time.monotonic() + seconds, []
    arguments = (sender, name, FUNCTIONS[name], time.time() + seconds * WORKING, options)
    process = context.Process(target=serve, args=arguments)
    process.start()
    sender.close()  # the end of the process then ends the rows
    ended = f"no end within {seconds:.0f} s: it hangs, or compiles for longer; `--minutes` gives more"
    try:
        while receiver.poll(max(0.0, until - time.monotonic())):
            rows.append(receiver.recv())
    except (EOFError, OSError):  # OSError: a killed process may leave half a row
        process.join(max(0.0, until - time.monotonic()))
        if process.exitcode is not None:
            ended = f"its process ended with status {process.exitcode}"
    finally:
        stop(process)
    return rows[:-1] if rows[-1:] == [END] else [*rows, row(name, FAILED, ended)]


def stop(process: multiprocessing.process.BaseProcess) -> None:
    """End a part and all processes of its session."""
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
    part_run = PartRun(torch.device(options.device), until - time.time(), folder, tiny=options.tiny)

    def tell(part_row: Row) -> None:
        print(shown(part_row), flush=True)
        sender.send(part_row)

    run_part(name, lambda: getattr(importlib.import_module(function[0]), function[1]), part_run, tell)
    sender.send(END)


def run_part(name: str, find: Callable[[], Part], part_run: PartRun, tell: Callable[[Row], None]) -> None:
    """Pass on the rows of a part. An error of the part or of its import adds a row."""
    try:
        for part_row in find()(part_run):
            tell(part_row)
    except OutOfTimeError:
        tell(row(name, UNFINISHED, "the time was over"))
    except Exception as error:
        tell(row(name, FAILED, f"{type(error).__name__}: {one_line(error)[:400]}"))


def shown(part_row: Row) -> str:
    """A row on the terminal."""
    head = f"  {part_row['name']}" + (f" ({part_row['pattern']})" if part_row.get("pattern") else "")
    if "value" in part_row:
        value, goal = goal_texts(part_row)
        return f"{head}: {value} (goal {goal})"
    return f"{head}: {part_row['state']}" + (f": {part_row['text']}" if part_row["text"] else "")
