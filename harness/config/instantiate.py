"""`_target_` in yaml -> an object. `harness.config.allowed` decides which targets are allowed.

Hydra's `instantiate` evaluates interpolations in what it builds, after every check. Here the values are plain when they
are checked, and the checked values are those that are built.
"""

import contextlib
import functools
import inspect
import sys
import typing
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hydra._internal.utils import _locate
from omegaconf import MISSING
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from harness.config.allowed import check_targets
from harness.config.plain import resolved, walk
from harness.errors import UsageError, did_you_mean, one_line

WORDS = ("_target_", "_args_", "_partial_")


def instantiate(config: Any, where: str, trusted: Sequence[str] = (), *args: Any, **kwargs: Any) -> Any:
    """Build `config._target_` from its other keys, `args` and `kwargs`. `where` is the config's key, for messages.

    Raises UsageError, in one line, for a forbidden target, a missing or unknown argument, and every ValueError of the
    constructor.
    """
    return call(target(config, where, trusted), where, *args, **kwargs)


def target(config: Any, where: str, trusted: Sequence[str] = ()) -> partial:
    """The callable that `config` names, with its configured arguments bound."""
    config = resolved(config)
    if config.get("_target_", MISSING) == MISSING:
        raise UsageError(f"{where}._target_ has no value: add {where}._target_=package.module.Class to the command")
    entries = walk(config, where)
    check_targets(entries, trusted)
    return bound(config, where)


def why(target: str, error: BaseException) -> str:
    """Why a target is not found. Python calls a module without the name no package."""
    while error.__cause__ is not None:
        error = error.__cause__
    module, _, name = target.rpartition(".")
    if not (isinstance(error, ModuleNotFoundError) and error.name == target and module in sys.modules):
        return one_line(error)
    names = [known for known in vars(sys.modules[module]) if not known.startswith("_")]
    return one_line(f"{module} has no {name}: {did_you_mean(name, names)}")


def bound(config: Mapping[str, Any], where: str) -> partial:
    """The callable of checked plain values: `_target_`, positional `_args_`, and keywords, which may be built first."""
    if unread := [key for key in config if not isinstance(key, str) or (key.startswith("_") and key not in WORDS)]:
        raise UsageError(f"{where}.{unread[0]}: of keys such as _target_ only {', '.join(WORDS)} are read")
    try:
        function = _locate(config["_target_"])
    except SystemExit as error:  # a script without a main guard
        raise UsageError(f"{where}: importing {config['_target_']} ends the program: exit({error.code!r})") from error
    except (ImportError, ValueError) as error:
        raise UsageError(f"{where}: cannot find {config['_target_']} ({why(config['_target_'], error)})") from error
    if not callable(function):
        raise UsageError(f"{where}: {config['_target_']} is no class or function")
    keywords = {key: built(value, f"{where}.{key}") for key, value in config.items() if key not in WORDS}
    return partial(function, *built(config.get("_args_", []), f"{where}._args_"), **keywords)


def built(value: Any, where: str) -> Any:
    """A configured argument: each mapping with a `_target_` in it is built; with `_partial_: true` it is not called."""
    if isinstance(value, list):
        return [built(entry, where) for entry in value]
    if not isinstance(value, Mapping):
        return value
    if "_target_" not in value:
        return {key: built(entry, f"{where}.{key}") for key, entry in value.items()}
    function = bound(value, where)
    return function if value.get("_partial_") else call(function, where)


def call(build: partial, where: str, *args: Any, **kwargs: Any) -> Any:
    """Call `build(*args, **kwargs)`. A class with a dataclass `Config` gets its instance instead of keywords."""
    args, kwargs = (*build.args, *args), {**kwargs, **build.keywords}
    name = getattr(build.func, "__qualname__", str(build.func))
    config = config_class(build.func)
    signature = inspect.signature(config or build.func)
    parameters = signature.parameters
    try:
        signature.bind(*(() if config else args), **kwargs)
    except TypeError as error:
        unknown = [key for key in kwargs if key not in parameters]
        hint = f"; '{unknown[0]}': {did_you_mean(unknown[0], parameters)}" if unknown else ""
        if unknown and unknown[0] in build.keywords:
            hint += f" (~{where}.{unknown[0]} leaves it out)"
        raise UsageError(f"{where} ({name}): {one_line(error)}{hint}") from error
    # a default needs no check: `rate: float = None` is a common way to write an optional argument
    default = {key: parameter.default for key, parameter in parameters.items()}
    typed = {key: value for key, value in build.keywords.items() if key not in default or default[key] is not value}
    check_types(config or build.func, typed, where)
    try:
        return build.func(*args, config(**kwargs)) if config else build.func(*args, **kwargs)
    except Exception as error:
        # Lightning raises this for a missing device and for invalid settings
        if isinstance(error, (ValueError, ImportError)) or type(error).__name__ == "MisconfigurationException":
            raise UsageError(f"{where} ({name}): {one_line(error)}") from error
        raise


def check_types(build: Any, settings: Mapping[str, Any], where: str) -> None:
    """Raises UsageError for a setting that does not have the annotated type, and for nan and inf."""
    hints = type_hints(build)
    for key, value in settings.items():
        adapter = type_adapter(hints[key]) if key in hints else None
        if adapter is None:
            continue
        # yaml has no tuples and no paths
        other = [tuple(value)] if isinstance(value, list) else [Path(value)] if isinstance(value, str) else []
        errors = [error for form in (value, *other) if (error := type_error(adapter, form))]
        if len(errors) == 1 + len(other):
            raise UsageError(f"{where}.{key}: {errors[0]}, not {value!r}")


def type_error(adapter: TypeAdapter, value: Any) -> str | None:
    try:
        adapter.validate_python(value)
    except ValidationError as invalid:
        error = invalid.errors(include_url=False)[0]
        if error.get("ctx", {}).get("class") == "Sequence":
            return "a list is expected"
        return error["msg"][0].lower() + error["msg"][1:]
    return None


@functools.cache
def type_hints(build: Any) -> dict[str, Any]:
    """The annotations of a function, a dataclass or a constructor.

    They include the constructors of base classes, which get their arguments through `**options`.
    """
    sources = [build]
    if inspect.isclass(build) and not is_dataclass(build):
        sources = [ancestor.__init__ for ancestor in reversed(build.__mro__)]
    return {name: hint for source in sources for name, hint in hints_of(source).items()}


def hints_of(function: Any) -> dict[str, Any]:
    """The annotations that can be resolved: some name classes that are imported only for type checkers."""
    with contextlib.suppress(NameError, TypeError):
        return typing.get_type_hints(function)
    hints: dict[str, Any] = {}
    for name, hint in getattr(function, "__annotations__", {}).items():
        alone = type("Alone", (), {"__annotations__": {name: hint}})
        with contextlib.suppress(NameError, TypeError):
            hints |= typing.get_type_hints(alone, getattr(function, "__globals__", None))
    return hints


@functools.cache
def type_adapter(hint: Any) -> TypeAdapter | None:
    """A strict checker of a type; None if pydantic cannot check it."""
    settings = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
    try:
        return TypeAdapter(hint, config=settings)
    except PydanticUserError:
        return None


def config_class(build: Any) -> type | None:
    """The dataclass with the settings of a class, its attribute `Config`; None if it takes keywords."""
    config = getattr(build, "Config", None)
    return config if is_dataclass(config) else None
