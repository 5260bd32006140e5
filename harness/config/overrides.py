"""Settings in Hydra's grammar of overrides, and what such overrides set."""

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser

from harness.config.plain import resolved
from harness.errors import UsageError


def split_sweep(arguments: Sequence[str], config_loader: ConfigLoader | None = None) -> list[list[str]]:
    """`model=a,b seed=1` -> [[model=a, seed=1], [model=b, seed=1]]. Raises Hydra's parsing errors."""
    overrides = OverridesParser.create(config_loader).parse_overrides(list(arguments))
    try:
        (commands,) = BasicSweeper.split_arguments(overrides, max_batch_size=None)
        return [commands[0], *commands[1:]]
    except (IndexError, ValueError) as error:  # an empty range, or steps of 0
        raise UsageError(f"no value to run in {' '.join(word for word in arguments if '(' in word)}") from error


def typed_values(overrides: Iterable[str]) -> dict[str, str]:
    """{key: typed value}"""
    pairs = (override.lstrip("+~").partition("=") for override in overrides)
    return {key: value for key, equals, value in pairs if equals}


def recipe_settings(values: Mapping[str, str]) -> dict[str, str]:
    """The typed values that change the recipe, sorted by key; not those of the command or of a model."""
    parts = ("task.", "backbone.", "train.", "protocol.", "settings.")
    return {key: value for key, value in sorted(values.items()) if key.startswith(parts)}


def key_of(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def to_overrides(settings: Mapping[str, Any]) -> list[str]:
    """{"model.segments": [16, 32]} -> ["model.segments=[16,32]"]: Hydra reads these as the same values."""
    return [f"{key}={in_grammar(value)}" for key, value in settings.items()]


def in_grammar(value: Any) -> str:
    """A value in Hydra's grammar of overrides."""
    value = resolved(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{in_grammar(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(in_grammar, value)) + "]"
    if isinstance(value, str):
        return value if is_plain(value) else quoted(value)
    return json.dumps(value) if value is None or isinstance(value, (bool, int)) else repr(value)


@functools.lru_cache(maxsize=4096)
def is_plain(text: str) -> bool:
    """Whether Hydra reads the unquoted text as the same string, not as a number, null, a list or a sweep."""
    if not re.fullmatch(r"[A-Za-z_/][\w/.\-]*", text):
        return False
    return OverridesParser.create().parse_override(f"key={text}").value() == text


def quoted(text: str) -> str:
    """The text in single quotes. Hydra reads a backslash as an escape only before a quote."""
    escaped = re.sub(r"(\\*)'", lambda match: 2 * match[1] + r"\'", text)
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{trailing * chr(92)}'"
