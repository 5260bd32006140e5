"""What the site shows of one record, and the command that runs its cell again."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.config.cell import Cell
from harness.config.overrides import to_overrides
from harness.config.table_rows import format_settings, settings_key
from harness.records.record import outcome
from harness.report.plots.curves import metrics_of

PLAIN_PRECISION = "32-true"  # the default of recipes
MOST_POINTS = 60  # points of a curve


def run_of(entries: Mapping[str, Any], records_root: Path) -> dict[str, Any]:
    """The content of a number's card for one record; `file` is relative to the folder of the records."""
    cell, hardware, data = entries["cell"], entries["hardware"], entries["data"]
    machine = hardware["gpu"] or f"{hardware['cpu']}, {hardware['threads']} of {hardware['cores']} cores"
    changed = {key: used for key, (_, used) in entries["changed"].items()}
    return {
        **{key: cell[key] for key in ("model", "task", "protocol", "budget", "seed")},
        "status": entries["status"],
        "result": outcome(entries),
        "changed": format_settings(settings_key(changed)),
        "hardware": machine,
        "data": f"{data['source']}, {data['fingerprint'][:12]}",
        "steps": entries["steps"],
        "seconds": entries["wall_s"],
        "parameters": (entries["parameters"] or {}).get("total") or None,
        "finished": entries["finished"][:10],
        "commit": (entries["git"]["sha"] or "unknown")[:10] + (" with changes" if entries["git"]["dirty"] else ""),
        "command": command(entries),
        "file": Path(entries["file"]).relative_to(records_root).as_posix(),
    }


def command(entries: Mapping[str, Any]) -> str:
    """The arguments of `python run.py` without the seed: equal for all seeds of a row."""
    cell, config = entries["cell"], entries["config"]
    words = [f"{key}={cell[key]}" for key in ("model", "task", "protocol", "budget")]
    for key, (by_recipe, used) in entries["changed"].items():
        # ++ adds a key that the recipe lacks and changes one that it has
        words.append(("++" if by_recipe is None else "") + to_overrides({key: used})[0])
    more = {}
    if source := config["task"].get("source"):
        more["task.source"] = source
    if (precision := config["train"].get("precision", PLAIN_PRECISION)) != PLAIN_PRECISION:
        more["train.precision"] = precision
    return " ".join(map(shlex.quote, [*words, *to_overrides(more)]))


def validation_curves(records: Sequence[Mapping[str, Any]], outputs: Path) -> dict[str, dict[str, Any]]:
    """{id: metric, steps and values on the validation split} of records whose run folders are on this machine."""
    curves_by_id = {}
    for entries in records:
        if not entries["metric"]:
            continue
        run_folder = outputs / "cells" / Cell(entries["cell"]["id"], entries["config"]).path
        table, name = metrics_of(run_folder), entries["metric"]["name"]
        steps, values = table.get("step", []), table.get(f"val/{name}", [])
        points = [(int(step), float(f"{value:.4g}")) for step, value in zip(steps, values, strict=False)]
        points = [point for point in points if abs(point[1]) < float("inf")]  # no place for an infinite value
        if len(points) > 1:
            curves_by_id[entries["cell"]["id"]] = {"metric": name, "points": _thinned(points)}
    return curves_by_id


def _thinned(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most MOST_POINTS of the points, including the first and the last."""
    if len(points) <= MOST_POINTS:
        return points
    last = len(points) - 1
    return [points[round(number * last / (MOST_POINTS - 1))] for number in range(MOST_POINTS)]
