"""Worker processes that make data and end with this process."""

import contextlib
import ctypes
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

PARENT_DEATH = 1  # PR_SET_PDEATHSIG, sys/prctl.h


class Pool(ProcessPoolExecutor):
    """A pool whose processes do not run the script that started them.

    `multiprocessing` runs the main script again in each spawned process, so a script without
    `if __name__ == "__main__":` would start its own work there. Functions of these processes come from packages.
    """

    def submit(self, *arguments: Any, **keywords: Any) -> Future:
        with without_script():  # a pool starts its processes at the first tasks
            return super().submit(*arguments, **keywords)


@contextlib.contextmanager
def without_script() -> Iterator[None]:
    """Hide the file of the main script, which `multiprocessing` would run in a new process."""
    main = sys.modules["__main__"]
    hidden = {name: getattr(main, name) for name in ("__file__", "__spec__") if getattr(main, name, None) is not None}
    for name in hidden:
        setattr(main, name, None)
    try:
        yield
    finally:
        for name, value in hidden.items():
            setattr(main, name, value)


def process_pool(workers: int) -> Pool:
    """Spawned, not forked: the caller may have threads (torch, OpenMP), whose locks a fork would leave held.

    The processes wait for work on a pipe that they hold open themselves. Without `terminate_with_parent` they would
    outlive a killed caller. They collect garbage as often as the caller does.
    """
    return Pool(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=begin_worker,
        initargs=(os.getpid(), gc.get_threshold()),
    )


def divided(
    function: Callable[[Any], Any],
    jobs: Sequence[Any],
    workers: int,
    finished: Callable[[Any], object] = lambda result: None,
) -> list[Any]:
    """`function(job)` for each, by `workers` processes from the start and by this process from the end.

    Without workers this process does all. `finished` gets each result at once. Jobs of a process that was killed are
    done here.
    """
    results: dict[int, Any] = {}

    def keep(number: int, result: Any) -> None:
        results[number] = result
        finished(result)

    with contextlib.ExitStack() as stack, contextlib.suppress(BrokenProcessPool):
        futures = []
        if workers:
            pool = process_pool(workers)
            stack.callback(pool.shutdown, cancel_futures=True)
            futures = [pool.submit(function, job) for job in jobs]
        for number, future in reversed(list(enumerate(futures))):
            if future.cancel():
                keep(number, function(jobs[number]))
        for number, future in enumerate(futures):
            if number not in results:
                keep(number, future.result())
    for number, job in enumerate(jobs):
        if number not in results:
            keep(number, function(job))
    return [results[number] for number in range(len(jobs))]


def begin_worker(parent: int, thresholds: tuple[int, int, int]) -> None:
    gc.set_threshold(*thresholds)
    terminate_with_parent(parent)


def terminate_with_parent(parent: int, number: int = signal.SIGTERM) -> None:
    """Have the kernel send this process a signal when its parent, which has this id, ends; on Linux."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PARENT_DEATH, number)
    if os.getppid() != parent:  # it ended before that
        os.kill(os.getpid(), number)
