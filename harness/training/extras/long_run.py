"""Guards against accidental day-long runs: without a GPU, a long run is refused unless its budget was typed.

The duration is estimated twice: before anything is written, from records of this machine or else from published
GPU-hours; then from the first updates.
"""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from harness.config.cell import Cell
from harness.config.overrides import recipe_settings, typed_values
from harness.config.table_rows import PAPER, published_hours
from harness.errors import UsageError
from harness.progress import clock
from harness.records.collect import load_records
from harness.records.estimate import estimate
from harness.records.provenance import cpu_name

LONGEST_S = 30 * 60.0  # for a run on the CPU whose budget was not typed
WORTH_SAYING_S = 60.0
MEASURED_S, MEASURED_UPDATES = 10.0, 3  # the first measurement covers at least both


def longest(overrides: Iterable[str]) -> float | None:
    """The longest duration of a run on the CPU in seconds; None, no limit, if its budget was typed."""
    return None if any(override.lstrip("+").startswith("budget=") for override in overrides) else LONGEST_S


def refuse_long_run(cell: Cell, folder: Path, overrides: Iterable[str], longest_s: float) -> None:
    """Raises UsageError for a cell that would last longer.

    It is judged by the records of similar cells in `folder` that a machine like this made without a GPU, and for a
    paper's whole recipe by the time on the GPU of its authors: a CPU takes longer yet. `overrides`: as typed. A changed
    recipe is not judged by that time.
    """
    here, settings = records_here(folder), recipe_settings(typed_values(overrides))
    hours = published_hours(cell.task, cell.protocol) if cell.budget == PAPER and not settings else None
    estimated = estimate(cell, here)
    if estimated is not None and estimated.seconds > longest_s:
        refuse(estimated.seconds, f"by {estimated.source}")
    if hours is not None and 3600 * hours > longest_s:
        refuse(3600 * hours, "or longer: published tables state this for a GPU")


def records_here(folder: Path) -> list[dict[str, Any]]:
    """The valid records of a folder that a machine like this made without a GPU."""
    records = [entries for entries in load_records(folder, broken=[]) if not entries["hardware"]["gpu"]]
    return [entries for entries in records if entries["hardware"]["cpu"] == cpu_name()]


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
