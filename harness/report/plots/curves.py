"""Learning curves: the evaluations that run folders keep in `metrics.csv`, as panels, in a picture and as text.

A panel has the runs of one task, protocol, budget and source of data, with the metric that the task selects by. Runs
that differ in nothing but their seed are one line: its mean over the steps that all of them have, and each seed.
"""

import csv
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import cycle, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from harness.config.cell import Cell
from harness.config.declared import PERCENT, score_range
from harness.errors import UsageError
from harness.records import collect, run_name
from harness.records.run_directory import RunDirectory
from harness.report.plots import drawn
from harness.report.plots.line_plot import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLES = ("-", "--", ":")
LOG_FROM = 20  # a panel whose largest value is so many times its smallest has a logarithmic scale
QUANTITIES = ("val", "loss")
LONGEST_LABEL = 48
Metric = tuple[str, bool]  # name, higher is better


@dataclass(frozen=True)
class Curve:
    """The evaluations of one run at `steps` (n,): `val` (n,) is the panel's metric, `loss` (n,) that of training."""

    name: str  # as harness.records.run_name
    config: dict[str, Any] = field(repr=False)
    steps: tuple[int, ...]
    val: tuple[float, ...]
    loss: tuple[float, ...]

    @property
    def seed(self) -> int:
        return int(run_name.parts(self.name)["seed"])

    @property
    def model(self) -> str:
        return run_name.parts(self.name)["model"]

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
class Line:
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
    lines: tuple[Line, ...]

    @property
    def title(self) -> str:
        return " · ".join(filter(None, [self.task, self.protocol, self.budget, self.source and f"{self.source} data"]))


def panels(
    folders: Mapping[str, Path], records: Sequence[Mapping[str, Any]] = (), *, average: bool = True
) -> list[Panel]:
    """The curves of run folders, {name of the run: folder}; a folder without an evaluation has none.

    With `average`, the seeds of a variant are one line; without, each run is.

    `records` say which metric a task selects by: the run's own, else one of its task; without any, it is the first
    metric of the file. Raises UsageError, naming file and line, for a `metrics.csv` that is none.
    """
    own = {Cell(entries["cell"]["id"], entries["config"]).path.as_posix(): entries for entries in records}
    usual: dict[str, Counter[Metric]] = {}
    for entries in records:
        if entries["metric"]:
            usual.setdefault(entries["cell"]["task"], Counter())[_metric(entries)] += 1
    found: dict[tuple[str, ...], list[Curve]] = {}
    chances: dict[tuple[str, ...], set[float]] = {}
    for name, folder in sorted(folders.items()):
        table, parts, entries = read_metrics(RunDirectory(folder).metrics), run_name.parts(name), own.get(name)
        if not table or not table["step"]:
            continue
        known = [_metric(entries)] if entries and entries["metric"] else []
        known += [metric for metric, _ in usual.get(parts["task"], Counter()).most_common()]
        config = _config(folder, entries)
        metric = next((metric for metric in known if f"val/{metric[0]}" in table), None) or _first_metric(table, config)
        source = config.get("task", {}).get("source") or ""
        key = (parts["task"], parts["protocol"], parts["budget"], source, *metric)
        steps, val, loss = (tuple(table[column]) for column in ("step", f"val/{metric[0]}", "train/loss"))
        curve = Curve(name, config, tuple(map(int, steps)), val, loss)
        found.setdefault(key, []).append(curve)
        if entries and entries["baseline"] and _metric(entries) == metric:
            chances.setdefault(key, set()).add(entries["baseline"]["val"])
    return [
        Panel(*key, chance=min(chances[key]) if len(chances.get(key, ())) == 1 else None, lines=_lines(curves, average))
        for key, curves in found.items()
    ]


def read_metrics(path: Path) -> dict[str, list[float]]:
    """Column -> values of a `metrics.csv`; empty if there is none. A last line that a kill cut short is left out.

    Raises UsageError for lines that are no evaluations.
    """
    try:
        text = path.read_text(encoding="utf-8")
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


def _first_metric(table: Mapping[str, Any], config: Mapping[str, Any]) -> Metric:
    """Of a task without a record. Percentages are better higher, all else lower."""
    name = next(key for key in table if key.startswith("val/")).removeprefix("val/")
    return name, score_range(config.get("task", {}).get("name", ""), name) == PERCENT


def _config(folder: Path, entries: Mapping[str, Any] | None) -> dict[str, Any]:
    """The run's configuration, from its folder or its record; empty where neither has it."""
    file = folder / ".hydra" / "config.yaml"
    if file.is_file():
        return OmegaConf.to_container(OmegaConf.load(file))
    return dict(entries["config"]) if entries else {}


