"""Guards against accidental day-long runs: without a GPU, a long run is refused unless its budget was typed.

A paper's whole recipe is judged by published GPU-hours before anything is written, any other run by its first updates.
"""

import time
from collections.abc import Callable, Iterable

from harness.config.cell import Cell
from harness.config.overrides import recipe_settings, typed_values
from harness.config.table_rows import PAPER, published_hours
from harness.errors import UsageError
from harness.progress import clock

LONGEST_S = 30 * 60.0  # for a run on the CPU whose budget was not typed
WORTH_SAYING_S = 60.0
MEASURED_S, MEASURED_UPDATES = 10.0, 3  # the first measurement covers at least both


def longest(overrides: Iterable[str]) -> float | None:
    """The longest duration of a run on the CPU in seconds; None, no limit, if its budget was typed."""
    return None if any(override.lstrip("+").startswith("budget=") for override in overrides) else LONGEST_S


def refuse_long_run(cell: Cell, overrides: Iterable[str], longest_s: float) -> None:
    """Raises UsageError for a paper's whole recipe that took longer on the GPU of its authors: a CPU takes longer yet.

    `overrides`: as typed. A changed recipe is not judged.
    """
    is_whole = cell.budget == PAPER and not recipe_settings(typed_values(overrides))
    hours = published_hours(cell.task, cell.protocol) if is_whole else None
    if hours is not None and 3600 * hours > longest_s:
        refuse(3600 * hours, "or longer: published tables state this for a GPU")


def refuse(seconds: float, basis: str) -> None:
    raise UsageError(
        f"this run would last about {clock(seconds)} on this machine ({basis}): "
        "budget=reduced takes minutes; budget=paper, typed, runs it as it is"
    )


class Pace:
    """Estimates the duration of a run from its first updates. With `longest_s` None it is only printed."""

    def __init__(self, longest_s: float | None = None):
        self.longest_s = longest_s
        self.is_known = False
        self._first: tuple[int, float] | None = None  # the update after which measuring began, and when it ended

    def update(self, step: int, steps: int, say: Callable[[str], None]) -> None:
        """Call it after each update. Raises UsageError, once, for a run that would last too long."""
        now = time.monotonic()
        if self.is_known:
            return
        if self._first is None:  # the first update is slower than later ones
            self._first = step, now
            return
        updates, seconds = step - self._first[0], now - self._first[1]
        if updates < MEASURED_UPDATES or seconds < MEASURED_S:
            return
        self.is_known = True
        per_update = seconds / updates
        left = (steps - step) * per_update
        basis = f"{per_update:.2g} s per update, {steps:,} updates"
        if self.longest_s is not None and left > self.longest_s:
            refuse(left, basis)
        if left > WORTH_SAYING_S:
            say(f"about {clock(left)} of training left ({basis})")
