"""A comparison: two calls that do the same, compared in what they return and timed in turns on one CPU thread.

Times are processor time. A ratio is the median over rounds of their time over ours: above 1 ours is faster. Its
interval contains the true median with a probability of at least 95 % for any distribution: its ends are two of the
sorted ratios (order statistics).
"""

import gc
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from scipy.stats import quantile_test
from torch import Tensor

from benchmarks.peers.clones import NO_PROJECT, AbsentError, Project
from harness.bench.timing import processor_call, time_alternating
from harness.errors import one_line

LEAST_ROUNDS, MOST_ROUNDS = 6, 25  # fewer rounds give no interval
CONFIDENCE = 0.95
TOLERANCE = 1e-4  # of the largest entry

Call = Callable[[], object]
Tensors = Sequence[Tensor]
Rounds = list[tuple[float, float]]  # seconds of ours and of theirs
Row = dict[str, Any]  # the numbers of a comparison, as JSON has them


class DifferentError(ValueError):
    """The two sides of a comparison do not compute the same."""


class Sides(NamedTuple):
    """Ours and theirs, ready to be timed.

    `values` computes what must agree, once per side: the output, followed by the gradients of the inputs. It is None
    where the sides are two functions. `numbers` are further entries of the row.
    """

    ours: Call
    theirs: Call
    values: Callable[[], Sequence[Tensors]] | None = None
    numbers: Mapping[str, Any] = {}


class Comparison(NamedTuple):
    """A row of the table. `make` takes the folder of the clones or None.

    It raises AbsentError without a clone and ImportError without a package. `tolerance`: the largest difference, as a
    share of the largest entry. `goal`: the least ratio of times.
    """

    name: str
    theirs: str
    make: Callable[[Path | None], Sides]
    project: Project = NO_PROJECT
    tolerance: float = TOLERANCE
    goal: float = 1.0
    note: str = ""


class Group(NamedTuple):
    """Comparisons that share a section of a page; `text` says what is measured."""

    name: str
    title: str
    text: str
    comparisons: tuple[Comparison, ...]


def difference(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, as a share of the largest entry of theirs."""
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


def differences(sides: Sides, tolerance: float) -> Row:
    """Of the outputs, and the largest of the gradients. Raises DifferentError if either is beyond the tolerance."""
    output, *gradients = (difference(a, b) for a, b in zip(*sides.values(), strict=True))
    if not all(value <= tolerance for value in (output, *gradients)):
        raise DifferentError(f"outputs differ by {output:.1e} of the largest, gradients by {max(gradients):.1e}")
    return {"output": output, "gradient": max(gradients)}


def measure(ours: Call, theirs: Call, seconds: float) -> Rounds:
    """Rounds for about `seconds`. The first calls are not counted."""
    gc.collect()
    limits = {"rounds": MOST_ROUNDS, "least_rounds": LEAST_ROUNDS, "budget_s": seconds}
    options = {"stopwatch": processor_call, "retry_disturbed": False, "warm": False}
    timings = time_alternating({"ours": ours, "theirs": theirs}, device=torch.device("cpu"), **limits, **options)
    return list(zip(timings["ours"].samples, timings["theirs"].samples, strict=True))


def ratio(rounds: Rounds) -> Row:
    """The median of theirs over ours; `low` and `high` are None where there are too few rounds for an interval."""
    ratios = [theirs / ours for ours, theirs in rounds]
    interval = quantile_test(ratios, p=0.5).confidence_interval(CONFIDENCE)
    low, high = (None if math.isnan(end) else float(end) for end in interval)
    return {"ratio": statistics.median(ratios), "low": low, "high": high}


def row_of(group: Group, comparison: Comparison, peers: Path | None, seconds: float) -> Row:
    """Compare and time both sides."""
    torch.manual_seed(0)
    sides = comparison.make(peers)
    row = {"group": group.name, "name": comparison.name, "theirs": comparison.theirs, **sides.numbers}
    if sides.values is not None:
        row |= differences(sides, comparison.tolerance)
    rounds = measure(sides.ours, sides.theirs, seconds)
    ours, theirs = (statistics.median(times) for times in zip(*rounds, strict=True))
    row |= {"ours_seconds": ours, "theirs_seconds": theirs, "rounds": len(rounds), **ratio(rounds)}
    return row | {"goal": comparison.goal, "note": comparison.note}


def attempt(group: Group, comparison: Comparison, peers: Path | None, seconds: float) -> Row | str:
    """The row, or the reason why there is none."""
    project = comparison.project
    try:
        return row_of(group, comparison, peers, seconds)
    except AbsentError as error:
        return f"{project.name}: {error}"
    except ModuleNotFoundError as error:
        return f"{project.name}: no package {error.name}; run: {project.install}"
    # foreign code may fail in any way; the other rows are still measured
    except Exception as error:
        return f"{comparison.name} beside {comparison.theirs}: {type(error).__name__}: {one_line(error):.300}"


def names_of(group: Group, comparison: Comparison) -> set[str]:
    """What selects a comparison. `C6 LAVO, 1,024, forward` is selected by `C6`, too."""
    return {group.name, comparison.project.name, comparison.name, comparison.name.partition(" ")[0]}
