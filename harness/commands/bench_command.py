"""One command of do=bench: what it measures, in which order, and the measurement that is written."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from harness.commands.bench_generate import MODES, check_generation, measure_generation
from harness.commands.bench_measure import (
    DTYPES,
    MEASURES,
    Prepare,
    Timed,
    build_bench_model,
    kernels,
    measure_points,
)
from harness.commands.bench_recipe import Recipe
from harness.config.compose import arguments, compose, default_arguments, options, search_path
from harness.config.overrides import key_of, recipe_settings, to_overrides, typed_values
from harness.config.places import ROOT
from harness.config.row_names import row_named
from harness.errors import UsageError, did_you_mean
from harness.progress import Progress
from harness.records.atomic import write_atomic
from harness.records.provenance import git, hardware, versions

SCHEMA_VERSION = 2
GENERATE = "generate"
WHAT = (*MEASURES, GENERATE)
# what is timed, of a layer or decoder of ours, and of a recipe
TIMED = {
    "forward": ("the output, without gradients", "the output, without gradients"),
    "train": ("the output and its gradients", "loss, gradients, clipping and update of the recipe"),
    "decode": ("one token from the state after so many", ""),
    "generate": ("every token after the prompt, drawn among the likeliest", "every token after the prompt, drawn"),
}


@dataclass(frozen=True)
class Subject:
    """What is measured under a label: a model of `conf/model/` with settings of its own."""

    label: str
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)


def keep(measured: dict[str, Any], cfg: DictConfig) -> None:
    """Write a measurement with its page and its picture, and show it."""
    from harness.report.bench_tables import page, show

    path = Path(cfg.paths.bench) / f"{measured['name']}.json"
    write_atomic(path, json.dumps(measured, indent=1) + "\n")
    show(measured)
    rendered = page(measured, Path(cfg.paths.tables), Path(cfg.paths.figures))
    print("\n".join(map(str, [path, *rendered])))


def measure(
    cfg: DictConfig, overrides: Sequence[str], subjects: Sequence[Subject] | None = None, peer: str | None = None
) -> dict[str, Any]:
    """All points of a command. Raises UsageError before the first measurement if something cannot be measured.

    `subjects` and the label of their `peer`: those that were typed and `bench.peer`, unless given.
    """
    device = torch.device(device_type(cfg))
    if cfg.resources.cpus:
        torch.set_num_threads(cfg.resources.cpus)
    subjects, peer = subjects or typed_subjects(cfg), peer or cfg.bench.peer
    check_settings(cfg.bench)
    recipe = "task" in typed_values(overrides)
    bench, typed = cfg.bench, recipe_settings(typed_values(overrides))
    hyperparameters, measurable, absent = {}, {}, {}  # absent: label -> why it cannot be built here
    for subject in subjects:
        try:
            config = config_of(subject, cfg, overrides, recipe, peer)
            hyper = hyperparameters_of(subject, config, cfg, overrides, recipe, peer)
            one = Recipe(config, device) if recipe else Layer(config, hyper, device)
            one.built(max(16, min(bench.lengths)), "meta")
        except UsageError as error:
            absent[subject.label] = str(error)
            continue
        hyperparameters[subject.label], measurable[subject.label] = hyper, one
    if not set(measurable) - {peer}:
        raise UsageError("; ".join(absent.values()) or f"no model to compare with {peer}: add model=...")
    with Progress() as progress:
        if bench.axis is None:
            points = points_of(cfg, measurable, device, progress)
        else:
            points = points_along(cfg, overrides, subjects, measurable, hyperparameters, device, progress, recipe, peer)
        used = kernels_of(cfg, measurable, device)
    keys = ("pattern", "dim", "heads", "batch", "layers", "precision", "rounds")
    settings = {"peer": peer, **{key: bench[key] for key in keys}}
    if recipe:
        settings |= {"pattern": None, "dim": None, "heads": None, "layers": None}
        settings |= {"task": cfg.task.name, "protocol": cfg.protocol.name, "set": typed}
    if GENERATE in bench.what:
        settings |= {"mode": list(bench.mode), "batches": list(bench.batches), "prompt": bench.prompt}
        settings |= {"top_k": bench.top_k}
    if bench.axis is not None:
        settings |= {"axis": bench.axis}
    rows = {s.label: {"model": s.model, "set": dict(s.settings)} for s in subjects if s.label != s.model}
    lengths, names = sorted(set(bench.lengths)), list(hyperparameters)
    what = [*bench.what, *bench.axis_values]
    identity = json.dumps([settings, hyperparameters, rows, lengths, what, str(device)], sort_keys=True)
    digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
    models = [subject.model for subject in subjects if subject.label in hyperparameters]
    models = list(dict.fromkeys(models))
    label = "-".join(models if len(models) <= 3 else [*models[:2], f"{len(models) - 2}-more"])
    return {
        "schema": SCHEMA_VERSION,
        "kind": "bench",
        "name": f"{label}-{device.type}-{digest}",
        "settings": settings,
        "models": {name: hyperparameters[name] for name in names},
        "rows": rows,
        "absent": absent,
        "timed": {what: TIMED[what][recipe] for what in bench.what},
        "kernels": used,
        "points": points,
        "hardware": hardware(device),
        "versions": versions(),
        "git": git(ROOT),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }


class Layer:
    """One layer, or a decoder of `bench.layers`, by its hyper-parameters: what `Recipe` is of a recipe."""

    def __init__(self, cfg: DictConfig, hyperparameters: dict[str, Any], device: torch.device):
        self.cfg, self.hyperparameters, self.device = cfg, hyperparameters, device

    def built(self, length: int, place: str | None = None) -> torch.nn.Module:
        if place is None:
            return build_bench_model(self.cfg, self.hyperparameters, self.device, length)
        with torch.device(place):
            return build_bench_model(self.cfg, self.hyperparameters, self.device, length, place)

    def prepare(self, what: str, length: int) -> Timed:
        # one more: room to decode a token
        return MEASURES[what](self.built(length + 1), self.cfg, self.device, length)


def points_of(
    cfg: DictConfig, measurable: Mapping[str, Layer | Recipe], device: torch.device, progress: Progress
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
    cfg: DictConfig,
    overrides: Sequence[str],
    subjects: Sequence[Subject],
    measurable: Mapping[str, Layer | Recipe],
    hyperparameters: Mapping[str, Mapping[str, Any]],
    device: torch.device,
    progress: Progress,
    recipe: bool,
    peer: str,
) -> list[dict[str, Any]]:
    """Points at one length, for each of the values of a setting; models without it stay as they are."""
    axis, points = cfg.bench.axis, []
    key = axis.removeprefix("model.")
    for value in sorted(set(cfg.bench.axis_values)):
        at_value: dict[str, Layer | Recipe] = dict(measurable)
        for subject in subjects:
            if subject.label in measurable and key in hyperparameters[subject.label]:
                changed = Subject(subject.label, subject.model, {**subject.settings, axis: value})
                config = config_of(changed, cfg, overrides, recipe, peer)
                hyper = hyperparameters_of(changed, config, cfg, overrides, recipe, peer)
                at_value[subject.label] = Recipe(config, device) if recipe else Layer(config, hyper, device)
        points += [point | {"value": value} for point in points_of(cfg, at_value, device, progress)]
    return points


def kernels_of(cfg: DictConfig, measurable: Mapping[str, Layer | Recipe], device: torch.device) -> dict[str, list[str]]:
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


def language_model(one: Layer | Recipe, label: str, length: int) -> torch.nn.Module:
    """Raises UsageError for what generates nothing."""
    built = one.built(length)
    model = (built.model if isinstance(one, Recipe) else built).eval()
    if not hasattr(model, "prefill") or not hasattr(model, "head"):
        raise UsageError(f"{label}: what=generate measures language models: add task=lm/pg19 or bench.layers=2")
    return model


def config_of(subject: Subject, cfg: DictConfig, overrides: Sequence[str], recipe: bool, peer: str) -> DictConfig:
    """The command's configuration with a subject's model, and of its settings those that are not the model's."""
    own = {key: value for key, value in subject.settings.items() if recipe or not key.startswith("model.")}
    if not recipe and not own:
        return cfg
    first = subject.model == cfg.model.name and subject.label != peer
    kept = [each for each in overrides if key_of(each) not in ("model", "do", "table", "figure")]
    kept = [each for each in kept if first or not key_of(each).startswith("model.")]
    return compose([*kept, f"model={subject.model}", *to_overrides(own)], search_path())


