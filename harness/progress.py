"""Progress of long work: a bar on a terminal, otherwise a plain line every few seconds; lines also go to a log."""

import sys
import time
from collections.abc import Callable
from typing import Any

from harness.config.masking import masked

LINE_INTERVAL_S = 10.0


def clock(seconds: float) -> str:
    """`2:43:09`, or `1:05` below an hour."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def announce_torch() -> None:
    """Print a line before importing torch, which takes seconds, unless it is imported already."""
    if "torch" not in sys.modules:
        print("importing torch ...", file=sys.stderr, flush=True)


class Progress:
    """Several named bars. `update` is cheap enough to call at every step.

    `log` receives every plain line, whether or not a terminal shows bars instead. `silent`: print nothing.
    """

    def __init__(self, log: Callable[[str], None] | None = None, *, silent: bool = False):
        self._log = log
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

    def __call__(self, name: str, done: int, total: int, detail: str = "") -> None:
        self.update(name, done, total, detail)

    def update(self, name: str, done: int, total: int, detail: str = "") -> None:
        now = time.monotonic()
        if name not in self._started:
            self._started[name] = (now, done)
            self._printed[name] = now
            if self._live is not None:
                self._bars[name] = self._live.add_task(name, total=total, completed=done, detail=detail)
        if self._live is not None:
            self._live.update(self._bars[name], completed=done, total=total, detail=detail)
        if now - self._printed[name] >= LINE_INTERVAL_S:
            self._printed[name] = now
            start, first = self._started[name]
            rate = (done - first) / max(now - start, 1e-9)
            left = clock((total - done) / rate) if rate > 0 else "?"
            line = f"{name} {done}/{total} ({100 * done / max(total, 1):.0f} %) {rate:.3g}/s, {left} left"
            self._line(f"{line} {detail}".rstrip(), shown=self._live is not None)

    def say(self, line: str) -> None:
        """Print a line that stays above the bars."""
        if self._live is not None:
            self._live.console.print(masked(line), highlight=False, markup=False)
            self._line(line, shown=True)
        else:
            self._line(line, shown=False)

    def _line(self, line: str, *, shown: bool) -> None:
        line = masked(line)
        if not shown and not self._silent:
            print(line, file=sys.stderr, flush=True)
        if self._log is not None:
            self._log(line)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