def _lines(curves: Sequence[Curve], average: bool) -> tuple[Line, ...]:
    """One for each variant, or for each run. Labels of one model's variants have their settings, or their ids."""
    by_model: dict[str, dict[str, list[Curve]]] = {}
    for curve in curves:
        by_model.setdefault(curve.model, {}).setdefault(curve.variant, []).append(curve)
    found = []
    for model, variants in sorted(by_model.items()):
        firsts = [of_variant[0] for of_variant in variants.values()]
        settings = collect.differences([first.config for first in firsts])
        for first, setting, of_variant in zip(firsts, settings, variants.values(), strict=True):
            short = setting if len(setting) <= LONGEST_LABEL else ""
            other = f" ({short or run_name.parts(first.name)['id']})" if len(variants) > 1 else ""
            found.append(Line(f"{model}{other}", tuple(sorted(of_variant, key=lambda curve: curve.seed))))
    if average:
        return tuple(found)
    return tuple(Line(f"{line.label}, seed {run.seed}", (run,), True) for line in found for run in line.curves)


def draw(title: str, shown: Sequence[Panel], path: Path) -> None:
    """Draw the panels below each other, validation metric on the left and training loss on the right, into a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    labels = list(dict.fromkeys(line.label for panel in shown for line in panel.lines))
    looks = dict(zip(labels, cycle(product(STYLES, COLOURS)), strict=False))
    legend = 0.3 + 0.2 * math.ceil((len(labels) + 1) / 3)
    size = (9.0, 0.5 + legend + 2.7 * len(shown))
    page, grid = plt.subplots(len(shown), 2, figsize=size, squeeze=False, layout="constrained")
    for axes, panel in zip(grid, shown, strict=True):
        for axis, quantity in zip(axes, QUANTITIES, strict=True):
            _draw_panel(axis, panel, quantity, looks)
    several = any(len(line.curves) > 1 for panel in shown for line in panel.lines)
    page.suptitle(title + "\nthick: mean over seeds, thin: each seed" * several, fontsize=10)
    handles = {}
    for axis in grid.flat:
        handles |= {label: handle for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    page.legend(handles.values(), handles, loc="outside lower center", ncols=3, fontsize=7, frameon=False)
    drawn.save(page, path, dpi=130)
    plt.close(page)


def _draw_panel(axis: "Axes", panel: Panel, quantity: str, looks: Mapping[str, tuple[str, str]]) -> None:
    for line in panel.lines:
        style, colour = looks[line.label]
        steps, mean = line.mean(quantity)
        if len(line.curves) > 1:
            for curve in line.curves:
                axis.plot(curve.steps, getattr(curve, quantity), style, color=colour, linewidth=0.6, alpha=0.4)
        marker = "o" if len(steps) == 1 else None
        axis.plot(steps, mean, style, color=colour, linewidth=1.6, marker=marker, markersize=4, label=line.label)
    if quantity == "val" and panel.chance is not None:
        axis.axhline(panel.chance, color="0.6", linewidth=0.8, linestyle=":", label="chance")
    finite = [value for value in _values(panel, quantity) if math.isfinite(value)]
    if finite and min(finite) > 0 and max(finite) > LOG_FROM * min(finite):
        axis.set_yscale("log")
    arrow = "↑" if panel.higher_is_better else "↓"
    axis.set_title(panel.title if quantity == "val" else "", fontsize=9, loc="left")
    axis.set_ylabel(f"validation {panel.metric} {arrow}" if quantity == "val" else "training loss ↓", fontsize=8)
    axis.set_xlabel("step", fontsize=8)
    axis.tick_params(labelsize=7)
    axis.grid(True, alpha=0.3)


def _values(panel: Panel, quantity: str) -> Iterator[float]:
    return (value for line in panel.lines for curve in line.curves for value in getattr(curve, quantity))


def text_rows(panel: Panel, width: int, *, ascii_only: bool = False) -> list[tuple[str, ...]]:
    """A row for each run: run, chart of the metric (on one scale for the panel), first, best and last value, steps,
    last training loss."""
    from harness.report.render.text_chart import sparkline

    finite = [value for value in _values(panel, "val") if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    return [
        (
            line.label if line.is_run else f"{line.label}, seed {curve.seed}",
            sparkline(curve.val, low, high, width, ascii_only=ascii_only),
            *(f"{value:.4g}" for value in (curve.val[0], curve.best(panel.higher_is_better), curve.val[-1])),
            f"{curve.steps[-1]:,}",
            f"{curve.loss[-1]:.4g}",
        )
        for line in panel.lines
        for curve in line.curves
    ]
