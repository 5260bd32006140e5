"""Progress that a person can watch and a log can keep: a rich bar on a terminal, else one plain line now and then."""

import sys
import time
from collections.abc import Callable
from typing import Any

EVERY_S = 10.0


def clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


class Progress:
    """Several named bars, one after the other; `update` is cheap enough to call at every step.

    `note` also receives every plain line (the run's log), whether or not a terminal shows bars instead.
    """

    def __init__(self, note: Callable[[str], None] | None = None, *, silent: bool = False):
        self._note = note
        self._silent = silent
        self._live: Any = None
        self._bars: dict[str, Any] = {}
        self._started: dict[str, tuple[float, int]] = {}
        self._printed: dict[str, float] = {}
        if sys.stderr.isatty() and not silent:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as Bars

            self._live = Bars(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[detail]}"),
                console=Console(stderr=True),
            )
            self._live.start()

    def __call__(self, what: str, done: int, total: int, detail: str = "") -> None:
        self.update(what, done, total, detail)

    def update(self, what: str, done: int, total: int, detail: str = "") -> None:
        now = time.monotonic()
        if what not in self._started:
            self._started[what] = (now, done)
            self._printed[what] = now
            if self._live is not None:
                self._bars[what] = self._live.add_task(what, total=total, completed=done, detail=detail)
        if self._live is not None:
            self._live.update(self._bars[what], completed=done, total=total, detail=detail)
        if now - self._printed[what] >= EVERY_S:
            self._printed[what] = now
            start, first = self._started[what]
            rate = (done - first) / max(now - start, 1e-9)
            left = clock((total - done) / rate) if rate > 0 else "?"
            line = f"{what} {done}/{total} ({100 * done / max(total, 1):.0f} %) {rate:.3g}/s, {left} left"
            self._line(f"{line} {detail}".rstrip(), shown=self._live is not None)

    def say(self, line: str) -> None:
        """One line that stays."""
        if self._live is not None:
            self._live.console.print(line, highlight=False, markup=False)
            self._line(line, shown=True)
        else:
            self._line(line, shown=False)

    def _line(self, line: str, *, shown: bool) -> None:
        if not shown and not self._silent:
            print(line, file=sys.stderr, flush=True)
        if self._note is not None:
            self._note(line)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
