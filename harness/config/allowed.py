"""The targets that a configuration may build: classes made for it, and nothing that has side effects.

A configuration may come from somebody else. Its `_target_` must therefore be a model, backbone, diagram or task of this
project, a function or class of the lists below, or part of a package that the user trusts by name. Only the command
line and `conf/local` can name trusted packages.
"""

import functools
import importlib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hydra._internal.hydra import Hydra
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.config.places import CONF
from harness.errors import UsageError, one_line

# package -> the base class that its allowed classes have
BASES = {
    "models": "torch.nn.Module",
    "tasks": "tasks.base.Task",
    "torch.optim.lr_scheduler": "torch.optim.lr_scheduler.LRScheduler",
    "torch.optim": "torch.optim.Optimizer",
    "torchmetrics": "torchmetrics.Metric",
    "lightning.pytorch.loggers": "lightning.pytorch.loggers.Logger",
    "lightning.pytorch.strategies": "lightning.pytorch.strategies.Strategy",
    "lightning.pytorch.profilers": "lightning.pytorch.profilers.Profiler",
}
TARGETS = (
    *("harness.training.optim.apollo.Apollo", "harness.training.fsdp.strategy", "lightning.pytorch.Trainer"),
    *(f"harness.training.optim.schedules.{name}" for name in ("cosine", "exponential", "inverse_sqrt", "linear")),
    *(f"harness.training.optim.schedules.{name}" for name in ("milestones", "one_cycle")),
)
MEANT = "a model, backbone or task of this project, torch.optim, or Lightning's Trainer, loggers and strategies"
# functions of these modules may be called: they run a layer on made-up inputs and return its steps
FUNCTIONS = "models.diagrams."
# the targets allowed in the configuration of Hydra itself
HYDRA = ("hydra._internal.", "hydra_plugins.")
LOG_CLASSES = ("logging.StreamHandler", "logging.FileHandler", "logging.NullHandler", "logging.Formatter")


def check_targets(config: Any, where: str, trusted: Sequence[str] = ()) -> None:
    """Raises UsageError for a forbidden `_target_` at any depth. `where` is the config's key."""
    for path, name in targets(config, where):
        if not is_allowed(name, trusted):
            trust = f"if you trust it, type trusted_packages=[{name.split('.')[0]}]"
            raise UsageError(f"{path}: _target_ '{name}' may not be built: it is not {MEANT}; {trust}")


def is_allowed(name: str, trusted: Sequence[str] = ()) -> bool:
    """Whether a `_target_` may be built. Raises UsageError for a missing name of an allowed package."""
    if name in TARGETS or name.split(".")[0] in trusted:
        return True
    package = next((package for package in BASES if name.startswith(f"{package}.")), None)
    if package is None:
        return False
    try:
        target, base = look_up(name), look_up(BASES[package])
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"cannot find {name} ({one_line(error)})") from error
    is_defined_there = target.__module__ == name.rpartition(".")[0] if hasattr(target, "__module__") else False
    if name.startswith(FUNCTIONS) and inspect.isfunction(target):
        return is_defined_there
    if not inspect.isclass(target) or not issubclass(target, base):
        return False
    # a name that a module of this project only imports is not allowed
    return is_defined_there if package in ("models", "tasks") else target.__module__.startswith(f"{package}.")


def look_up(name: str) -> Any:
    """An attribute of a module."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def check_trusted(cfg: DictConfig, overrides: Iterable[str]) -> None:
    """Raises UsageError for trusted packages that are neither in the command nor in `conf/local`."""
    pairs = [override.partition("=") for override in overrides]
    typed = [value for key, _, value in pairs if key.strip("+") == "trusted_packages"]
    trusted = {word.strip(" '\"") for value in typed for word in value.strip("[] ").split(",")} | locally_trusted()
    if unknown := sorted(set(map(str, cfg.trusted_packages)) - trusted):
        raise UsageError(
            f"trusted_packages={unknown}: only the command line and conf/local can name trusted packages; "
            f"if you trust it, type trusted_packages=[{unknown[0]}]"
        )


def locally_trusted() -> set[str]:
    packages: set[str] = set()
    for path in (CONF / "local").glob("*.yaml"):
        try:
            packages |= set(map(str, OmegaConf.load(path).get("trusted_packages") or ()))
        except (OSError, ValueError, AttributeError, OmegaConfBaseException):
            continue  # Hydra reports the fault
    return packages


def guard_hydra() -> None:
    """Check every configuration after Hydra has composed it and before Hydra acts on it.

    Hydra builds `hydra.callbacks`, its launcher and its loggers before it calls any code of this project, and it has no
    hook in between. This function therefore replaces the method that every command and `hydra.compose` call.
    `tests/harness/test_allowed.py` fails if a new version of Hydra renames or bypasses that method.
    """
    compose_config = Hydra.compose_config

    @functools.wraps(compose_config)
    def checked(self: Hydra, *arguments: Any, **settings: Any) -> DictConfig:
        cfg = compose_config(self, *arguments, **settings)
        check_hydra(cfg.hydra)
        return cfg

    Hydra.compose_config = checked


def check_hydra(hydra: DictConfig) -> None:
    """Raises UsageError for settings of Hydra that would run code."""
    settings = OmegaConf.to_container(hydra, resolve=False)
    for key in ("callbacks", "launcher", "sweeper"):
        for path, name in targets(settings.get(key), f"hydra.{key}"):
            if key == "callbacks" or not name.startswith(HYDRA):
                raise UsageError(f"{path}: _target_ '{name}' may not be built by a configuration")
    for key in ("job_logging", "hydra_logging"):
        for path, name in targets(settings.get(key), f"hydra.{key}", ("()", "class", "ext")):
            if name not in LOG_CLASSES:
                raise UsageError(f"{path}: '{name}' may not be built by a configuration")


def targets(config: Any, where: str, keys: Sequence[str] = ("_target_",)) -> Iterable[tuple[str, str]]:
    """(key, name) of each target at any depth."""
    if isinstance(config, Mapping):
        for key, value in config.items():
            if key in keys:
                yield where, str(value)
            yield from targets(value, f"{where}.{key}", keys)
    elif isinstance(config, (list, tuple)):
        for value in config:
            yield from targets(value, where, keys)