def hyperparameters_of(
    subject: Subject, config: DictConfig, cfg: DictConfig, overrides: Sequence[str], recipe: bool, peer: str
) -> dict[str, Any]:
    if recipe:
        return arguments(config.model)
    values = model_hyperparameters(cfg, subject.model, overrides, subject.label == peer)
    own = [each for each in to_overrides(subject.settings) if each.lstrip("+").startswith("model.")]
    return values | _model_keys(own)


def device_type(cfg: DictConfig) -> str:
    accelerator = cfg.trainer.get("accelerator", "auto")
    if accelerator in ("gpu", "cuda") and not torch.cuda.is_available():
        raise UsageError("trainer=gpu: there is no CUDA device here; leave it out to measure on the CPU")
    return "cuda" if accelerator != "cpu" and torch.cuda.is_available() else "cpu"


def typed_subjects(cfg: DictConfig) -> list[Subject]:
    """The models of a command, each once, then the peer. A name that `conf/model/` lacks is a row of a table.

    Raises UsageError for one that is neither.
    """
    names = list(dict.fromkeys([*(cfg.bench.models or [cfg.model.name]), cfg.bench.peer]))
    known, subjects = [name for name, _ in options("model")], []
    for name in names:
        row = None if name in known else row_named(name)
        if row is None and name not in known:
            raise UsageError(f"there is no model '{name}': {did_you_mean(name, known)} (python run.py do=list)")
        subjects.append(Subject(name, *(row or (name, {}))))
    return subjects


