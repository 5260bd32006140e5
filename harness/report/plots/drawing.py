"""Pictures drawn by further processes, one per core.

A picture is drawn from data alone, so it has the same bytes in whichever process. A few pictures are drawn by the
command itself, because a process takes a second until it can draw.
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
    """Yields a function that takes pictures, which are all drawn when the block ends.

    `workers`: processes, by default one per core. Raises what the first picture that failed raises in its process, and
    UsageError if a process dies.
    """
    pictures: list[tuple[Callable[[], None], Sequence[Path]]] = []
    yield lambda draw, files: pictures.append((draw, files))
    workers = workers or len(os.sched_getaffinity(0))
    if workers < 2 or len(pictures) <= FEW:
        for picture in pictures:
            draw_now(*picture)
        return
    with process_pool(workers) as pool:
        futures = [pool.submit(draw_now, *picture) for picture in pictures]
        try:
            for future in futures:
                future.result()
        except BrokenProcessPool as error:
            files = next(files for (_, files), future in zip(pictures, futures, strict=True) if future.exception())
            raise UsageError(f"{files[0]}: a process that draws died (memory?): type the command again") from error
        finally:
            pool.shutdown(cancel_futures=True)
