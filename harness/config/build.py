"""Configuration -> task and model. Invalid combinations are refused here, on the meta device, before data are read."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name
from typing import Any

import torch
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from torch import nn
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from harness.config.allowed import is_allowed
from harness.config.compose import arguments, option_config
from harness.config.declared import check_limits
from harness.config.instantiate import call, config_class, instantiate, target
from harness.config.schema import Rule
from harness.errors import UsageError, one_line
from models.attention.base import Attention, Pattern
from tasks.base import Task
from tasks.checks import DataError

MOST = {"modules": 50_000, "parameters": 10**12}  # 200 layers of PerceiverAR have 3,000 modules


@dataclass
class Built:
    task: Task
    model: nn.Module
    optimizer: partial
    schedule: partial | None

    def parameters(self) -> dict[str, int]:
        """The number of parameters in total and inside attention layers."""
        layers = [module for module in self.model.modules() if isinstance(module, Attention)]
        inside = {id(p): p.numel() for layer in layers for p in layer.parameters()}
        return {"total": sum(p.numel() for p in self.model.parameters()), "attention": sum(inside.values())}


def build(cfg: DictConfig) -> Built:
    """The task and the model with new weights, on the current default device. Raises UsageError."""
    trusted = list(cfg.trusted_packages)
    settings = arguments(cfg.task)
    if (pattern := settings.get("pattern", Pattern.CAUSAL_SELF)) not in list(Pattern):
        raise UsageError(f"task.pattern={pattern} is none of {', '.join(Pattern)}")
    for part in ("model", "task", "backbone"):
        check_limits(cfg[part], part)
    task = instantiate(settings, "task", trusted)
    backbone_kwargs = task.backbone_kwargs()
    model = build_model(arguments(cfg.model), arguments(cfg.backbone), trusted, backbone_kwargs)
    check_length(model, backbone_kwargs)
    check_kinds(model)
    check_training(cfg.train)
    optimizer = target(cfg.train.optimizer, "train.optimizer", trusted)
    schedule = target(cfg.train.schedule, "train.schedule", trusted) if cfg.train.schedule else None
    return Built(
        task,
        model,
        partial(call, optimizer, "train.optimizer"),
        partial(call, schedule, "train.schedule") if schedule else None,
    )


def parameter_groups(model: nn.Module) -> Iterable[nn.Parameter] | list[dict[str, Any]]:
    """The argument of an optimizer: all parameters, or groups if layers have `Attention.optimizer_options`.

    The first group has the recipe's options. The others, one per set of options, replace some of them.
    """
    layers = [module for module in model.modules() if isinstance(module, Attention)]
    replaced = {
        layer.get_parameter(name): tuple(sorted(options.items()))
        for layer in layers
        for name, options in layer.optimizer_options().items()
    }
    if not replaced:
        return model.parameters()
    groups: dict[tuple[tuple[str, float], ...], list[nn.Parameter]] = {(): []}
    for parameter in model.parameters():
        groups.setdefault(replaced.get(parameter, ()), []).append(parameter)
    return [{"params": parameters, **dict(options)} for options, parameters in groups.items()]


def build_model(
    model_settings: Mapping[str, Any],
    backbone_settings: Mapping[str, Any],
    trusted: Sequence[str],
    backbone_kwargs: dict[str, Any],
) -> nn.Module:
    """A backbone with attention layers, or a model that replaces the backbone and takes its keys.

    The settings are plain values, as from `arguments`.
    """
    with bounded_size("model and backbone"):
        model, backbone = target(model_settings, "model", trusted), target(backbone_settings, "backbone", trusted)
        return combined(model, backbone, backbone_kwargs)


def combined(model: partial, backbone: partial, backbone_kwargs: dict[str, Any]) -> nn.Module:
    if is_attention(model):
        return call(backbone, "backbone", partial(call, model, "model"), **backbone_kwargs)
    pattern, patterns = backbone_kwargs.get("pattern"), sorted(getattr(model.func, "patterns", ()))
    if pattern not in patterns:
        has = f"it has: {', '.join(patterns)}" if patterns else "it declares no pattern"
        hint = "; python run.py do=verify shows the patterns of every model"
        raise UsageError(f"model: {model.func.__qualname__} has no {pattern} form ({has}){hint}")
    if not issubclass(config_class(model.func), config_class(backbone.func) or ()):
        raise UsageError(f"model: {model.func.__qualname__} cannot replace {backbone.func.__qualname__}")
    return call(partial(model.func, **backbone.keywords | model.keywords), "model", **backbone_kwargs)


def is_attention(model: partial) -> bool:
    """Whether a model is an attention layer. A model that replaces the backbone has a `Config`, as backbones do.

    Raises UsageError for any other class.
    """
    if config_class(model.func) is not None:
        return False
    if isinstance(model.func, type) and not issubclass(model.func, Attention):
        contract = "models.attention.base.Attention (CONTRIBUTING.md, Add a model)"
        plain = f"model=module model.module._target_={model.func.__module__}.{model.func.__qualname__}"
        hint = f"; as a plain module: {plain}" if issubclass(model.func, nn.Module) else ""
        raise UsageError(f"model._target_: {model.func.__qualname__} is no {contract}{hint}")
    return True


def check_length(model: nn.Module, backbone_kwargs: dict[str, Any]) -> None:
    """Raises UsageError if the task has longer sequences than `length_limit`, the maximum of the model."""
    longest, required = getattr(model, "length_limit", None), backbone_kwargs.get("max_length")
    if longest is not None and required is not None and required > longest:
        raise UsageError(f"model: it has parameters for {longest} tokens, the task has up to {required}")


def check_kinds(model: nn.Module) -> None:
    """Raises UsageError for a stack of layers that lacks a kind of block which the settings of its model name."""
    layers = [module for module in model.modules() if isinstance(module, Attention)]
    for kind in dict.fromkeys(map(type, layers)):
        stack = [layer for layer in layers if type(layer) is kind]
        if missing := stack[0].missing_kinds(stack):
            raise UsageError(
                f"model: {kind.__name__}'s settings name {' and '.join(missing)} blocks, which a stack of {len(stack)} "
                "does not have: backbone.layers=... builds more layers, model.<setting>=... names other blocks"
            )


def check_training(train: DictConfig) -> None:
    """Raises UsageError for training settings that contradict each other."""
    clips = [name for name in ("clip_norm", "clip_value", "clip_each") if train[name]]
    if len(clips) > 1:
        raise UsageError(f"train.{clips[0]} and train.{clips[1]} are both set: set one of them to null")
    for part in ("batch_examples", "micro_batch_tokens"):
        if train[part] and not train.batch_tokens:
            raise UsageError(f"train.{part} is a part of train.batch_tokens: set that too, or leave {part} out")
    if (train.select.rule is Rule.last_mean) != (train.mean_of is not None) or (
        train.mean_of is not None and train.mean_of < 2
    ):
        both = "train.select.rule=last_mean and train.mean_of, two evaluations or more, come together"
        raise UsageError(f"train.mean_of={train.mean_of} with select.rule={train.select.rule.name}: {both}")


def build_or_refuse(cfg: DictConfig, build: Callable[[DictConfig], Built] | None = None) -> Built:
    """Build task, model, optimizer and schedule, by default without memory (`on_meta`). Raises UsageError."""
    try:
        built = (build or on_meta)(cfg)
        built.task.check_source()
        return built
    except DataError as error:
        raise UsageError(one_line(error)) from error


def on_meta(cfg: DictConfig) -> Built:
    with torch.device("meta"):
        built = build(cfg)
        optimizer = built.optimizer(parameter_groups(built.model))
        if built.schedule is not None:
            built.schedule(optimizer)
    return built


@contextmanager
def bounded_size(where: str) -> Iterator[None]:
    """Raises UsageError inside the context for a model beyond the bounds. `where`: the configuration's key.

    `layers: 10000000` builds modules in a loop, and so do other keys whose names are not known here. torch reports each
    module and parameter that a constructor adds, also on the meta device, where parameters take no memory.
    """
    counts = dict.fromkeys(MOST, 0)

    def count(parent: nn.Module, name: str, part: nn.Module | nn.Parameter | None) -> None:
        kind = "modules" if isinstance(part, nn.Module) else "parameters"
        counts[kind] += 1 if isinstance(part, nn.Module) else 0 if part is None else part.numel()
        if counts[kind] > MOST[kind]:
            raise UsageError(f"{where}: more than {MOST[kind]:,} {kind}; a size of it is too large")

    hooks = [register_module_module_registration_hook(count), register_module_parameter_registration_hook(count)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def patterns_of(model: str) -> set[str]:
    """The patterns that a model of `conf/model/` declares; none if the model cannot be read."""
    try:
        name = str(option_config("model", model)["_target_"])
        return set(map(str, resolve_name(name).patterns)) if is_allowed(name) else set()
    except (OmegaConfBaseException, UsageError, KeyError, AttributeError):
        return set()
