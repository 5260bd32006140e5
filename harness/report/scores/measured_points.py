"""Which measurement a run of a table is, which of its points a row, and what number a column shows of it."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.config.overrides import recipe_settings, to_overrides, typed_values
from harness.report.spec.measured import KEYS, MeasuredRow, Run
from harness.report.stats.growth import exponent

Point = Mapping[str, Any]
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


def of_run(run: Run, measurements: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The measurements that a run's command makes, on whatever machine, in order of their names."""
    return [each for _, each in sorted(measurements.items()) if each["kind"] == "bench" and _is_of(run, each)]


def _is_of(run: Run, measured: Mapping[str, Any]) -> bool:
    settings = measured["settings"]
    if (settings.get("task"), settings.get("protocol")) != (run.task, run.protocol):
        return False
    if settings.get("axis") != run.axis:
        return False
    if not any(has_series(measured, run.what, mode, batch) for mode, batch in run.modes):
        return False
    if run.axis is not None and not any(p["length"] in run.lengths for p in measured["points"]):
        return False
    wanted = {key.removeprefix("bench."): value for key, value in run.set.items() if key.startswith("bench.")}
    if any(_json(settings.get(key)) != _json(wanted[key]) for key in MEANING if key in wanted):
        return False
    return settings.get("set", {}) == recipe_settings(typed_values(to_overrides(run.set)))


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def label_of(row: MeasuredRow, name: str, measured: Mapping[str, Any]) -> str | None:
    """The label of a row in a measurement: its own, or a model's with the row's settings; None if it is not in it."""
    found = [label for label in measured["models"] if _is_row(row, label, measured)]
    return name if name in found else next(iter(found), None)


def _is_row(row: MeasuredRow, label: str, measured: Mapping[str, Any]) -> bool:
    known = measured.get("rows", {}).get(label, {"model": label, "set": {}})
    if known["model"] != row.model:
        return False
    if _json(known["set"]) == _json(row.set):
        return True
    hyper, typed = measured["models"][label], known["set"]
    own = {key: value for key, value in row.set.items() if key.startswith("model.")}
    others = [{k: v for k, v in each.items() if not k.startswith("model.")} for each in (row.set, typed)]
    same = all(_json(hyper.get(key.removeprefix("model."))) == _json(value) for key, value in own.items())
    # a row without settings is its model as the recipe has it
    return same and _json(others[0]) == _json(others[1]) and (bool(own) or not typed)


def series(measured: Mapping[str, Any], label: str, what: str, mode: str | None, batch: int | None) -> list[Point]:
    """The points of one label in order."""
    wanted = (label, what, mode, batch)
    return [p for p in measured["points"] if (p["model"], p["what"], p.get("mode"), p.get("batch")) == wanted]


def has_series(measured: Mapping[str, Any], what: str, mode: str | None, batch: int | None) -> bool:
    """Whether any model was measured so: a command may have asked for one of the batches and modes of a run."""
    wanted = (what, mode, batch)
    return any((p["what"], p.get("mode"), p.get("batch")) == wanted for p in measured["points"])


def number_at(points: Sequence[Point], reference: Sequence[Point], length: int, value: str) -> Number:
    """What a column shows at a length, relative to the reference's point there if the value is."""
    ours = next((p for p in points if p["length"] == length), None)
    if ours is None:
        return Number(None, "not measured")
    key, status = KEYS[value], str(ours["status"])
    if key not in ours:
        return Number(None, status)
    number = float(ours[key])
    if value == "s":
        number /= 1e3
    if value in ("speedup", "memory_ratio"):
        base = next((p for p in reference if p["length"] == length and p.get(key)), None)
        if base is None or not number:
            return Number(None, "no reference")
        number = base[key] / number if value == "speedup" else number / base[key]
        status = status if status != "ok" else str(base["status"])
    return Number(number, status, len(ours.get("samples", ())))


def places(points: Sequence[Point], key: str) -> tuple[list[int], list[float]]:
    """Lengths, or values of the axis, and what was measured there: the upper half, where fixed costs are small."""
    kept = _fitted(points, key)
    return [p.get("value", p["length"]) for p in kept], [p[key] for p in kept]


def slope(points: Sequence[Point], value: str) -> Number:
    """The exponent of time or memory over the upper half of the lengths, or of the axis's values.

    Its status is that of the first point that was not measured as a whole, if there is one.
    """
    sizes, values = places(points, KEYS[value])
    if len(sizes) < FEWEST:
        return Number(None, "fewer than 2 points" if points else "not measured")
    statuses = (p["status"] for p in _fitted(points, KEYS[value]) if p["status"] != "ok")
    return Number(exponent(sizes, values), next(statuses, "ok"), len(sizes))


def _fitted(points: Sequence[Point], key: str) -> list[Point]:
    """The upper half of what was measured, or, of long texts that were added up, all of them."""
    known = [p for p in points if p.get(key, 0) > 0]
    measured = [p for p in known if p["status"] == "ok"]
    return measured[(len(measured) - 1) // 2 :] if len(measured) >= FEWEST else known


def printed_slope(formula: str, over: str, sizes: Mapping[str, int], at: Sequence[int]) -> float | None:
    """The exponent that a printed `O(T L D + T W D)` has between these values of `over`; None for another text."""
    inner = formula.strip().removeprefix("O(").removesuffix(")")
    try:
        values = [sum(_terms(inner, {**sizes, over: x})) for x in at]
    except (KeyError, ValueError):
        return None
    return exponent(at, values) if len(at) >= FEWEST else None


def _terms(text: str, sizes: Mapping[str, int]) -> Iterator[float]:
    """The values of `TL`, `L D`, `T^2 D` of a sum. Raises KeyError and ValueError."""
    for term in text.split("+"):
        value, letters = 1.0, term.replace(" ", "")
        while letters:
            letter, letters = letters[0], letters[1:]
            power = 1
            if letters.startswith("^"):
                power, letters = int(letters[1]), letters[2:]
            value *= sizes[letter] ** power
        yield value


def median_ratio(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float] | None:
    """Lowest, median and highest of ours over the paper's, of positive numbers."""
    ratios = sorted(ours / theirs for ours, theirs in pairs if ours > 0 and theirs > 0)
    if not ratios:
        return None
    middle = len(ratios) // 2
    median = ratios[middle] if len(ratios) % 2 else math.sqrt(ratios[middle - 1] * ratios[middle])
    return ratios[0], median, ratios[-1]
