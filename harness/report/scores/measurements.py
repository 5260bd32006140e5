"""Measurements of do=bench and of `benchmarks`, looked up for tables and figures.

A table of cells shows one point per row (`bench_scores`). A table of measurements has runs: which measurement a run is,
which of its points a row is, and what number a column shows of it.
"""

import contextlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.config.compose import default_arguments, option_config
from harness.config.declared import declared
from harness.config.overrides import recipe_settings, to_overrides, typed_values
from harness.config.table_rows import Row
from harness.errors import UsageError, agreeing
from harness.records.measurements import Measurement, Measurements
from harness.report.scores.scores import Score
from harness.report.spec.expressions import value_of
from harness.report.spec.measured import KEYS, MeasuredRow, Run
from harness.report.spec.parts import BenchPoint
from harness.report.stats.growth import exponent

Point = Mapping[str, Any]
Points = Sequence[Point]
# keys of `bench.` that say what is measured; the others say how long
MEANING = ("pattern", "dim", "heads", "batch", "layers", "precision", "prompt", "top_k")
FEWEST = 2  # points of an exponent


@dataclass(frozen=True)
class Number:
    """`mark`: ` ~` behind a number that is extrapolated or added up. `status`: that of the point."""

    value: float | None
    status: str
    samples: int = 0

    @property
    def mark(self) -> str:
        return "" if self.value is None or self.status == "ok" else " ~"


def describe_setting(measured: Measurement) -> str:
    """`one layer, causal_self, width 128, 4 heads, batch 2, float32; <machine>; torch <version>`."""
    settings, hardware = measured["settings"], measured["hardware"]
    if settings.get("task"):
        parts = [f"the model of {settings['task']}, protocol {settings['protocol']}"]
        parts += [f"{key}={value}" for key, value in settings["set"].items()]
    else:
        layers = settings["layers"]
        parts = ["one layer" if layers is None else f"{layers} layers of a language model"]
        parts += [settings["pattern"], f"width {settings['dim']}", f"{settings['heads']} heads"]
    batches = " and ".join(map(str, settings.get("batches") or [settings["batch"]]))
    parts += [f"batch {batches}", settings["precision"]]
    if "prompt" in settings:
        given, top_k = settings["prompt"], settings["top_k"]
        parts += [f"{given} token{'s' if given != 1 else ''} given", f"top-{top_k}" if top_k else "drawn among all"]
    threads = hardware["threads"]
    machine = hardware["gpu"] or f"{hardware['cpu']}, {threads} {agreeing(threads, 'thread', 'threads')}"
    if hardware.get("kernels"):
        machine += f", kernels={hardware['kernels']}"
    return f"{', '.join(parts)}; {machine}; torch {measured['versions']['torch']}"


def block_note(name: str, model: str, hyper: Mapping[str, Any]) -> list[str]:
    """`Based: the measured layer is one linear block`, for a model whose stack has several kinds.

    A measurement from elsewhere may have any settings.
    """
    with contextlib.suppress(UsageError, OSError, LookupError, TypeError):
        if kind := declared(option_config("model", model)).layer:
            return [f"{name}: the measured layer is one {kind.format(**hyper)} block"]
    return []


def block_notes(labels: Iterable[str], rows: Mapping[str, Row]) -> list[str]:
    """The notes of the rows with these labels, of which one layer was measured."""
    hyper = {label: default_arguments(rows[label].model) | _model_settings(rows[label].set) for label in labels}
    return [f"{note}." for label in hyper for note in block_note(label, rows[label].model, hyper[label])]


def bench_scores(point: BenchPoint, rows: Mapping[str, Row], measurements: Measurements) -> tuple[list[Score], str]:
    """The score of each measured row of a table at one point, and how it was measured.

    A row takes the first measurement that has the row or its model, with its `model.*` settings and the settings of the
    point. Missing measurements are named after the settings of the others.
    """
    names = point.measurements or sorted(measurements)
    chosen = [measurements[name] for name in names if name in measurements]
    scores, used = [], []
    for label, row in rows.items():
        measured = next((measured for measured in chosen if _has_point(measured, label, row, point)), None)
        if measured is None:
            continue
        used.append(measured)
        name = label if label in measured["models"] else row.model
        for result in measured["points"]:
            if (result["model"], result["what"], result["length"]) != (name, point.what, point.length):
                continue
            if result["status"] == "ok":
                scores.append(Score(label, "", {0: result[point.quantity]}, {}, cells=(measured["name"],)))
            else:
                scores.append(Score(label, "", {}, {result["status"].split(":")[0]: 1}))
    missing = [name for name in point.measurements if name not in measurements]
    settings = [describe_setting(measured) for measured in (chosen if point.measurements else used)]
    settings += [f"no measurement '{name}' yet (python run.py do=bench)" for name in missing]
    return scores, "; ".join(dict.fromkeys(settings)) or "no measurement yet (python run.py do=bench)"


def _has_point(measured: Measurement, label: str, row: Row, point: BenchPoint) -> bool:
    """Whether a measurement has a row, or its model with the row's `model.*` settings, in the settings of a point."""
    hyper = measured["models"].get(label, measured["models"].get(row.model))
    if hyper is None:
        return False
    sizes = {key: row.set.get(f"backbone.{key}", value) for key, value in point.settings.items()}
    if any(measured["settings"].get(key) != value for key, value in sizes.items()):
        return False
    if point.settings and not any((p["what"], p["length"]) == (point.what, point.length) for p in measured["points"]):
        return False
    return all(key in hyper and hyper[key] == value for key, value in _model_settings(row.set).items())


