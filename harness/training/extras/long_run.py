"""No surprise of a day: without a GPU a run says how long it will take, and a long one wants its budget typed.

The time is estimated twice: from records of this machine before anything is written, and from the first updates.
"""

import time
from collections.abc import Callable, Iterable

from omegaconf import DictConfig

from harness.config.cell import Cell
from harness.config.overrides import typed_values
from harness.errors import UsageError
from harness.progress import clock
from harness.records.collect import load_records
from harness.records.estimate import Estimate, estimate
from harness.records.provenance import cpu_name

LONGEST_S = 30 * 60.0  # of a run on the CPU whose budget was not typed
WORTH_SAYING_S = 60.0
MEASURED_S, MEASURED_UPDATES = 10.0, 3  # after which the pace of a run is known


def longest(overrides: Iterable[str]) -> float | None:
    """Seconds that a run may last which is started here; None, no limit, where its budget was typed."""
    return None if "budget" in typed_values(overrides) else LONGEST_S


def refuse_by_records(cell: Cell, cfg: DictConfig, longest_s: float) -> None:
    """Raises UsageError for a cell that lasts longer by what cells like it took on this machine."""
    found = estimate_here(cell, cfg)
    if found is not None and found.seconds > longest_s:
        refuse(found.seconds, f"by {found.source}")


def estimate_here(cell: Cell, cfg: DictConfig) -> Estimate | None:
    """From records of the same task, protocol and budget that this machine made without a GPU."""
    folder = cell.record_path(cfg).parent
    records = [entries for entries in load_records(folder, broken=[]) if not entries["hardware"]["gpu"]]
    return estimate(cell, [entries for entries in records if entries["hardware"]["cpu"] == cpu_name()])


def refuse(seconds: float, basis: str) -> None:
    raise UsageError(
        f"this run would last about {clock(seconds)} on this machine ({basis}): "
        "budget=reduced takes minutes; budget=paper, typed, runs it as it is"
    )


class Pace:
    """What the first updates of a run tell about the time of all. `longest_s` None: it is only said."""

    def __init__(self, longest_s: float | None = None):
        self.longest_s = longest_s
        self.known = False
        self._first: tuple[int, float] | None = None  # the update after which measuring began, and when it ended

    def update(self, step: int, steps: int, say: Callable[[str], None]) -> None:
        """To be called after each update. Raises UsageError, once, for a run that would last too long."""
        now = time.monotonic()
        if self.known:
            return
        if self._first is None:  # the first update is slower than the others
            self._first = step, now
            return
        updates, seconds = step - self._first[0], now - self._first[1]
        if updates < MEASURED_UPDATES or seconds < MEASURED_S:
            return
        self.known = True
        each, left = seconds / updates, (steps - step) * seconds / updates
        basis = f"{each:.2g} s an update, {steps:,} updates"
        if self.longest_s is not None and left > self.longest_s:
            refuse(left, basis)
        if left > WORTH_SAYING_S:
            say(f"about {clock(left)} of training left ({basis})")
