"""The device, the time limit and the rows that all parts of `benchmarks.gpu` share."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from harness.errors import UsageError, one_line

# a check is ok or failed, a number is measured; both may be skipped (not possible here) or unfinished (no time)
OK, FAILED, MEASURED, SKIPPED, UNFINISHED = "ok", "failed", "measured", "skipped", "unfinished"

Row = dict[str, Any]  # name, state, text, and the numbers of its part
END: Row = {"end": True}  # follows the last row of a part that ended normally


class OutOfTimeError(BaseException):
    """Ends a part now. It is a BaseException, so that no handler of errors catches it."""


@dataclass(frozen=True)
class PartRun:
    """The device, time limit and output folder of a part. `tiny`: the sizes of tests."""

    device: torch.device
    seconds: float
    folder: Path
    tiny: bool = False
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds until the part should end, at least 0."""
        return max(0.0, self.began + self.seconds - time.monotonic())

    @contextlib.contextmanager
    def limited(self) -> Iterator[None]:
        """Raise OutOfTimeError in the body once the time is over. A call that never returns is not interrupted."""

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
    """A piece of a part: its label, its rows, and the further entries of an error's row."""

    label: str
    rows: Callable[[], Iterable[Row]]
    error_row: dict[str, Any]


def rows_in_time(name: str, items: Sequence[Item], part_run: PartRun) -> Iterator[Row]:
    """The rows of all items until the time is over. A last row names the items without time.

    An error adds a row, even if the device has failed.
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
