"""`_target_` in yaml -> an object.

Only targets below a few packages are built, so that a shared configuration cannot run anything else.
"""

import inspect
from collections.abc import Sequence
from dataclasses import is_dataclass
from functools import partial
from typing import Any

import hydra
from hydra.errors import InstantiationException
from omegaconf import OmegaConf

from harness.errors import UsageError, did_you_mean, one_line

ALLOWED = ("models", "tasks", "harness", "torch", "lightning", "torchmetrics")


def instantiate(config: Any, where: str, trusted: Sequence[str] = (), *args: Any, **kwargs: Any) -> Any:
    """Build `config._target_` with its other keys, then `args` and `kwargs`. `where` is the config's key, for messages.

    Raises UsageError, in one line, for a target outside the allowed packages, an argument that is missing or that the
    target does not take, and for every ValueError of its constructor.
    """
    return call(target(config, where, trusted), where, *args, **kwargs)


def target(config: Any, where: str, trusted: Sequence[str] = ()) -> partial:
    """The callable that `config` names, its configured arguments bound."""
    if OmegaConf.is_config(config):
        config = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    check_targets(config, where, trusted)
    if "_target_" not in config:
        raise UsageError(f"{where}._target_ has no value: add {where}._target_=package.module.Class to the command")
    try:
        return hydra.utils.instantiate({**config, "_partial_": True, "_convert_": "all"})
    except InstantiationException as error:
        raise UsageError(f"{where}: cannot find {config['_target_']} ({one_line(root_cause(error))})") from error


def call(build: partial, where: str, *args: Any, **kwargs: Any) -> Any:
    """`build(*args, **kwargs)`. A class with a dataclass `Config` takes one of them in place of the keywords."""
    kwargs = {**kwargs, **build.keywords}
    name = getattr(build.func, "__qualname__", str(build.func))
    config = config_class(build.func)
    signature = inspect.signature(config or build.func)
    parameters = signature.parameters
    try:
        signature.bind(*(() if config else args), **kwargs)
    except TypeError as error:
        unknown = [key for key in kwargs if key not in parameters]
        hint = f"; '{unknown[0]}': {did_you_mean(unknown[0], parameters)}" if unknown else ""
        raise UsageError(f"{where} ({name}): {one_line(error)}{hint}") from error
    try:
        return build.func(*args, config(**kwargs)) if config else build.func(*args, **kwargs)
    except Exception as error:
        # Lightning's own way to say that a setting or a device is not there
        if isinstance(error, (ValueError, ImportError)) or type(error).__name__ == "MisconfigurationException":
            raise UsageError(f"{where} ({name}): {one_line(error)}") from error
        raise


def config_class(build: Any) -> type | None:
    """The dataclass that a class takes its settings in, its attribute `Config`; None: it takes keywords."""
    config = getattr(build, "Config", None)
    return config if is_dataclass(config) else None


def check_targets(config: Any, where: str, trusted: Sequence[str]) -> None:
    if isinstance(config, dict):
        package = str(config.get("_target_", ALLOWED[0])).split(".")[0]
        if package not in (*ALLOWED, *trusted):
            raise UsageError(
                f"{where}: _target_ '{config['_target_']}' is outside the packages that may be built "
                f"({', '.join(ALLOWED)}); if you trust it, add trusted_packages=[{package}]"
            )
        for key, value in config.items():
            check_targets(value, f"{where}.{key}", trusted)
    elif isinstance(config, list):
        for value in config:
            check_targets(value, where, trusted)


def root_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
