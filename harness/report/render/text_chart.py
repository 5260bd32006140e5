"""Lines and small charts of plain characters for a terminal, with an ASCII form for terminals that need one."""

import math
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from harness.report.render.terminal import plain

BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
GAP = "x"  # a value that is not finite


def sparkline(values: Sequence[float], low: float, high: float, width: int, *, ascii_only: bool = False) -> str:
    """At most `width` characters, each as high as its value between `low` and `high`.

    With more values than characters, each character is the last value of its part, so the line ends at the last value.
    """
    levels = ASCII_BLOCKS if ascii_only else BLOCKS
    count = min(width, len(values))
    shown = [values[(part + 1) * len(values) // count - 1] for part in range(count)]
    return "".join(_character(value, low, high, levels) for value in shown)


def _character(value: float, low: float, high: float, levels: str) -> str:
    if not math.isfinite(value):
        return GAP
    share = (value - low) / (high - low) if high > low else 0.0
    return levels[min(len(levels) - 1, max(0, int(share * len(levels))))]


def print_line(text: str, console: Console, style: str = "") -> None:
    """One line, never wrapped; brackets are no markup."""
    console.print(Text(plain(text, console), style=style), soft_wrap=True)
