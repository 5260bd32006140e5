"""Resolvers for the yamls below `conf/`, which `harness.config.compose` registers."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from harness.config import yaml_files
from harness.config.option_files import BY_TASK, UNNAMED, contents, existing, has_option, is_option
from harness.errors import UsageError

DEEPEST = 20  # tasks that name each other in a chain of defaults lists
PARENT = re.compile(r"/task/([^@]+)@_here_")  # the task whose values a task's yaml starts from


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


def default_protocol(task: str, folders: Sequence[str | Path], deepest: int = DEEPEST) -> str:
    """`protocol:` of a task's yaml or of the tasks in its defaults list, or `???` without one.

    `folders`: config folders; the first has priority. Raises UsageError for a yaml that is no mapping, or whose
    protocol is no name.
    """
    file = next(existing(f"task/{task}.yaml", folders), None)
    content = {} if file is None else yaml_files.read(file)
    protocol = content.get("protocol") if isinstance(content, dict) else content
    if protocol is not None and (not isinstance(protocol, str) or not is_option(protocol)):
        raise UsageError(f"{file}: the name of a protocol is expected below `protocol:`")
    defaults = content.get("defaults") if isinstance(content, dict) and not protocol and deepest else ()
    for word in reversed(defaults if isinstance(defaults, list) else ()):
        if parent := PARENT.fullmatch(word) if isinstance(word, str) else None:
            protocol = protocol or default_protocol(parent[1], folders, deepest - 1).replace(UNNAMED, "")
    return protocol or UNNAMED


def for_task(group: str, folders: Sequence[str | Path], choices: DictConfig) -> str:
    """`${for_task:protocol}`: the option of a group with the choice's values for the chosen task.

    For google and lra/text that is `google/lra/text`, a file or a part of `google/lra.yaml`. It is `google/lra` if that
    file has the same values for every task.

    `choices`: {group: option}, as far as Hydra has read the defaults list; `choices.defaults` has the rest.
    """
    choice = choices.get(group) or next(default[group] for default in choices.defaults if group in default)
    return option_for(group, choice, choices.task, folders)


def option_for(group: str, choice: str, task: str, folders: Sequence[str | Path]) -> str:
    """The option below a choice for the task, for its family, or for any task.

    Without such an option it is the choice itself: a budget for every task, or a protocol without a folder. A protocol
    with a folder serves only the tasks in it; for other tasks this is the name of the missing option.
    """
    option, of_family, of_any = f"{choice}/{task}", f"{choice}/{family(task)}", f"{choice}/any"
    if any(existing(f"{group}/{option}.yaml", folders)):
        return option
    if BY_TASK not in next(contents(f"{group}/{of_family}", folders), {BY_TASK: None}):
        return of_family
    if has_option(f"{group}/{option}", folders):
        return option
    if any(existing(f"{group}/{of_any}.yaml", folders)):
        return of_any
    if choice == UNNAMED:
        return option
    serves_all = group == "budget" or not any((Path(folder) / group / choice).is_dir() for folder in folders)
    return choice if serves_all else option


def family(task: str) -> str:
    return task.partition("/")[0]
