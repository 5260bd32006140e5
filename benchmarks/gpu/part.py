"""What the parts of `benchmarks.gpu` share: where they run, for how long, and the rows that they yield."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from harness.errors import UsageError, one_line

# a check is ok or failed, a number is measured; either may be skipped for want of an occasion, or find no time
OK, FAILED, MEASURED, SKIPPED, UNFINISHED = "ok", "failed", "measured", "skipped", "unfinished"

Row = dict[str, Any]  # name, state, text, and the numbers of its part
END: Row = {"end": True}  # follows the last row of a part that came to its end


class OutOfTimeError(BaseException):
    """Ends a part now; a BaseException, so that no handler of other errors takes it for a failure."""


@dataclass(frozen=True)
class PartRun:
    """Where a part runs. `folder` holds what it writes, `tiny` asks for the sizes of tests."""

    device: torch.device
    seconds: float
    folder: Path
    tiny: bool = False
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds until a part should end by itself; not below 0."""
        return max(0.0, self.began + self.seconds - time.monotonic())

    @contextlib.contextmanager
    def limited(self) -> Iterator[None]:
        """Raise OutOfTimeError in what runs once the time is over; a call that never returns is not interrupted."""

        def over(*_: Any) -> None:
            raise OutOfTimeError

        before = signal.signal(signal.SIGALRM, over)
        signal.setitimer(signal.ITIMER_REAL, max(self.left, 1e-3))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)

    @property
    def accelerator(self) -> str:
        """As `resources.accelerator` has it."""
        return "gpu" if self.device.type == "cuda" else self.device.type


Part = Callable[[PartRun], Iterator[Row]]


def row(name: str, state: str, text: str = "", **numbers: Any) -> Row:
    return {"name": name, "state": state, "text": text} | numbers


def goal_texts(goal_row: Row) -> tuple[str, str]:
    """The measured value of a goal's row with its unit, and the goal with its sign."""
    value = "never" if goal_row["value"] is None else f"{goal_row['value']:.4g} {goal_row['unit']}".strip()
    return value, f"{'≥' if goal_row['at_least'] else '≤'} {goal_row['goal']:g}"


class Item(NamedTuple):
    """A piece of a part: its label, its rows, and what the row of an error holds beside the error."""

    label: str
    rows: Callable[[], Iterable[Row]]
    error_row: dict[str, Any]


def rows_in_time(name: str, items: Sequence[Item], part_run: PartRun) -> Iterator[Row]:
    """The rows of all items until the time is over; the items without time are named in a row.

    An error is a row, even if the device is out of order.
    """
    done = 0
    try:
        with part_run.limited():
            for item in items:
                try:
                    yield from item.rows()
                except Exception as error:
                    kind = "" if isinstance(error, UsageError) else f"{type(error).__name__}: "
                    yield {"state": FAILED, "text": f"{kind}{one_line(error)[:300]}", **item.error_row}
                    torch.cuda.empty_cache()
                done += 1
    except OutOfTimeError:
        late = ", ".join(item.label for item in items[done:])
        yield row(name, UNFINISHED, f"no time for {len(items) - done} of {len(items)}: {late}")
