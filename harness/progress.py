"""Progress of long work: a bar on a terminal, otherwise lines at growing intervals; lines also go to a log.

The remaining time is extrapolated from completed units and never rises while a unit runs.
"""

import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from harness.masking import masked

LINE_INTERVAL_S = 10.0  # before the first line; each line doubles it
LONGEST_INTERVAL_S = 120.0
LATE_S = 2.0  # without a bar


def clock(seconds: float) -> str:
    """`2:43:09`, or `1:05` below an hour."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def fitted(line: str, stream: Any = None) -> str:
    """A line for `stream`, by default standard output: a terminal gets it broken between words, a file or pipe whole.

    A word that is longer than the terminal is wide, such as a path, stays whole, so that it can be copied.
    """
    if not (stream or sys.stdout).isatty():
        return line
    width = shutil.get_terminal_size().columns
    return textwrap.fill(line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def print_columns(lines: Sequence[Sequence[str]]) -> None:
    """Print lines with aligned columns. A table of rich takes as long for 9,000 lines as a third of their planning."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print(fitted("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()))


def announce_torch() -> None:
    """Print a line before importing torch, which takes seconds, unless it is imported already."""
    if "torch" not in sys.modules:
        print("importing torch ...", file=sys.stderr, flush=True)


@contextmanager
def late_bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """A function of (done, total) that shows a bar on a terminal once the work has taken a while; nothing elsewhere."""
    began, bar = time.monotonic(), None

    def update(done: int, total: int) -> None:
        nonlocal bar
        if bar is None and sys.stderr.isatty() and time.monotonic() - began > LATE_S:
            bar = Progress()
        if bar is not None:
            bar.update(name, done, total)

    try:
        yield update
    finally:
        if bar is not None:
            bar.close()


@dataclass
class Pace:
    """How far named work is. Times are those of time.monotonic()."""

    started: float
    first: int  # units that were done at the start
    done: int
    changed: float  # when the last unit ended
    printed: float  # the time and the number of units of the last line
    printed_done: int
    interval: float = LINE_INTERVAL_S

    def is_due(self, now: float) -> bool:
        """Whether a line is due: after an interval with news, or after a long one without."""
        waited = now - self.printed
        return waited >= (self.interval if self.done != self.printed_done else 5 * LONGEST_INTERVAL_S)

    def note(self, done: int, now: float) -> None:
        if done != self.done:
            self.done, self.changed = done, now

    def text(self, total: int, now: float) -> str:
        """`12/s, 1:05 left` or `2:10 each, 17:20 left`; nothing until the first unit has ended."""
        ended, seconds = self.done - self.first, self.changed - self.started
        if ended <= 0 or seconds <= 0:
            return ""
        seconds_each = seconds / ended
        pace = f"{1 / seconds_each:.3g}/s" if seconds_each < 1 else f"{clock(seconds_each)} each"
        if not total:  # not known
            return f" {pace}"
        left = clock(max(0.0, (total - self.done) * seconds_each - (now - self.changed)))
        return f" {pace}, {left} left"


class Progress:
    """Several named bars. `update` is cheap enough to call at every step.

    `log` receives every plain line, whether or not a terminal shows bars instead. `silent`: print nothing.
    """

    def __init__(self, log: Callable[[str], None] | None = None, *, silent: bool = False):
        self._log = log
        self._silent = silent
        self._live: Any = None
        self._bars: dict[str, Any] = {}
        self._paces: dict[str, Pace] = {}
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
        if name not in self._paces:
            self._paces[name] = Pace(now, done, done, now, now, done)
            if self._live is not None:
                self._bars[name] = self._live.add_task(name, total=total, completed=done, detail=detail)
        if self._live is not None:
            self._live.update(self._bars[name], completed=done, total=total, detail=detail)
        pace = self._paces[name]
        pace.note(done, now)
        if pace.is_due(now):
            share = f"{done}/{total} ({100 * done / total:.0f} %)" if total else f"{done:,}"
            line = f"{name} {share}{pace.text(total, now)} {detail}".rstrip()
            pace.printed, pace.printed_done = now, done
            pace.interval = min(2 * pace.interval, LONGEST_INTERVAL_S)
            self._line(line, shown=self._live is not None)

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
