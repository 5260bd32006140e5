"""Worker processes that make data and end with this process."""

import contextlib
import ctypes
import multiprocessing
import os
import signal
from concurrent.futures import ProcessPoolExecutor

PARENT_DEATH = 1  # PR_SET_PDEATHSIG, sys/prctl.h


def process_pool(workers: int) -> ProcessPoolExecutor:
    """Spawned, not forked: the caller may have threads (torch, OpenMP), whose locks a fork would leave held.

    The processes wait for work on a pipe that they hold open themselves. Without `terminate_with_parent` they would
    outlive a killed caller.
    """
    return ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=terminate_with_parent,
        initargs=(os.getpid(),),
    )


def terminate_with_parent(parent: int) -> None:
    """Have the kernel send this process SIGTERM when its parent, which has this id, ends; on Linux."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before that
        os.kill(os.getpid(), signal.SIGTERM)
