"""Pictures drawn by further processes, one per core.

A picture is drawn from data alone, so it has the same bytes in whichever process. The command draws a few pictures
itself: a process takes a second until it can draw.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
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
    """Yields a function that takes pictures, which are drawn when the block ends.

    `workers`: processes, by default one per core. Raises what the first picture that failed raises in its process, and
    UsageError if a process dies.
    """
    workers = workers or len(os.sched_getaffinity(0))
    if workers < 2:
        yield draw_now
        return
    waiting: list[tuple[Callable[[], None], Sequence[Path]]] = []
    yield lambda draw, files: waiting.append((draw, files))
    if len(waiting) <= FEW:
        for draw, files in waiting:
            draw_now(draw, files)
        return
    pool = process_pool(workers)
    try:
        futures = [pool.submit(draw_now, draw, files) for draw, files in waiting]
        for future, (_, files) in zip(futures, waiting, strict=True):
            try:
                future.result()
            except BrokenProcessPool as error:
                message = f"{files[0]}: a process that draws died (memory?): type the command again"
                raise UsageError(message) from error
    finally:
        pool.shutdown(cancel_futures=True)
