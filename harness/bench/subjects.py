"""What one command of do=bench measures: models of `conf/model/`, each with settings of its own, as a layer, a decoder
or the model of a recipe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from harness.bench.generate import GENERATE, MODES, check_generation
from harness.bench.measure import DTYPES, MEASURES, Timed, build_bench_model
from harness.bench.recipe import Recipe
from harness.config.compose import arguments, compose, default_arguments, options, search_path
from harness.config.overrides import key_of, to_overrides, typed_values
from harness.config.table_rows import row_named
from harness.errors import UsageError, did_you_mean

WHAT = (*MEASURES, GENERATE)
SHORTEST = 16  # tokens that a model is built for, to see whether it can be


@dataclass(frozen=True)
class Subject:
    """What is measured under a label: a model of `conf/model/` with settings of its own."""

    label: str
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)


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


Measurable = Layer | Recipe


@dataclass(frozen=True)
class Command:
    """What was typed, composed to `cfg`; the subjects of a table or figure where it asks for them.

    `peer`: label of the subject that the others are compared with.
    """

    cfg: DictConfig
    overrides: tuple[str, ...]
    subjects: tuple[Subject, ...]
    peer: str
    device: torch.device

    @property
    def of_recipe(self) -> bool:
        """Whether whole models of a recipe are measured, not layers."""
        return "task" in typed_values(self.overrides)

    def measurable(self, subject: Subject) -> tuple[dict[str, Any], Measurable]:
        """The hyper-parameters of a subject, and what can be measured of it. Raises UsageError."""
        config = self._config_of(subject)
        if self.of_recipe:
            return arguments(config.model), Recipe(config, self.device)
        values = model_hyperparameters(self.cfg, subject.model, self.overrides, subject.label == self.peer)
        own = [each for each in to_overrides(subject.settings) if each.lstrip("+").startswith("model.")]
        hyperparameters = values | _model_keys(own)
        return hyperparameters, Layer(config, hyperparameters, self.device)

    def all_measurable(self) -> tuple[dict[str, dict[str, Any]], dict[str, Measurable], dict[str, str]]:
        """By label: hyper-parameters, what can be measured, and why the others cannot be built here.

        Raises UsageError where nothing but the peer is left.
        """
        hyperparameters, found, absent = {}, {}, {}
        for subject in self.subjects:
            try:
                values, one = self.measurable(subject)
                one.built(max(SHORTEST, min(self.cfg.bench.lengths)), "meta")
            except UsageError as error:
                absent[subject.label] = str(error)
                continue
            hyperparameters[subject.label], found[subject.label] = values, one
        if not set(found) - {self.peer}:
            raise UsageError("; ".join(absent.values()) or f"no model to compare with {self.peer}: add model=...")
        return hyperparameters, found, absent

    def _config_of(self, subject: Subject) -> DictConfig:
        """The command's configuration with a subject's model, and of its settings those that are not the model's."""
        own = {k: value for k, value in subject.settings.items() if self.of_recipe or not k.startswith("model.")}
        if not self.of_recipe and not own:
            return self.cfg
        first = subject.model == self.cfg.model.name and subject.label != self.peer
        kept = [each for each in self.overrides if key_of(each) not in ("model", "do", "table", "figure")]
        kept = [each for each in kept if first or not key_of(each).startswith("model.")]
        return compose([*kept, f"model={subject.model}", *to_overrides(own)], search_path())


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
