"""Pictures drawn by further processes, one per core, while the command makes the pages.

A picture is drawn from data alone, so it has the same bytes in whichever process. The command draws a few pictures
itself: a process takes a second until it can draw.
"""

import contextlib
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from harness.errors import UsageError
from tasks.workers import process_pool

FEW = 4  # pictures that are drawn without further processes
Schedule = Callable[[Callable[[], None], Sequence[Path]], None]  # takes a function that writes files, and the files


def draw_now(draw: Callable[[], None], files: Sequence[Path]) -> None:
    """Draw at once. An error of a file names the picture."""
    try:
        draw()
    except OSError as error:
        where = files[0] if error.filename is None else error.filename
        raise OSError(error.errno, error.strerror or str(error), str(where)) from error
    except UsageError:
        raise
    except Exception as error:
        error.add_note(f"while {files[0]} was drawn")
        raise


@contextlib.contextmanager
def drawing_processes(workers: int | None = None) -> Iterator[Schedule]:
    """Yields a function that takes pictures; all of them are drawn when the block ends.

    `workers`: processes, by default one per core. Raises what the first picture that failed raises in its process, and
    UsageError if a process dies.
    """
    workers = workers or len(os.sched_getaffinity(0))
    if workers < 2:
        yield draw_now
        return
    waiting: list[tuple[Callable[[], None], Sequence[Path]]] = []
    begun: list[tuple[Future[None], Sequence[Path]]] = []
    pool: ProcessPoolExecutor | None = None

    def schedule(draw: Callable[[], None], files: Sequence[Path]) -> None:
        nonlocal pool
        waiting.append((draw, files))
        if len(waiting) <= FEW and pool is None:
            return
        pool = pool or process_pool(workers)
        while waiting:
            next_draw, its_files = waiting.pop(0)
            with _death_named(its_files):
                begun.append((pool.submit(_draw, pickle.dumps(next_draw), its_files), its_files))

    try:
        yield schedule
        for draw, files in waiting:
            draw_now(draw, files)
        for future, files in begun:
            with _death_named(files):
                future.result()
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)


def _draw(pickled: bytes, files: Sequence[Path]) -> None:
    draw_now(pickle.loads(pickled), files)


@contextlib.contextmanager
def _death_named(files: Sequence[Path]) -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        raise UsageError(f"{files[0]}: a process that draws died (memory?): type the command again") from error
