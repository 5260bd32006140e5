"""The targets that a configuration may build, and the settings of the Trainer that it may choose.

A configuration may come from somebody else. Its `_target_` must therefore be of the kind that stands at its key: a
model, backbone or task of this project, a function or class of the lists below, or part of a package that the
user trusts by name (`harness.config.untrusted`). Nothing with side effects is allowed.

The settings of `trainer.*` say where a cell runs and what is reported. What decides a cell's numbers is part of its
identity (`harness.config.cell`), and Lightning's Trainer takes further settings that change them: these are refused.
"""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pkgutil import resolve_name
from typing import Annotated, Any, Literal

from omegaconf import DictConfig
from pydantic import AfterValidator, Field

from harness.config.validation import StrictModel, parse
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


def check_targets(entries: Iterable[tuple[str, Any]], trusted: Sequence[str] = ()) -> None:
    """Raises UsageError for a forbidden `_target_` among the entries of a configuration (`plain.walk`)."""
    for key, value in entries:
        path, _, last = key.rpartition(".")
        name = str(value)
        if last == "_target_" and not (
            is_allowed(name, trusted) and (name.split(".")[0] in trusted or fits_place(name, path))
        ):
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
        target, base = (resolve_name(":".join(path.rsplit(".", 1))) for path in (name, BASES[package]))
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"cannot find {name} ({one_line(error)})") from error
    is_defined_there = target.__module__ == name.rpartition(".")[0] if hasattr(target, "__module__") else False
    if not inspect.isclass(target) or not issubclass(target, base):
        return False
    # a name that a module of this project only imports is not allowed
    return is_defined_there if package in ("models", "tasks") else target.__module__.startswith(f"{package}.")


def _strategy(value: Any) -> Any:
    if value != "auto" and not (isinstance(value, Mapping) and value.get("_target_") == STRATEGY):
        raise ValueError("it is auto, which follows resources=, or that of trainer=fsdp")
    return value


Count = Annotated[int, Field(ge=1)]


class TrainerSettings(StrictModel):
    target: Literal["lightning.pytorch.Trainer"] | None = Field(None, alias="_target_")
    accelerator: Literal["auto", "cpu", "gpu", "cuda", "mps"] = "auto"
    devices: Count | Literal["auto"] | None
    num_nodes: Count
    strategy: Annotated[Any, AfterValidator(_strategy)] = "auto"
    deterministic: Literal[True, "warn"] | None = None
    profiler: Literal["simple", "advanced", "pytorch"] | None = None
    log_every_n_steps: int | None = None
    detect_anomaly: bool | None = None


def check_trainer(settings: Mapping[str, Any]) -> None:
    """Raises UsageError for a key that could change a cell's numbers, and for values that the harness does not use."""
    try:
        parse(TrainerSettings, settings, "")
    except UsageError as error:
        raise UsageError(f"trainer.{error}") from error


def devices_of(cfg: DictConfig) -> int:
    """Devices of a cell, on all nodes."""
    devices = cfg.trainer.devices
    return (devices if isinstance(devices, int) else 1) * cfg.trainer.num_nodes
