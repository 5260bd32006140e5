"""Measurements of do=bench and of `benchmarks`: read from `results/bench`, and looked up for the columns of tables."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import UsageError, one_line
from harness.report.scores.scores import Score
from harness.report.spec.parts import BenchPoint, RowSpec

# kind -> what a measurement of it has
KINDS = {
    "bench": ("settings", "models", "points", "hardware", "versions"),
    "goals": ("lines", "hardware", "versions"),
}


def load_measurements(folder: Path) -> dict[str, dict[str, Any]]:
    """{name: measurement} of a folder. Raises UsageError for a file that is none."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            measured = json.loads(path.read_text(encoding="utf-8"))
            if measured["name"] != path.stem:
                raise ValueError(f"its name is {measured['name']}")
            known = measured["kind"] in KINDS and all("status" in point for point in measured.get("points", ()))
            if lacks := [key for key in KINDS.get(measured["kind"], ()) if key not in measured]:
                raise ValueError(f"it has no {lacks[0]}")
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path}: not a measurement: {one_line(error)}; move it away or measure again") from error
        if not known:
            raise UsageError(f"{path}: a measurement of an unknown kind or an older version; measure again")
        found[measured["name"]] = measured
    return found


def bench_scores(
    point: BenchPoint, rows: Mapping[str, RowSpec], measurements: Mapping[str, dict[str, Any]]
) -> tuple[list[Score], str]:
    """What each row of a table took at one point, and how that was measured; rows without a measurement are left out.

    A row takes the first measurement that has its model with its `model.*` settings. A measurement that is not there is
    named after the settings of the others.
    """
    chosen = [measurements[name] for name in point.measurements if name in measurements]
    missing = [name for name in point.measurements if name not in measurements]
    scores = []
    for label, row in rows.items():
        measured = next((each for each in chosen if _has_row(each, row)), None)
        for found in measured["points"] if measured else ():
            if (found["model"], found["what"], found["length"]) != (row.model, point.what, point.length):
                continue
            if found["status"] == "ok":
                scores.append(Score(label, "", {0: found[point.quantity]}, {}, cells=(measured["name"],)))
            else:
                scores.append(Score(label, "", {}, {found["status"].split(":")[0]: 1}))
    settings = [describe_setting(measured) for measured in chosen]
    settings += [f"no measurement '{name}' yet (python run.py do=bench)" for name in missing]
    return scores, "; ".join(dict.fromkeys(settings))


def _has_row(measured: dict[str, Any], row: RowSpec) -> bool:
    """Was the model of a row measured with the row's own settings?"""
    if row.model not in measured["models"]:
        return False
    hyper = measured["models"][row.model]
    own = {key.removeprefix("model."): value for key, value in row.set.items() if key.startswith("model.")}
    return all(key in hyper and hyper[key] == value for key, value in own.items())


def describe_setting(measured: dict[str, Any]) -> str:
    s, machine = measured["settings"], measured["hardware"]
    where = machine["gpu"] or f"{machine['cpu']}, {machine['threads']} threads"
    if s.get("task"):
        what = ", ".join([f"the model of {s['task']}, protocol {s['protocol']}", *_settings(s["set"])])
    else:
        what = "one layer" if s["layers"] is None else f"{s['layers']} layers of a language model"
        what += f", {s['pattern']}, width {s['dim']}, {s['heads']} heads"
    batches = " and ".join(map(str, s.get("batches") or [s["batch"]]))
    where += f", kernels={machine['kernels']}" if machine.get("kernels") else ""
    return f"{what}, batch {batches}, {s['precision']}{_drawn(s)}; {where}; torch {measured['versions']['torch']}"


def _drawn(settings: Mapping[str, Any]) -> str:
    """`, 20 tokens given, top-40` of generation."""
    if "prompt" not in settings:
        return ""
    given, top_k = settings["prompt"], settings["top_k"]
    likeliest = f"top-{top_k}" if top_k else "drawn among all"
    return f", {given} token{'s' * (given != 1)} given, {likeliest}"


def _settings(given: Mapping[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in given.items()]
