"""Learning curves: the evaluations that records and the `metrics.csv` of run folders keep, gathered into panels.

A panel has the runs of one task, protocol, budget and source of data, with the metric that the task selects by. Runs
that differ in nothing but their seed are one line: its mean over the steps that all of them have, and each seed.
"""

import csv
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.config.cell import Cell
from harness.config.declared import declared_by
from harness.errors import UsageError
from harness.records import collect
from harness.records.named import run_parts
from harness.records.run_directory import CONFIG, HYDRA, RunDirectory
from tasks.regular_files import read_text

MAX_BYTES = 2**26  # of a metrics.csv
LONGEST_LABEL = 48
Metric = tuple[str, bool]  # name, higher is better


@dataclass(frozen=True)
class Curve:
    """The evaluations of one run at `steps` (n,): `val` (n,) is the panel's metric, `loss` (n,) that of training.

    A record has no `loss`: it is () unless the run folder has it.
    """

    name: str  # as harness.records.named.run_parts
    config: dict[str, Any] = field(repr=False)
    steps: tuple[int, ...]
    val: tuple[float, ...]
    loss: tuple[float, ...]

    @property
    def seed(self) -> int:
        return int(run_parts(self.name)["seed"])

    @property
    def model(self) -> str:
        return run_parts(self.name)["model"]

    @cached_property
    def variant(self) -> str:
        """Equal for curves that are one line."""
        if not self.config:
            return self.name
        return f"{collect.variant(self.config)} {self.config.get('depends_on')}"

    def best(self, higher_is_better: bool) -> float:
        """NaN if no value is finite."""
        finite = [value for value in self.val if math.isfinite(value)]
        return (max if higher_is_better else min)(finite, default=math.nan)


@dataclass(frozen=True)
class ChartLine:
    """`curves`: by seed. `is_run`: one run, whose seed is in the label."""

    label: str
    curves: tuple[Curve, ...]
    is_run: bool = False

    def mean(self, quantity: str) -> tuple[list[int], list[float]]:
        """Steps that all seeds have, and the mean of `val` or `loss` there."""
        by_step = [dict(zip(curve.steps, getattr(curve, quantity), strict=True)) for curve in self.curves]
        steps = sorted(set.intersection(*map(set, by_step)))
        return steps, [sum(values[step] for values in by_step) / len(by_step) for step in steps]


@dataclass(frozen=True)
class Panel:
    """`chance`: the metric of the record's baseline on the validation split, None where it is unknown."""

    task: str
    protocol: str
    budget: str
    source: str  # `task.source`: synthetic, slice, ...; empty where the task has only one
    metric: str
    higher_is_better: bool
    chance: float | None
    lines: tuple[ChartLine, ...]

    @property
    def title(self) -> str:
        return " · ".join(filter(None, [self.task, self.protocol, self.budget, self.source and f"{self.source} data"]))


def curve_panels(
    folders: Mapping[str, Path], records: Sequence[Mapping[str, Any]] = (), *, average: bool = True
) -> list[Panel]:
    """The curves of runs, {name of the run: its folder, which may be gone}: of its record, else of its folder.

    A run without an evaluation has none. With `average`, the seeds of a variant are one line; without, each run is.

    The metric is that of the run's record, else the one that the task declares, else the first of the file. A
    `metrics.csv` that is none is named and left out.
    """
    by_name = {Cell(entries["cell"]["id"], entries["config"]).path.as_posix(): entries for entries in records}
    by_panel: dict[tuple[str, ...], list[Curve]] = {}
    chances: dict[tuple[str, ...], set[float]] = {}
    for name, folder in sorted(folders.items()):
        parts, entries = run_parts(name), by_name.get(name)
        try:
            table = read_metrics(RunDirectory(folder).metrics)
        except UsageError as error:
            collect.say_left_out_once(str(error))
            table = {}
        if entries and entries.get("curve"):
            recorded = [[point[key] for point in entries["curve"]] for key in ("step", "val")]
            if table.get("step") != recorded[0]:
                table = {"step": recorded[0], "train/loss": []}
            table[f"val/{_metric(entries)[0]}"] = recorded[1]
        if not table or not table["step"]:
            continue
        own = _metric(entries) if entries and entries["metric"] else None
        metric = own if own and f"val/{own[0]}" in table else _declared_metric(table, parts["task"])
        config = _config(folder, entries)
        source = config.get("task", {}).get("source") or ""
        key = (parts["task"], parts["protocol"], parts["budget"], source, *metric)
        steps, val, loss = (tuple(table[column]) for column in ("step", f"val/{metric[0]}", "train/loss"))
        curve = Curve(name, config, tuple(map(int, steps)), val, loss)
        by_panel.setdefault(key, []).append(curve)
        if entries and entries["baseline"] and _metric(entries) == metric:
            chances.setdefault(key, set()).add(entries["baseline"]["val"])
    return [
        Panel(
            *key,
            chance=min(chances[key]) if len(chances.get(key, ())) == 1 else None,
            lines=_lines_of_runs(curves, average),
        )
        for key, curves in by_panel.items()
    ]


