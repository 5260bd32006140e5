"""Processor time of a call, and whether it grows in proportion to what it reads."""

import gc
import time
from collections.abc import Callable

TRIES = 5  # one of them is undisturbed


def cpu_s(function: Callable, *arguments) -> float:
    """Seconds of processor time, without the collections of what other tests have left."""
    gc.collect()
    gc.disable()
    try:
        started = time.process_time()
        function(*arguments)
        return time.process_time() - started
    finally:
        gc.enable()


def grows_linearly(seconds: Callable[[int], float], few: int, slack: float) -> bool:
    """Whether four times as much takes at most six times as long, in one of a few pairs (quadratic: 16 times)."""
    seconds(few)  # what is loaded once
    return any(seconds(4 * few) < 6 * seconds(few) + slack for _ in range(TRIES))