def check_settings(bench: DictConfig) -> None:
    """Raises UsageError for a measure or precision that does not exist, and for impossible lengths."""
    for key, values, known in (("what", bench.what, WHAT), ("precision", [bench.precision], DTYPES)):
        if unknown := [value for value in values if value not in known]:
            raise UsageError(f"bench.{key}: there is no '{unknown[0]}': {did_you_mean(unknown[0], known)}")
    if any(length < 1 for length in bench.lengths) or not bench.lengths:
        raise UsageError(f"bench.lengths: {list(bench.lengths)} are no lengths (lengths=1024,4096)")
    if any(batch < 1 for batch in bench.batches):
        raise UsageError(f"bench.batches: {list(bench.batches)} are no batch sizes")
    if GENERATE in bench.what:
        check_generation(bench)
    elif unknown := [mode for mode in bench.mode if mode not in MODES]:
        raise UsageError(f"bench.mode: there is no '{unknown[0]}': {did_you_mean(unknown[0], MODES)}")
    if (bench.axis is None) == bool(bench.axis_values) or (bench.axis is not None and len(set(bench.lengths)) != 1):
        raise UsageError("bench.axis comes with bench.axis_values and one length (lengths=4096)")


def model_hyperparameters(cfg: DictConfig, name: str, overrides: Sequence[str], is_peer: bool) -> dict[str, Any]:
    """The values of a model's yaml; what was typed as model.key=value replaces them, except for the peer."""
    values = default_arguments(name)
    if not is_peer:
        given = _model_keys([override for override in overrides if override.lstrip("+").startswith("model.")])
        values |= {key: value for key, value in given.items() if key in values or name == cfg.model.name}
    return values


def _model_keys(overrides: Sequence[str]) -> dict[str, Any]:
    """{key: value} of `model.key=value`."""
    typed = [override.lstrip("+") for override in overrides]
    return OmegaConf.to_container(OmegaConf.from_dotlist(typed)).get("model", {})