def _model_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key.removeprefix("model."): value for key, value in settings.items() if key.startswith("model.")}


def measured_for(run: Run, measurements: Measurements) -> list[Measurement]:
    """The measurements that a run's command makes, on any machine, in order of their names."""
    return [measured for _, measured in sorted(measurements.items()) if _is_of(run, measured)]


def _is_of(run: Run, measured: Measurement) -> bool:
    settings = measured["settings"]
    if any(settings.get(key) != getattr(run, key) for key in ("task", "protocol", "axis")):
        return False
    if not any(has_series(measured, run.what, mode, batch) for mode, batch in run.modes):
        return False
    if run.axis is not None and not any(point["length"] in run.lengths for point in measured["points"]):
        return False
    wanted = {key.removeprefix("bench."): value for key, value in run.set.items() if key.startswith("bench.")}
    if any(_json(settings.get(key)) != _json(wanted[key]) for key in MEANING if key in wanted):
        return False
    return settings.get("set", {}) == recipe_settings(typed_values(to_overrides(run.set)))


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def label_of(row: MeasuredRow, name: str, measured: Measurement) -> str | None:
    """The label of a row in a measurement: its name, or that of its model with the row's settings; None without it."""
    labels = [label for label in measured["models"] if _is_row(row, label, measured)]
    return name if name in labels else next(iter(labels), None)


def _is_row(row: MeasuredRow, label: str, measured: Measurement) -> bool:
    typed = measured.get("rows", {}).get(label, {"model": label, "set": {}})
    if typed["model"] != row.model:
        return False
    if _json(typed["set"]) == _json(row.set):
        return True
    hyper, wanted = measured["models"][label], _model_settings(row.set)
    if any(_json(hyper.get(key)) != _json(value) for key, value in wanted.items()):
        return False
    rest, typed_rest = (
        _json({key: value for key, value in settings.items() if not key.startswith("model.")})
        for settings in (row.set, typed["set"])
    )
    # a row without settings is its model as the recipe has it
    return rest == typed_rest and (bool(wanted) or not typed["set"])


def series(measured: Measurement, label: str, measure: str, mode: str | None, batch: int | None) -> list[Point]:
    """The points of one label in order."""
    return [point for point in measured["points"] if point["model"] == label and _matches(point, measure, mode, batch)]


def has_series(measured: Measurement, measure: str, mode: str | None, batch: int | None) -> bool:
    """Whether any model was measured so: a command may have asked for only one of a run's batches and modes."""
    return any(_matches(point, measure, mode, batch) for point in measured["points"])


def _matches(point: Point, measure: str, mode: str | None, batch: int | None) -> bool:
    return (point["what"], point.get("mode"), point.get("batch")) == (measure, mode, batch)


def number_at(points: Points, reference: Points, length: int, value: str) -> Number:
    """The number that a column shows at a length; a relative `value` is that to the reference's point there."""
    ours = next((point for point in points if point["length"] == length), None)
    if ours is None:
        return Number(None, "not measured")
    key, status = KEYS[value], str(ours["status"])
    if key not in ours:
        return Number(None, status)
    number = float(ours[key])
    if value == "s":
        number /= 1e3
    if value in ("speedup", "memory_ratio"):
        base = next((point for point in reference if point["length"] == length and point.get(key)), None)
        if base is None or not number:
            return Number(None, "no reference")
        number = base[key] / number if value == "speedup" else number / base[key]
        status = status if status != "ok" else str(base["status"])
    return Number(number, status, len(ours.get("samples", ())))


def size_of(point: Point) -> int:
    """The length of a point, or its value of the axis."""
    return point.get("value", point["length"])


def slope(points: Points, value: str) -> Number:
    """The exponent of time or memory over the `fitted` points.

    Its status is that of the first point that is extrapolated or added up, if there is one.
    """
    key = KEYS[value]
    kept = fitted(points, value)
    if len(kept) < FEWEST:
        return Number(None, "fewer than 2 points" if points else "not measured")
    statuses = (point["status"] for point in kept if point["status"] != "ok")
    return Number(exponent([*map(size_of, kept)], [point[key] for point in kept]), next(statuses, "ok"), len(kept))


def fitted(points: Points, value: str) -> list[Point]:
    """The points of an exponent: the upper half of the measured ones, because fixed costs dominate the lower half.

    All points of long texts whose costs were added up count, if fewer than FEWEST were measured.
    """
    positive = [point for point in points if point.get(KEYS[value], 0) > 0]
    measured = [point for point in positive if point["status"] == "ok"]
    return measured[(len(measured) - 1) // 2 :] if len(measured) >= FEWEST else positive


def printed_slope(formula: str, over: str, sizes: Mapping[str, int], at: Sequence[int]) -> float | None:
    """The exponent of a printed `O(T L D + T W D)` between these values of `over`; None for another text."""
    inner = formula.strip().removeprefix("O(").removesuffix(")")
    products = re.sub(r"([A-Za-z](?:\^\d)?) *(?=[A-Za-z])", r"\1*", inner)
    try:
        values = [value_of(products, {**sizes, over: x}) for x in at]
    except UsageError:
        return None
    return exponent(at, values) if len(at) >= FEWEST else None
