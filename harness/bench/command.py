"""Carries out a do=bench command: from the typed settings to the written measurement."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from harness.bench.generate import GENERATE, language_model, measure_generation
from harness.bench.measure import OK, measure_points
from harness.bench.subjects import Command, Measurable, Subject, check_axis, check_settings, device_type, typed_subjects
from harness.config.overrides import recipe_settings, typed_values
from harness.config.places import ROOT
from harness.config.schema import Kernels
from harness.errors import UsageError
from harness.progress import Progress
from harness.records.files import write_atomic
from harness.records.provenance import git, hardware, versions
from harness.training.process import choose_kernels, kernels_in_use

SCHEMA_VERSION = 2
# measure -> (what is timed of a layer or decoder, of a recipe)
TIMED = {
    "forward": ("the output, without gradients", "the output, without gradients"),
    "train": ("the output and its gradients", "loss, gradients, clipping and update of the recipe"),
    "decode": ("one token from the state after so many", ""),
    "generate": ("every token after the prompt, drawn among the likeliest", "every token after the prompt, drawn"),
}
LAYER_SETTINGS = ("pattern", "dim", "heads", "layers")  # a recipe sets these


def measure(
    cfg: DictConfig, overrides: Sequence[str], subjects: Sequence[Subject] | None = None, peer: str | None = None
) -> dict[str, Any]:
    """All points of a command. Raises UsageError before the first measurement if something cannot be measured.

    `subjects`, and the label of their `peer`, come from a table or figure; default: typed models, `bench.peer`.
    """
    device = torch.device(device_type(cfg))
    choose_kernels(cfg)
    if cfg.resources.compile:
        raise UsageError("resources.compile=true compiles training passes of cells; do=bench measures without it")
    if cfg.resources.cpus:
        torch.set_num_threads(cfg.resources.cpus)
    check_settings(cfg.bench)
    command = Command(cfg, tuple(overrides), tuple(subjects or typed_subjects(cfg)), peer or cfg.bench.peer, device)
    measurable, absent = command.all_measurable()
    if cfg.bench.axis is not None:
        check_axis(cfg.bench.axis, measurable)
    with Progress() as progress:
        if cfg.bench.axis is None:
            points = points_of(command, measurable, progress)
        else:
            points = points_along(command, measurable, progress)
    described = {
        "settings": measured_settings(command),
        "models": {label: model.hyperparameters for label, model in measurable.items()},
        "rows": rows_of(command),
    }
    return {
        "schema": SCHEMA_VERSION,
        "kind": "bench",
        "name": measurement_name(command, **described),
        **described,
        "absent": absent,
        "timed": {name: TIMED[name][command.of_recipe] for name in cfg.bench.what},
        "points": points,
        "hardware": hardware(device, kernels_in_use(cfg), cfg.resources),
        "versions": versions(),
        "git": git(ROOT),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def require_points(measured: Mapping[str, Any]) -> None:
    """Raises UsageError for a measurement without a number, whose page and picture would be empty."""
    first = measured["points"][0]
    if not any(point["status"] == OK for point in measured["points"]):
        raise UsageError(f"nothing was measured: {first['model']} at {first['length']:,}: {first['status']}")


def keep(measured: dict[str, Any], cfg: DictConfig) -> None:
    """Write a measurement, its page and its picture, and print it."""
    from harness.report.pages.bench_tables import show_measurement
    from harness.report.plots.costs import write_report

    path = Path(cfg.paths.bench) / f"{measured['name']}.json"
    write_atomic(path, json.dumps(measured, indent=1) + "\n")
    show_measurement(measured)
    rendered = write_report(measured, Path(cfg.paths.tables), Path(cfg.paths.figures))
    print("\n".join(map(str, [path, *rendered])))


def measured_settings(command: Command) -> dict[str, Any]:
    """The settings of a measurement, without the models."""
    cfg, bench = command.cfg, command.cfg.bench
    keys = ("pattern", "dim", "heads", "batch", "layers", "precision", "rounds")
    settings = {"peer": command.peer, **{key: bench[key] for key in keys}}
    if command.of_recipe:
        typed = recipe_settings(typed_values(command.overrides))
        settings |= dict.fromkeys(LAYER_SETTINGS)
        settings |= {"task": cfg.task.name, "protocol": cfg.protocol.name, "set": typed}
    if GENERATE in bench.what:
        settings |= {"mode": list(bench.mode), "batches": list(bench.batches), "prompt": bench.prompt}
        settings |= {"top_k": bench.top_k}
    if bench.axis is not None:
        settings["axis"] = bench.axis
    return settings


def rows_of(command: Command) -> dict[str, dict[str, Any]]:
    """Label -> model and settings, for subjects whose label is not their model's name."""
    return {
        subject.label: {"model": subject.model, "set": dict(subject.settings)}
        for subject in command.subjects
        if subject.label != subject.model
    }


def measurement_name(
    command: Command, settings: Mapping[str, Any], models: Mapping[str, Mapping[str, Any]], rows: Mapping[str, Any]
) -> str:
    """The name of a measurement: equal commands on the same kind of device give the same name."""
    bench = command.cfg.bench
    lengths, measures = sorted(set(bench.lengths)), [*bench.what, *bench.axis_values]
    identity = [settings, models, rows, lengths, measures, str(command.device)]
    if command.cfg.resources.kernels is not Kernels.torch:
        identity.append(command.cfg.resources.kernels.name)
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]
    names = list(dict.fromkeys(subject.model for subject in command.subjects if subject.label in models))
    label = "-".join(names if len(names) <= 3 else [*names[:2], f"{len(names) - 2}-more"])
    return f"{label}-{command.device.type}-{digest}"


def points_of(command: Command, measurable: Mapping[str, Measurable], progress: Progress) -> list[dict[str, Any]]:
    cfg, device, points = command.cfg, command.device, []
    lengths = sorted(set(cfg.bench.lengths))
    for name in cfg.bench.what:
        if name == GENERATE:
            models = {label: partial(language_model, model, label) for label, model in measurable.items()}
            points += measure_generation(cfg, lengths, models, device, progress)
        else:
            prepare = {label: model.prepare for label, model in measurable.items()}
            points += measure_points(cfg, name, lengths, prepare, device, progress)
    return points


def points_along(command: Command, measurable: Mapping[str, Measurable], progress: Progress) -> list[dict[str, Any]]:
    """Points at one length, per value of a setting; a model without this setting is measured unchanged."""
    bench, points = command.cfg.bench, []
    key = bench.axis.removeprefix("model.")
    for value in sorted(set(bench.axis_values)):
        at_value = dict(measurable)
        for subject in command.subjects:
            if subject.label in measurable and key in measurable[subject.label].hyperparameters:
                changed = Subject(subject.label, subject.model, {**subject.settings, bench.axis: value})
                at_value[subject.label] = command.measurable(changed)
        points += [point | {"value": value} for point in points_of(command, at_value, progress)]
    return points
