"""Python's garbage collector: how often it looks for objects that only refer to each other.

Imports and compositions create a million objects that stay. Rescanning them took a quarter of the CPU time of a
one-second run. In training, the collector works as usual: such objects may hold tensors.
"""

import contextlib
import gc
from collections.abc import Iterator

RARELY = (200_000, 20, 100)  # net new objects before a collection of the youngest; then as in gc.set_threshold
_usual: list[tuple[int, int, int]] = []  # what `begin_program` replaced


@contextlib.contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """For work that keeps most of its objects, such as a plan: frequent collections would free little."""
    thresholds = gc.get_threshold()
    gc.set_threshold(*RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def begin_program() -> None:
    """Collect rarely until `end_imports`. For the start of a program: a library leaves the collector as it is."""
    if not _usual:
        _usual.append(gc.get_threshold())
        gc.set_threshold(*RARELY)


def end_imports() -> None:
    """Collect as usual from here on, but look no more at what was imported; does nothing without `begin_program`."""
    if _usual:
        gc.freeze()
        gc.set_threshold(*_usual.pop())
