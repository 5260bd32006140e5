"""Times two implementations of one layer, alternating, on one CPU thread, and formats tables of such comparisons.

Times are processor time. A ratio is the median over rounds of their time over ours: above 1 ours is faster. Its
interval holds the median of such ratios with a probability of at least 95 %, whatever their distribution: it lies
between two of the sorted ratios (order statistics).
"""

import gc
import html
import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from harness.bench.timing import processor_call, time_alternating
from harness.records.files import write_atomic

LEAST_ROUNDS, MOST_ROUNDS = 3, 25
CONFIDENCE = 0.95
GOAL = 1.0
MISSED = "missed"

Call = Callable[[Tensor], Tensor]
Weights = dict[str, Tensor]
Rounds = list[tuple[float, float]]  # seconds of ours and of theirs


@torch.no_grad()
def copy(model: nn.Module, values: Weights) -> None:
    """Raises ValueError unless `values` are those of all parameters, in their shapes."""
    parameters = dict(model.named_parameters())
    if set(values) != set(parameters):
        raise ValueError(f"other parameters: {sorted(set(values) ^ set(parameters))}")
    for name, value in values.items():
        parameters[name].copy_(value.reshape(parameters[name].shape))


@torch.no_grad()
def scatter(module: nn.Module, scale: float = 0.05) -> Weights:
    """Weights of `module` that are all random, by name."""
    for parameter in module.parameters():
        parameter.copy_(scale * torch.randn_like(parameter))
    return dict(module.named_parameters())


def training_step(call: Call, module: nn.Module, x: Tensor, cotangent: Tensor) -> Callable[[], None]:
    """Forward, and backward from the gradient of the output, `cotangent`, to x and to all parameters."""
    leaves = [x.clone().requires_grad_(), *module.parameters()]

    def run() -> None:
        for leaf in leaves:
            leaf.grad = None
        call(leaves[0]).backward(cotangent)

    return run


def difference(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, as a share of the largest entry of theirs."""
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


def measure(
    ours: Callable[[], None], theirs: Callable[[], None], seconds: float, *, least: int = LEAST_ROUNDS
) -> Rounds:
    """Rounds for about `seconds`. The first calls are not counted."""
    gc.collect()
    limits = {"rounds": MOST_ROUNDS, "least_rounds": least, "budget_s": seconds}
    calls, options = {"ours": ours, "theirs": theirs}, {"stopwatch": processor_call, "retry_disturbed": False}
    timings = time_alternating(calls, device=torch.device("cpu"), warm=False, **limits, **options)
    return list(zip(timings["ours"].samples, timings["theirs"].samples, strict=True))


class Ratio(NamedTuple):
    """Median of theirs over ours; `low` and `high` are None where there are too few rounds for an interval."""

    median: float
    low: float | None
    high: float | None

    @property
    def missed(self) -> bool:
        return self.median < GOAL

    @property
    def text(self) -> str:
        return f"{self.median:.2f}" if self.low is None else f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio(rounds: Rounds) -> Ratio:
    ratios = sorted(theirs / ours for ours, theirs in rounds)
    count = len(ratios)
    outside, skipped = 0.0, 0  # the probability that the median lies below the skipped ones, or above as many
    while 2 * (outside + math.comb(count, skipped) / 2**count) <= 1 - CONFIDENCE:
        outside += math.comb(count, skipped) / 2**count
        skipped += 1
    interval = (ratios[skipped - 1], ratios[-skipped]) if skipped else (None, None)
    return Ratio(statistics.median(ratios), *interval)


def middle(rounds: Rounds) -> tuple[float, float]:
    """Median seconds of ours and of theirs."""
    ours, theirs = zip(*rounds, strict=True)
    return statistics.median(ours), statistics.median(theirs)


class Column(NamedTuple):
    """A column of a table that is printed row by row: its heading, its width and its alignment."""

    title: str
    width: int
    left: bool = False

    def cell(self, text: str) -> str:
        return f"{text:<{self.width}}" if self.left else f"{text:>{self.width}}"


def line(columns: Sequence[Column], cells: Iterable[str]) -> str:
    return " ".join(column.cell(text) for column, text in zip(columns, cells, strict=True)).rstrip()


Row = dict[str, Any]  # the numbers of a row, as JSON has them


def printed(
    columns: Sequence[Column], cells: Callable[[Row], Sequence[str]], results: Iterable[Row | str]
) -> tuple[list[Row], list[str]]:
    """Print rows as they are measured. Returns them, and the reasons why others are not measured."""
    rows: list[Row] = []
    absent: list[str] = []
    print(line(columns, [column.title for column in columns]), flush=True)
    for result in results:
        if isinstance(result, str):
            absent.append(result)
            print(f"not measured: {result}", flush=True)
        else:
            rows.append(result)
            print(line(columns, cells(result)), flush=True)
    return rows, absent


def write_page(out: Path, page: str, content: Row) -> None:
    """The Markdown page, and its numbers as JSON next to it."""
    write_atomic(out, page)
    write_atomic(out.with_suffix(".json"), json.dumps(content, indent=1) + "\n")


def markdown(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; cells are text and nothing else."""

    def joined(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cells) + " |\n"

    rules = (":--" if column.left else "--:" for column in columns)
    heading = joined(column.title for column in columns) + joined(rules)
    return heading + "".join(joined(escaped(cell) for cell in row) for row in rows)


def escaped(text: str) -> str:
    return html.escape(text, quote=False).replace("|", "&#124;").replace("\n", " ")
