"""The subjects of a do=bench command: models of `conf/model/` with settings, as layers, decoders or recipes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from harness.bench.generate import GENERATE, MODES
from harness.bench.layer import MEASURES, LayerModel
from harness.bench.measure import DTYPES
from harness.bench.recipe import RecipeModel
from harness.config.compose import compose, default_arguments, names_in, search_path
from harness.config.overrides import key_of, to_overrides, typed_values
from harness.config.table_rows import row_named
from harness.config.untrusted import check_shared
from harness.errors import UsageError, did_you_mean
from harness.training.process import require_machine
from models.attention.base import Pattern

WHAT = (*MEASURES, GENERATE)
SHORTEST = 16  # length of the model that is built to check whether it can be
Measurable = LayerModel | RecipeModel


@dataclass(frozen=True)
class Subject:
    """A model of `conf/model/` with settings, measured under a label."""

    label: str
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Command:
    """The composed configuration, the typed overrides and the subjects of a command.

    `peer`: label of the subject that all others are compared with.
    """

    cfg: DictConfig
    overrides: tuple[str, ...]
    subjects: tuple[Subject, ...]
    peer: str
    device: torch.device

    @property
    def of_recipe(self) -> bool:
        """Whether the models of a recipe are measured rather than layers."""
        return "task" in typed_values(self.overrides)

    def measurable(self, subject: Subject) -> Measurable:
        """Raises UsageError for a subject that cannot be measured."""
        config = self._config_of(subject)
        if self.of_recipe:
            return RecipeModel(config, self.device)
        hyperparameters = default_arguments(subject.model)
        if subject.label != self.peer:
            typed = _model_keys(self.overrides)
            if subject.model != self.cfg.model.name:  # a typed key applies to every model that has it
                typed = {key: value for key, value in typed.items() if key in hyperparameters}
            hyperparameters |= typed
        return LayerModel(config, hyperparameters | _model_keys(to_overrides(subject.settings)), self.device)

    def all_measurable(self) -> tuple[dict[str, Measurable], dict[str, str]]:
        """(label -> model that can be measured, label -> reason why it cannot).

        Raises UsageError if only the peer can be measured.
        """
        measurable, absent = {}, {}
        for subject in self.subjects:
            try:
                candidate = self.measurable(subject)
                candidate.model(max(SHORTEST, min(self.cfg.bench.lengths)), "meta")
            except UsageError as error:
                absent[subject.label] = str(error)
            else:
                measurable[subject.label] = candidate
        if not set(measurable) - {self.peer}:
            raise UsageError("; ".join(absent.values()) or f"no model to compare with {self.peer}: add model=...")
        return measurable, absent

    def _config_of(self, subject: Subject) -> DictConfig:
        """The command's configuration with the settings of the subject and, in a recipe, its model."""
        settings = {k: value for k, value in subject.settings.items() if self.of_recipe or not k.startswith("model.")}
        if not self.of_recipe and not settings:
            return self.cfg
        takes_typed = subject.model == self.cfg.model.name and subject.label != self.peer
        typed = [override for override in self.overrides if key_of(override) not in ("model", "do", "table", "figure")]
        if not takes_typed:
            typed = [override for override in typed if not key_of(override).startswith("model.")]
        changed = to_overrides(settings)
        check_shared(changed, subject.label)
        return compose([*typed, f"model={subject.model}", *changed], search_path(), shared=changed)


def device_type(cfg: DictConfig) -> str:
    accelerator = cfg.trainer.get("accelerator", "auto")
    require_machine(accelerator, cfg.resources.cpus)
    return "cuda" if accelerator != "cpu" and torch.cuda.is_available() else "cpu"


def typed_subjects(cfg: DictConfig) -> list[Subject]:
    """The models of a command, each once, then the peer. A name outside `conf/model/` is the row of a table.

    Raises UsageError for an unknown name.
    """
    models, subjects = names_in("model"), []
    for name in dict.fromkeys([*(cfg.bench.models or [cfg.model.name]), cfg.bench.peer]):
        row = (name, {}) if name in models else row_named(name)
        if row is None:
            raise UsageError(f"there is no model '{name}': {did_you_mean(name, models)} (python run.py do=list)")
        subjects.append(Subject(name, *row))
    return subjects


def check_settings(bench: DictConfig) -> None:
    """Raises UsageError for a measure, mode or precision that does not exist, and for impossible lengths."""
    patterns = [str(pattern) for pattern in Pattern]
    choices_of = {"what": (bench.what, WHAT), "mode": (bench.mode, MODES)}
    choices_of |= {"precision": ([bench.precision], DTYPES), "pattern": ([bench.pattern], patterns)}
    for key, (values, choices) in choices_of.items():
        if unknown := [value for value in values if value not in choices]:
            raise UsageError(f"bench.{key}: there is no '{unknown[0]}': {did_you_mean(unknown[0], choices)}")
    for key in ("what", "mode", "lengths", "batches", "axis_values"):
        if twice := [value for value, count in Counter(bench[key]).items() if count > 1]:
            raise UsageError(f"bench.{key}: {twice[0]} stands there twice; leave one out")
    if any(length < 1 for length in bench.lengths) or not bench.lengths:
        raise UsageError(f"bench.lengths: {list(bench.lengths)} are no lengths (lengths=1024,4096)")
    if any(batch < 1 for batch in bench.batches):
        raise UsageError(f"bench.batches: {list(bench.batches)} are no batch sizes")
    if GENERATE in bench.what and min(bench.lengths) <= bench.prompt:
        raise UsageError(f"bench.lengths: {min(bench.lengths)} leaves nothing to generate, bench.prompt={bench.prompt}")
    if (bench.axis is None) == bool(bench.axis_values) or (bench.axis is not None and len(set(bench.lengths)) != 1):
        raise UsageError("bench.axis comes with bench.axis_values and one length (lengths=4096)")


def check_axis(axis: str, measurable: Mapping[str, Measurable]) -> None:
    """Raises UsageError for an axis that no model has as a setting: each of its values would measure the same."""
    settings = {f"model.{key}" for model in measurable.values() for key in model.hyperparameters}
    if axis not in settings:
        raise UsageError(f"bench.axis={axis}: no model of this command has it: {did_you_mean(axis, settings)}")


def _model_keys(overrides: Sequence[str]) -> dict[str, Any]:
    """{key: value} of the overrides `model.key=value`."""
    typed = [override.lstrip("+") for override in overrides]
    typed = [override for override in typed if override.startswith("model.")]
    return OmegaConf.to_container(OmegaConf.from_dotlist(typed)).get("model", {})
