"""What a configuration may build: classes that are meant to be built by one, and nothing that acts.

A configuration may come from somebody else. So `_target_` names a model, a backbone, a diagram or a task of this
project, one of the functions and classes listed here, or something of a package that the user trusts by name: on the
command line or in `conf/local`, in no other file.
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

# package -> the base of all of its classes that may be built
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
NAMED = (
    *("harness.training.optim.apollo.Apollo", "harness.training.fsdp.strategy", "lightning.pytorch.Trainer"),
    *(f"harness.training.optim.schedules.{name}" for name in ("cosine", "exponential", "inverse_sqrt", "linear")),
    *(f"harness.training.optim.schedules.{name}" for name in ("milestones", "one_cycle")),
)
MEANT = "a model, backbone or task of this project, torch.optim, or Lightning's Trainer, loggers and strategies"
# functions of these packages may be called, too: they run a layer on made-up inputs and return what it did
FUNCTIONS = "models.diagrams."
# what a configuration of Hydra itself may build
HYDRA = ("hydra._internal.", "hydra_plugins.")
LOG_CLASSES = ("logging.StreamHandler", "logging.FileHandler", "logging.NullHandler", "logging.Formatter")


def check_targets(config: Any, where: str, trusted: Sequence[str] = ()) -> None:
    """Raises UsageError for a `_target_`, at any depth, that may not be built. `where` is the config's key."""
    if isinstance(config, Mapping):
        if "_target_" in config and not is_allowed(name := str(config["_target_"]), trusted):
            package = name.split(".")[0]
            trust = f"if you trust it, type trusted_packages=[{package}]"
            raise UsageError(f"{where}: _target_ '{name}' may not be built: it is not {MEANT}; {trust}")
        for key, value in config.items():
            check_targets(value, f"{where}.{key}", trusted)
    elif isinstance(config, (list, tuple)):
        for value in config:
            check_targets(value, where, trusted)


def is_allowed(name: str, trusted: Sequence[str] = ()) -> bool:
    """Whether a `_target_` may be built. Raises UsageError for one of an allowed package that cannot be found."""
    if name in NAMED or name.split(".")[0] in trusted:
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
    # a module of this project must not lend what it imports from elsewhere
    return is_defined_there if package in ("models", "tasks") else target.__module__.startswith(f"{package}.")


def look_up(name: str) -> Any:
    """An attribute of a module."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def check_trusted(cfg: DictConfig, overrides: Iterable[str]) -> None:
    """Raises UsageError for trusted packages that neither the command nor `conf/local` names."""
    pairs = [override.partition("=") for override in overrides]
    typed = [value for key, _, value in pairs if key.strip("+") == "trusted_packages"]
    trusted = {word.strip(" '\"") for value in typed for word in value.strip("[] ").split(",")} | locally_trusted()
    if unknown := sorted(set(map(str, cfg.trusted_packages)) - trusted):
        raise UsageError(
            f"trusted_packages={unknown}: only the command line and conf/local name these, no other configuration; "
            f"if you trust it, type trusted_packages=[{unknown[0]}]"
        )


def locally_trusted() -> set[str]:
    packages: set[str] = set()
    for path in (CONF / "local").glob("*.yaml"):
        try:
            packages |= set(map(str, OmegaConf.load(path).get("trusted_packages") or ()))
        except (OSError, ValueError, AttributeError, OmegaConfBaseException):
            continue  # Hydra says what is wrong with it
    return packages


def guard_hydra() -> None:
    """Have each configuration checked after Hydra has composed it and before Hydra acts on it.

    This is a wall: `hydra.callbacks`, a launcher and the loggers of Hydra are built before any code of this project is
    called, and Hydra offers no hook in between. So the method that every command and `hydra.compose` go through is
    replaced. `tests/harness/test_allowed.py` fails if a new version of Hydra renames or bypasses it.
    """
    compose_config = Hydra.compose_config

    @functools.wraps(compose_config)
    def checked(self: Hydra, *arguments: Any, **settings: Any) -> DictConfig:
        cfg = compose_config(self, *arguments, **settings)
        check_hydra(cfg.hydra)
        return cfg

    Hydra.compose_config = checked


def check_hydra(hydra: DictConfig) -> None:
    """Raises UsageError for settings of Hydra itself by which a configuration would run code."""
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
    """Where something is built, and its name."""
    if isinstance(config, Mapping):
        for key, value in config.items():
            if key in keys:
                yield where, str(value)
            yield from targets(value, f"{where}.{key}", keys)
    elif isinstance(config, list):
        for value in config:
            yield from targets(value, where, keys)
