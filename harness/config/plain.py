"""Interpolations: evaluated once, with bounds, by the resolvers of this project.

OmegaConf evaluates `${...}` each time that a value is read, and without bounds: ten texts that repeat each other ten
times make a text of gigabytes. Some of its own resolvers read the environment (`oc.env`) or parse text as configuration
(`oc.create`, `oc.decode`). It has no hook for either, so `limit_interpolations` replaces the two methods that evaluate
every interpolation.

A file of the user, or a typed setting, may read the environment all the same: `from_environment` replaces
`${oc.env:NAME}` in it when it is read.

`resolved` turns a part of a configuration into plain values. What is built from them is not evaluated again: the text
`\\${name}` in a yaml is `${name}`, and stays that. `as_config` makes a configuration from plain values.
"""

import functools
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import omegaconf.base
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf._impl import select_value
from omegaconf.base import Container
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException

from harness.config.masking import note
from harness.errors import UsageError, one_line

# pick, setting, size, default_protocol, for_task: harness.config.resolvers; the others are in Hydra's own yamls
SELECT = "oc.select"
RESOLVERS = ("pick", "setting", "size", "default_protocol", "for_task", SELECT, "hydra", "now", "python_version")
DEEPEST = 40  # interpolations within interpolations
MOST_IN_VALUE = 500  # interpolations that one value needs
MOST_IN_TREE = 3_000  # interpolations of a whole configuration
MOST_NODES = 50_000  # values that interpolations repeat
MOST_LETTERS = 5_000_000  # of text that interpolations make
ENVIRONMENT = "oc.env"
VARIABLE = re.compile(r"\$\{\s*oc\.env\s*:\s*(\w+)\s*(?:,([^${}]*))?\}")  # ${oc.env:NAME,default}


@dataclass
class Work:
    """What the evaluation of a value or a tree has needed so far."""

    most: int
    evaluations: int = 0
    nodes: int = 0
    letters: int = 0
    depth: int = 0
    refusal: str = ""

    def add(self, value: Any) -> None:
        """Count a value that an interpolation gives. Raises InterpolationResolutionError beyond the bounds."""
        if isinstance(value, Container):
            self.nodes += count(value, MOST_NODES)
        else:
            value = value._value() if hasattr(value, "_value") else value
            self.letters += len(value) if isinstance(value, str) else 0
        self.check()

    def check(self) -> None:
        """Raises InterpolationResolutionError beyond the bounds."""
        if self.evaluations > self.most or self.nodes > MOST_NODES or self.letters > MOST_LETTERS:
            self.refuse(
                f"its interpolations repeat too much: more than {self.most:,} of them, {MOST_NODES:,} values or "
                f"{MOST_LETTERS:,} letters"
            )
        if self.depth > DEEPEST:
            self.refuse(f"more than {DEEPEST} interpolations within each other")
        if self.refusal:
            raise InterpolationResolutionError(self.refusal)

    def refuse(self, reason: str) -> None:
        """Refuse this value and all others of the tree: a resolver may catch the error and evaluate again."""
        self.refusal = self.refusal or reason


# `work`: that of the outermost value or tree which this thread evaluates; `strict`: as in `missing_is_an_error`
_scope = threading.local()


@contextmanager
def _work(most: int) -> Iterator[Work]:
    outer = getattr(_scope, "work", None)
    work = _scope.work = outer or Work(most)
    try:
        yield work
    finally:
        _scope.work = outer


@contextmanager
def missing_is_an_error() -> Iterator[None]:
    """Inside the context a value that depends on a missing one does not resolve, although `oc.select` has a default."""
    _scope.strict = True
    try:
        yield
    finally:
        _scope.strict = False


def count(node: Any, most: int) -> int:
    """The number of values in an unresolved container, up to `most`."""
    total, stack = 0, [node]
    while stack and total <= most:
        content = stack.pop()._content
        children = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
        total += 1 + len(children)
        stack += [child for child in children if isinstance(child, Container)]
    return total


