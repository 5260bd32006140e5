"""What the parts of `benchmarks.gpu` share: where they run, how long they may, and the rows that they yield."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

# of a check: it holds or it does not; of a number: it was measured; of either: there is no occasion, or no time
OK, FAILED, MEASURED, SKIPPED, UNFINISHED = "ok", "failed", "measured", "skipped", "unfinished"

Row = dict[str, Any]  # name, state, text, and the numbers of its part
END: Row = {"end": True}  # follows the last row of a part that came to its end


class OutOfTimeError(BaseException):
    """Of a part that has to end now; no handler of other errors may take it for a failure."""


@dataclass(frozen=True)
class Place:
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


Part = Callable[[Place], Iterator[Row]]


def row(name: str, state: str, text: str = "", **numbers: Any) -> Row:
    return {"name": name, "state": state, "text": text} | numbers
