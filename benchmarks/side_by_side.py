"""Two implementations of one layer in turns, on one CPU thread: what `competitors` and `baselines` share.

A sample is the processor time of a call, which other processes disturb less than time on the clock. The two sides take
turns, so that a busy machine slows both, and a ratio is the median over rounds of their time over ours: above 1 ours is
faster. Its interval holds the median of such ratios with a probability of at least 95 % whatever their distribution: it
lies between two of the sorted ratios (order statistics).
"""

import gc
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

LEAST_ROUNDS, MOST_ROUNDS = 3, 25
SHORTEST = 0.05  # seconds of a sample
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


def spent(call: Callable[[], None], times: int = 1) -> float:
    """Processor seconds of a call, the mean of `times`."""
    began = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - began) / times


def measure(
    calls: tuple[Callable[[], None], Callable[[], None]], seconds: float, *, least: int = LEAST_ROUNDS
) -> Rounds:
    """Seconds of a call of ours and of theirs, in rounds; the first calls are not counted.

    Rounds end when `seconds` are spent, after `least` of them, or after one where a single call takes as long.
    """
    gc.collect()
    first = [spent(call) for call in calls]
    times = [max(1, round(SHORTEST / max(1e-6, took))) for took in first]
    least = 1 if sum(first) > seconds else least
    rounds: Rounds = []
    began = time.perf_counter()
    while len(rounds) < least or (len(rounds) < MOST_ROUNDS and time.perf_counter() - began < seconds):
        order = (0, 1) if len(rounds) % 2 else (1, 0)
        took = {index: spent(calls[index], times[index]) for index in order}
        rounds.append((took[0], took[1]))
    return rounds


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
    found = (ratios[skipped - 1], ratios[-skipped]) if skipped else (None, None)
    return Ratio(statistics.median(ratios), *found)


def middle(rounds: Rounds) -> tuple[float, float]:
    """Median seconds of ours and of theirs."""
    ours, theirs = zip(*rounds, strict=True)
    return statistics.median(ours), statistics.median(theirs)


class Column(NamedTuple):
    """Of a table that is printed row by row: a heading, its width, and whether text stands on the left."""

    title: str
    width: int
    left: bool = False

    def cell(self, text: str) -> str:
        return f"{text:<{self.width}}" if self.left else f"{text:>{self.width}}"


def line(columns: Sequence[Column], cells: Iterable[str]) -> str:
    return " ".join(column.cell(text) for column, text in zip(columns, cells, strict=True)).rstrip()


def markdown(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; cells are text and nothing else."""

    def joined(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cells) + " |\n"

    rules = (":--" if column.left else "--:" for column in columns)
    heading = joined(column.title for column in columns) + joined(rules)
    return heading + "".join(joined(escaped(cell) for cell in row) for row in rows)


def escaped(text: str) -> str:
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "&#124;"), ("\n", " ")):
        text = text.replace(character, entity)
    return text


def hardware(packages: Iterable[str] = ()) -> dict[str, Any]:
    """The processor, torch's threads, and versions of what ran; packages that are not installed are left out."""
    found = {"processor": processor(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    found |= {"precision": "float32", "python": platform.python_version(), "torch": torch.__version__}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def processor() -> str:
    """Its name as Linux tells it, elsewhere the kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (text.partition(":")[2].strip() for text in lines if text.startswith("model name"))
    return next(names, platform.machine())


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    write(path, json.dumps(content, indent=1) + "\n")
