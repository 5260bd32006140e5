"""One command of do=bench: what it measures, in which order, and the measurement that is written."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from harness.bench.generate import GENERATE, measure_generation
from harness.bench.measure import Prepare, kernels, measure_points
from harness.bench.recipe import Recipe
from harness.bench.subjects import (
    Command,
    Measurable,
    Subject,
    check_settings,
    device_type,
    typed_subjects,
)
from harness.config.overrides import recipe_settings, typed_values
from harness.config.places import ROOT
from harness.config.schema import Kernels
from harness.errors import UsageError
from harness.progress import Progress
from harness.records.files import write_atomic
from harness.records.provenance import git, hardware, versions
from harness.training.process import choose_kernels

SCHEMA_VERSION = 2
# what is timed, of a layer or decoder of ours, and of a recipe
TIMED = {
    "forward": ("the output, without gradients", "the output, without gradients"),
    "train": ("the output and its gradients", "loss, gradients, clipping and update of the recipe"),
    "decode": ("one token from the state after so many", ""),
    "generate": ("every token after the prompt, drawn among the likeliest", "every token after the prompt, drawn"),
}
OF_LAYERS = ("pattern", "dim", "heads", "layers")  # settings that a recipe has its own of


def keep(measured: dict[str, Any], cfg: DictConfig) -> None:
    """Write a measurement with its page and its picture, and show it."""
    from harness.report.pages.bench_tables import show
    from harness.report.plots.costs import write_report

    path = Path(cfg.paths.bench) / f"{measured['name']}.json"
    write_atomic(path, json.dumps(measured, indent=1) + "\n")
    show(measured)
    rendered = write_report(measured, Path(cfg.paths.tables), Path(cfg.paths.figures))
    print("\n".join(map(str, [path, *rendered])))


def measure(
    cfg: DictConfig, overrides: Sequence[str], subjects: Sequence[Subject] | None = None, peer: str | None = None
) -> dict[str, Any]:
    """All points of a command. Raises UsageError before the first measurement if something cannot be measured.

    `subjects` and the label of their `peer`: those that were typed and `bench.peer`, unless given.
    """
    device = torch.device(device_type(cfg))
    choose_kernels(cfg)
    if cfg.resources.cpus:
        torch.set_num_threads(cfg.resources.cpus)
    check_settings(cfg.bench)
    command = Command(cfg, tuple(overrides), tuple(subjects or typed_subjects(cfg)), peer or cfg.bench.peer, device)
    hyperparameters, measurable, absent = command.all_measurable()
    with Progress() as progress:
        if cfg.bench.axis is None:
            points = points_of(cfg, measurable, device, progress)
        else:
            points = points_along(command, measurable, hyperparameters, progress)
        used = kernels_of(cfg, measurable, device)
    settings, rows = settings_of(command), rows_of(command)
    return {
        "schema": SCHEMA_VERSION,
        "kind": "bench",
        "name": name_of(command, settings, hyperparameters, rows),
        "settings": settings,
        "models": hyperparameters,
        "rows": rows,
        "absent": absent,
        "timed": {what: TIMED[what][command.of_recipe] for what in cfg.bench.what},
        "kernels": used,
        "points": points,
        "hardware": hardware(device, cfg.resources.kernels.name),
        "versions": versions(),
        "git": git(ROOT),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def settings_of(command: Command) -> dict[str, Any]:
    """What was measured, without the models."""
    cfg, bench = command.cfg, command.cfg.bench
    keys = ("pattern", "dim", "heads", "batch", "layers", "precision", "rounds")
    settings = {"peer": command.peer, **{key: bench[key] for key in keys}}
    if command.of_recipe:
        typed = recipe_settings(typed_values(command.overrides))
        settings |= dict.fromkeys(OF_LAYERS) | {"task": cfg.task.name, "protocol": cfg.protocol.name, "set": typed}
    if GENERATE in bench.what:
        settings |= {"mode": list(bench.mode), "batches": list(bench.batches), "prompt": bench.prompt}
        settings |= {"top_k": bench.top_k}
    return settings | ({} if bench.axis is None else {"axis": bench.axis})


def rows_of(command: Command) -> dict[str, dict[str, Any]]:
    """Label -> model and settings, of the subjects that are more than their model."""
    return {
        subject.label: {"model": subject.model, "set": dict(subject.settings)}
        for subject in command.subjects
        if subject.label != subject.model
    }


def name_of(
    command: Command,
    settings: Mapping[str, Any],
    hyperparameters: Mapping[str, Mapping[str, Any]],
    rows: Mapping[str, Any],
) -> str:
    """The name of a measurement: the same for the same command, on whatever machine of this kind."""
    bench = command.cfg.bench
    lengths, what = sorted(set(bench.lengths)), [*bench.what, *bench.axis_values]
    identity = [settings, hyperparameters, rows, lengths, what, str(command.device)]
    if command.cfg.resources.kernels is not Kernels.torch:
        identity.append(command.cfg.resources.kernels.name)
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]
    models = list(dict.fromkeys(s.model for s in command.subjects if s.label in hyperparameters))
    label = "-".join(models if len(models) <= 3 else [*models[:2], f"{len(models) - 2}-more"])
    return f"{label}-{command.device.type}-{digest}"


def points_of(
    cfg: DictConfig, measurable: Mapping[str, Measurable], device: torch.device, progress: Progress
) -> list[dict[str, Any]]:
    lengths, points = sorted(set(cfg.bench.lengths)), []
    for what in cfg.bench.what:
        if what == GENERATE:
            models = {label: partial(language_model, one, label) for label, one in measurable.items()}
            points += measure_generation(cfg, lengths, models, device, progress)
        else:
            prepare: dict[str, Prepare] = {label: one.prepare for label, one in measurable.items()}
            points += measure_points(cfg, what, lengths, prepare, device, progress)
    return points


def points_along(
    command: Command,
    measurable: Mapping[str, Measurable],
    hyperparameters: Mapping[str, Mapping[str, Any]],
    progress: Progress,
) -> list[dict[str, Any]]:
    """Points at one length, for each of the values of a setting; models without it stay as they are."""
    bench, points = command.cfg.bench, []
    key = bench.axis.removeprefix("model.")
    for value in sorted(set(bench.axis_values)):
        at_value = dict(measurable)
        for subject in command.subjects:
            if subject.label in measurable and key in hyperparameters[subject.label]:
                changed = Subject(subject.label, subject.model, {**subject.settings, bench.axis: value})
                at_value[subject.label] = command.measurable(changed)[1]
        found = points_of(command.cfg, at_value, command.device, progress)
        points += [point | {"value": value} for point in found]
    return points


def kernels_of(cfg: DictConfig, measurable: Mapping[str, Measurable], device: torch.device) -> dict[str, list[str]]:
    """label -> the operators that take most of a call at the shortest length, of the first thing that was timed."""
    what, length, used = cfg.bench.what[0], min(cfg.bench.lengths), {}
    for label, one in measurable.items():
        if what == GENERATE:
            model = language_model(one, label, length)
            tokens = torch.zeros(cfg.bench.batch, min(length, 64), dtype=torch.long, device=device)
            used[label] = kernels(torch.no_grad()(partial(model, tokens)), device)
            continue
        try:
            used[label] = kernels(one.prepare(what, length).call, device)
        except NotImplementedError:
            used[label] = []
    return used


def language_model(one: Measurable, label: str, length: int) -> torch.nn.Module:
    """Raises UsageError for what generates nothing."""
    built = one.built(length)
    model = (built.model if isinstance(one, Recipe) else built).eval()
    if not hasattr(model, "prefill") or not hasattr(model, "head"):
        raise UsageError(f"{label}: what=generate measures language models: add task=lm/pg19 or bench.layers=2")
    return model