def read_metrics(path: Path) -> dict[str, list[float]]:
    """Column -> values of a `metrics.csv`; empty if there is none. A last line that a kill cut short is left out.

    Raises UsageError for lines that are no evaluations.
    """
    try:
        text = read_text(path, MAX_BYTES)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or 'not UTF-8'})") from error
    rows = list(csv.reader(text[: text.rfind("\n") + 1].splitlines()))
    header = rows[0] if rows else []
    if header and not ({"step", "train/loss"} <= set(header) and any(key.startswith("val/") for key in header)):
        raise UsageError(
            f"{path}: line 1 is no header of evaluations; remove the folder, or run the cell with rerun=all"
        )
    table: dict[str, list[float]] = {key: [] for key in header}
    for number, row in enumerate(rows[1:], 2):
        try:
            values = [float(value) for value in row]
            for key, value in zip(header, values, strict=True):
                table[key].append(value)
        except ValueError:
            raise UsageError(
                f"{path}: line {number} is no evaluation; remove the line, or run the cell with rerun=all"
            ) from None
    return table


def _metric(entries: Mapping[str, Any]) -> Metric:
    return entries["metric"]["name"], entries["metric"]["higher_is_better"]


def _declared_metric(table: Mapping[str, Any], task: str) -> Metric:
    """Of a run without a record. A metric that no task declares is better lower."""
    declaration = declared_by(task)
    name = declaration and (declaration.maximize or declaration.minimize)
    if name and f"val/{name}" in table:
        return name, declaration.maximize is not None
    return next(key for key in table if key.startswith("val/")).removeprefix("val/"), False


def _config(folder: Path, entries: Mapping[str, Any] | None) -> dict[str, Any]:
    """The run's configuration, from its folder or its record; empty where neither has it."""
    if os.path.lexists(folder / HYDRA / CONFIG):
        try:
            return dict(RunDirectory(folder).read_hydra(CONFIG))
        except (UsageError, ValueError, TypeError) as error:
            collect.say_left_out_once(str(error))
    return dict(entries["config"]) if entries else {}


def _lines_of_runs(curves: Sequence[Curve], average: bool) -> tuple[ChartLine, ...]:
    """One for each variant, or for each run. Labels of one model's variants have their settings, or their ids."""
    by_model: dict[str, dict[str, list[Curve]]] = {}
    for curve in curves:
        by_model.setdefault(curve.model, {}).setdefault(curve.variant, []).append(curve)
    lines = []
    for model, variants in sorted(by_model.items()):
        firsts = [of_variant[0] for of_variant in variants.values()]
        settings = collect.differences([first.config for first in firsts])
        for first, setting, of_variant in zip(firsts, settings, variants.values(), strict=True):
            short = setting if len(setting) <= LONGEST_LABEL else ""
            which = f" ({short or run_parts(first.name)['id']})" if len(variants) > 1 else ""
            lines.append(ChartLine(f"{model}{which}", tuple(sorted(of_variant, key=lambda curve: curve.seed))))
    if average:
        return tuple(lines)
    return tuple(ChartLine(f"{line.label}, seed {run.seed}", (run,), True) for line in lines for run in line.curves)
