"""The targets that a configuration may build: classes made for it, and nothing that has side effects.

A configuration may come from somebody else. Its `_target_` must therefore be of the kind that stands at its key: a
model, backbone or task of this project, a function or class of the lists below, or part of a package that the
user trusts by name (`harness.config.untrusted`).
"""

import importlib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.errors import UsageError, one_line, same_name

# package -> the base class that its allowed classes have
BASES = {
    "models": "torch.nn.Module",
    "tasks": "tasks.base.Task",
    "torch.optim.lr_scheduler": "torch.optim.lr_scheduler.LRScheduler",
    "torch.optim": "torch.optim.Optimizer",
    "torchmetrics": "torchmetrics.Metric",
    "lightning.pytorch.loggers": "lightning.pytorch.loggers.Logger",
}
SCHEDULES = "harness.training.optim.schedules"
APOLLO, STRATEGY = "harness.training.optim.apollo.Apollo", "harness.training.fsdp.strategy"
TRAINER = "lightning.pytorch.Trainer"
TARGETS = (
    *(APOLLO, STRATEGY, TRAINER),
    *(f"{SCHEDULES}.{name}" for name in ("cosine", "exponential", "inverse_sqrt", "linear", "milestones", "one_cycle")),
)
OPTIMIZERS = tuple(f"torch.optim.{name}" for name in ("Adagrad", "Adam", "AdamW", "NAdam", "RAdam", "RMSprop", "SGD"))
# key -> the packages and targets that may stand there, at any depth
PLACES = {
    "model": ("models",),
    "backbone": ("models",),
    "task": ("tasks", "torchmetrics"),
    "train.optimizer": ("torch.optim", APOLLO),
    "train.schedule": ("torch.optim.lr_scheduler", SCHEDULES),
    "trainer": (TRAINER,),
    "trainer.strategy": (STRATEGY,),
    "logger": ("lightning.pytorch.loggers",),
}
MEANT = "a model, backbone or task of this project, torch.optim, or a logger of Lightning, each at its own key"


def check_targets(config: Any, where: str, trusted: Sequence[str] = ()) -> None:
    """Raises UsageError for a forbidden `_target_` at any depth. `where` is the config's key."""
    for path, name in targets(config, where):
        if not (is_allowed(name, trusted) and (name.split(".")[0] in trusted or fits_place(name, path))):
            if "." not in name and (meant := same_name(name, (*TARGETS, *OPTIMIZERS))):  # `cosine`, `AdamW`
                raise UsageError(f"{path}._target_={name}: type the whole name, {path}._target_={meant[0]}")
            trust = f"if you trust it, type trusted_packages=[{name.split('.')[0]}]"
            raise UsageError(f"{path}: _target_ '{name[:200]}' may not be built: it is not {MEANT}; {trust}")


def fits_place(name: str, path: str) -> bool:
    """Whether a target is of the kind that `PLACES` lists for its key, or for the longest key above it."""
    keys = [key for key in PLACES if path == key or path.startswith(f"{key}.")]
    kinds = PLACES[max(keys, key=len)] if keys else ()
    return any(name == kind or name.startswith(f"{kind}.") for kind in kinds)


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
    if not inspect.isclass(target) or not issubclass(target, base):
        return False
    # a name that a module of this project only imports is not allowed
    return is_defined_there if package in ("models", "tasks") else target.__module__.startswith(f"{package}.")


def look_up(name: str) -> Any:
    """An attribute of a module."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


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