@functools.cache
def limit_interpolations() -> None:
    """Bound every evaluation of OmegaConf in this process and refuse resolvers outside `RESOLVERS`.

    `tests/harness/test_plain.py` fails if a new version of OmegaConf evaluates elsewhere.
    """
    resolve_tree, select, evaluate = (
        Container.resolve_parse_tree, Container._resolve_node_interpolation, Container._evaluate_custom_resolver
    )  # fmt: skip

    @functools.wraps(resolve_tree)
    def resolve_bounded(self: Container, *arguments: Any, **settings: Any) -> Any:
        with _work(MOST_IN_VALUE) as work:
            work.depth += 1
            work.evaluations += 1
            try:
                work.check()
                value = resolve_tree(self, *arguments, **settings)
                work.add(value)
                return value
            finally:
                work.depth -= 1

    @functools.wraps(select)
    def select_bounded(self: Container, *arguments: Any, **settings: Any) -> Any:
        node = select(self, *arguments, **settings)
        with _work(MOST_IN_VALUE) as work:
            if not isinstance(node, Container):  # a container is counted once, when the value is complete
                work.evaluations += 1
                work.add(node)
        return node

    @functools.wraps(evaluate)
    def evaluate_allowed(self: Container, *, inter_type: str, inter_args: tuple[Any, ...], **settings: Any) -> Any:
        if inter_type == ENVIRONMENT:
            raise InterpolationResolutionError(
                f"{ENVIRONMENT}:{', '.join(map(str, inter_args))} is not read here: only conf/local, conf/cluster and "
                "the command line read the environment, and only variables that are set"
            )
        if inter_type not in RESOLVERS:
            raise InterpolationResolutionError(
                f"there is no resolver '{inter_type}': a configuration has {', '.join(RESOLVERS[:6])}"
            )
        if inter_type == SELECT and getattr(_scope, "strict", False):
            select_value(cfg=self, key=str(inter_args[0]), absolute_key=True, default=None, throw_on_missing=True)
        return evaluate(self, inter_type=inter_type, inter_args=inter_args, **settings)

    # a plan reads the same texts thousands of times, and parsing takes longer than all else
    omegaconf.base.parse = functools.lru_cache(maxsize=1024)(omegaconf.base.parse)
    Container.resolve_parse_tree = resolve_bounded
    Container._resolve_node_interpolation = select_bounded
    Container._evaluate_custom_resolver = evaluate_allowed


def resolved(config: Any) -> Any:
    """Plain values of a configuration, in which nothing is left to evaluate; other values stay as they are.

    Raises OmegaConf's errors for a value that does not resolve or exceeds the bounds.
    """
    if not OmegaConf.is_config(config):
        return config
    limit_interpolations()
    try:
        with _work(MOST_IN_TREE):
            return OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    except RecursionError:
        raise InterpolationResolutionError("a value of the configuration contains itself") from None


def resolved_or_refused(config: Any, where: str) -> Any:
    """`resolved`. Raises UsageError, with the key, for a value that does not resolve."""
    try:
        return resolved(config)
    except OmegaConfBaseException as error:
        reason = one_line(str(error).split("\n")[0])
        raise UsageError(f"{getattr(error, 'full_key', None) or where}: {reason}") from error


def as_config(values: Any) -> DictConfig | ListConfig:
    """A configuration of plain values, in which every text is that text."""
    return OmegaConf.create(escaped(values))


def escaped(values: Any) -> Any:
    """Plain values with `${` escaped at any depth, as OmegaConf reads them back."""
    if isinstance(values, dict):
        return {key: escaped(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [escaped(value) for value in values]
    if isinstance(values, str) and "${" in values:
        return re.sub(r"(\\*)\$\{", lambda match: 2 * match[1] + r"\${", values)
    return values


def from_environment(values: Any) -> Any:
    """Plain values with `${oc.env:NAME,default}` replaced at any depth; a variable without a value stays as it is."""
    if isinstance(values, dict):
        return {key: from_environment(value) for key, value in values.items()}
    if isinstance(values, list):
        return [from_environment(value) for value in values]
    if not isinstance(values, str) or ENVIRONMENT not in values:
        return values
    whole = VARIABLE.fullmatch(values)
    if whole and whole[1] not in os.environ and whole[2] is not None and whole[2].strip() == "null":
        return None
    return VARIABLE.sub(_variable, values)


def _variable(match: re.Match) -> str:
    default = None if match[2] is None else match[2].strip(" '\"")
    value = os.environ.get(match[1], default)
    if match[1] in os.environ:
        note(os.environ[match[1]], match[1])
    return match[0] if value is None else escaped(value)
