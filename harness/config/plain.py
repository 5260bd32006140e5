"""Interpolations, `${...}`: their resolvers, and configurations as plain values in which they are evaluated once.

`resolved` turns a part of a configuration into plain values. What is built from them is not evaluated again: the text
`\\${name}` in a yaml is `${name}`, and stays that.
"""

import functools
import json
import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any

from omegaconf import MISSING, DictConfig, ListConfig, OmegaConf
from omegaconf._impl import select_value
from omegaconf.base import Container, Node
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException
from omegaconf.grammar_parser import parse

from harness.errors import UsageError, one_line

_scope = threading.local()  # `strict`: a missing value is an error, although `oc.select` has a default


def select(key: str, default: Any = None, *, _parent_: Container) -> Any:
    """The resolver `oc.select`: the value of a key, or the default without one."""
    strict = getattr(_scope, "strict", False)
    return select_value(cfg=_parent_, key=key, absolute_key=True, default=default, throw_on_missing=strict)


def setting(key: str, default: Any, *, _root_: DictConfig) -> Any:
    """`${setting:window,16}` in a model's yaml: 16, unless the budget or the recipe sets another value.

    The budget's values are in the model's yaml (`budgets:`), the recipe's values in `settings:` of the protocol.
    """
    for values in (*budget_values(_root_), entry(_root_.settings, _root_.model.name)):
        if values is not None and key in values.keys() and key in values:  # noqa: SIM118
            return values[key]
    return default


def entry(node: DictConfig, key: str) -> Any:
    """`node.get(key)`, which takes 100 times as long for a key that is absent: it formats an error.

    `key in node` reads the value; for most keys it is enough that no key has this name.
    """
    return node.get(key) if key in node.keys() and key in node else None  # noqa: SIM118


def budget_values(root: DictConfig) -> Iterator[DictConfig | None]:
    """The model's `budgets:` for this budget and the task, its family, or any task: the most specific first."""
    budgets, budget = entry(root.model, "budgets") or {}, OmegaConf.select(root, "budget.name")
    if not isinstance(budgets, DictConfig | dict):
        raise UsageError(f"model.budgets={budgets}: a mapping is expected, budgets: {{smoke: {{key: value}}}}")
    if budgets and budget is not None:
        budget, task = getattr(budget, "name", budget), OmegaConf.select(root, "task.name", default="")
        yield from (entry(budgets, key) for key in (f"{budget}/{task}", f"{budget}/{family(task)}", budget))


def pick(key: str, options: DictConfig) -> Any:
    """`${pick:${task.features},{M: 336, S: 168}}`: the entry whose key is another value, or else that of `else`."""
    if key not in options and "else" not in options:
        raise ValueError(f"nothing is given for '{key}', only for {', '.join(map(str, options))}")
    return options[key if key in options else "else"]


def size(key: str, default: Any = None, *, _root_: DictConfig) -> Any:
    """`${size:length}` in a recipe of several sizes: the value in the chosen entry of `protocol.configurations`.

    `default`: for protocols without configurations.
    """
    if default is not None and _root_.protocol.configuration is None:
        return default
    return pick(key, pick(_root_.protocol.configuration, _root_.protocol.configurations))


def family(task: str) -> str:
    return task.partition("/")[0]


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


def walk(node: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """(key, value) of plain values at any depth, each mapping and list before its entries."""
    yield key, node
    if isinstance(node, Mapping):
        for name, entry in node.items():
            yield from walk(entry, f"{key}.{name}" if key else str(name))
    elif isinstance(node, (list, tuple)):
        for number, entry in enumerate(node):
            yield from walk(entry, f"{key}[{number}]")


def resolved_alone(cfg: DictConfig, alone: Collection[str], parts: Sequence[str]) -> dict[str, Any]:
    """Parts of a configuration as plain values.

    `alone`: keys on which no other value may depend. Raises UsageError for missing values, and for `alone` an error of
    OmegaConf or UsageError.
    """
    nodes = {key: cfg[key] for key in parts}
    values = {key: resolved(OmegaConf.select(cfg, key)) for key in alone if key.split(".")[0] in parts}
    try:
        with without_values(cfg, alone):
            config = {key: resolved(node) for key, node in nodes.items()}
        for key, value in values.items():
            config = with_value(config, key.split("."), value)
    except OmegaConfBaseException:
        check_none_is_missing(nodes)
        raise
    if MISSING in json.dumps(config, default=str):
        check_none_is_missing(nodes)
    return config


def with_value(config: Mapping[str, Any], keys: Sequence[str], value: Any) -> dict[str, Any]:
    """A copy of nested mappings with another value; what does not change is shared."""
    first, *rest = keys
    return {**config, first: with_value(config[first], rest, value) if rest else value}


@contextmanager
def without_values(cfg: DictConfig, keys: Iterable[str]) -> Iterator[None]:
    """Inside the context there is nothing at these keys, and what depends on a missing value does not resolve.

    Raises UsageError for a key in a part that does not exist.
    """
    nodes = []
    for key in keys:
        node = cfg
        for part in key.split("."):
            node = node._get_node(part) if OmegaConf.is_dict(node) and not node._is_interpolation() else None
        if node is None:
            raise UsageError(f"{key}: there is no such key")
        nodes.append(node)
    values = [node._value() for node in nodes]
    try:
        for node in nodes:
            node._set_value(MISSING)
        _scope.strict = True
        yield
    finally:
        _scope.strict = False
        for node, value in zip(nodes, values, strict=True):
            node._set_value(value)


class NoValueError(UsageError):
    """A value that the command must give; `key` names it."""

    key = ""


def check_none_is_missing(nodes: Mapping[str, DictConfig]) -> None:
    """Raises NoValueError for a value that the command must give. This takes as long as resolving all values."""
    if missing := sorted(key for node in nodes.values() for key in OmegaConf.missing_keys(node)):
        error = NoValueError(f"{missing[0]} has no value: add {missing[0]}=... to the command")
        error.key = missing[0]
        raise error


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
