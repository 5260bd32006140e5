"""Interpolations, `${...}`: their resolvers, and configurations as plain values in which they are evaluated once.

`resolved` turns a part of a configuration into plain values. What is built from them is not evaluated again: the text
`\\${name}` in a yaml is `${name}`, and stays that.
"""

import functools
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf._impl import select_value
from omegaconf.base import Container, Node
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException
from omegaconf.grammar_parser import parse

from harness.errors import UsageError, one_line

_scope = threading.local()  # `strict`: as in `missing_is_an_error`


@contextmanager
def missing_is_an_error() -> Iterator[None]:
    """Inside the context a value that depends on a missing one does not resolve, although `oc.select` has a default."""
    _scope.strict = True
    try:
        yield
    finally:
        _scope.strict = False


def select(key: str, default: Any = None, *, _parent_: Container) -> Any:
    """The resolver `oc.select`: the value of a key, or the default without one."""
    strict = getattr(_scope, "strict", False)
    return select_value(cfg=_parent_, key=key, absolute_key=True, default=default, throw_on_missing=strict)


def resolved(config: Any) -> Any:
    """Plain values of a configuration, in which nothing is left to evaluate; other values stay as they are.

    Raises OmegaConf's errors for a value that does not resolve.
    """
    if not OmegaConf.is_config(config):
        return config
    try:
        return _values(config)
    except RecursionError:
        raise InterpolationResolutionError("a value of the configuration contains itself") from None
    except OmegaConfBaseException:
        return OmegaConf.to_container(config, resolve=True, enum_to_str=True)  # its error names the key


def _values(node: Node) -> Any:
    """As `OmegaConf.to_container`, but each text is parsed once: a plan reads the same ones thousands of times."""
    if node._is_interpolation():
        parent, tree = node._get_parent_container(), parse_tree(node._value())
        node = parent._resolve_interpolation_from_parse_tree(
            parent=parent, value=node, key=node._key(), parse_tree=tree, throw_on_resolution_failure=True, memo=set()
        )
    content = node._value()
    if isinstance(node, DictConfig) and isinstance(content, dict):
        return {key: _values(child) for key, child in content.items()}
    if isinstance(node, ListConfig) and isinstance(content, list):
        return [_values(child) for child in content]
    return content.name if isinstance(content, Enum) else content


parse_tree = functools.lru_cache(maxsize=2048)(parse)


def resolved_or_refused(config: Any, where: str) -> Any:
    """`resolved`. Raises UsageError, with the key, for a value that does not resolve."""
    try:
        return resolved(config)
    except OmegaConfBaseException as error:
        reason = one_line(str(error).split("\n")[0])
        raise UsageError(f"{getattr(error, 'full_key', None) or where}: {reason}") from error


def escaped(values: Any) -> Any:
    """Plain values with `${` escaped at any depth, as OmegaConf reads them back."""
    if isinstance(values, dict):
        return {key: escaped(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [escaped(value) for value in values]
    if isinstance(values, str) and "${" in values:
        return re.sub(r"(\\*)\$\{", lambda match: 2 * match[1] + r"\${", values)
    return values
