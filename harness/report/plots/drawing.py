"""Pictures drawn by further processes, one per core.

A picture is drawn from data alone, so it has the same bytes in whichever process. They draw while the command makes
tables. The command draws a few pictures itself: a process takes a second until it can draw.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
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
    """Yields a function that takes pictures, which are all drawn when the block ends.

    `workers`: processes, by default one per core; they begin as soon as there are more than FEW pictures. Raises what
    the first picture that failed raises in its process, and UsageError if a process dies.
    """
    workers = workers or len(os.sched_getaffinity(0))
    if workers < 2:
        yield draw_now
        return
    pictures: list[tuple[Callable[[], None], Sequence[Path]]] = []
    futures: list[Future[None]] = []
    with contextlib.ExitStack() as stack:
        pool = None

        def schedule(draw: Callable[[], None], files: Sequence[Path]) -> None:
            nonlocal pool
            pictures.append((draw, files))
            if len(pictures) > FEW:
                if pool is None:
                    pool = process_pool(workers)
                    stack.callback(pool.shutdown, cancel_futures=True)
                futures.extend(pool.submit(draw_now, *picture) for picture in pictures[len(futures) :])

        try:
            yield schedule
            for draw, files in pictures if pool is None else ():
                draw_now(draw, files)
            for future in futures:
                future.result()
        except BrokenProcessPool as error:
            (_, files), *_ = (picture for picture, future in zip(pictures, futures, strict=False) if future.exception())
            raise UsageError(f"{files[0]}: a process that draws died (memory?): type the command again") from error
