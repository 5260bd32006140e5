"""What a yaml below `conf/` may compute, beside OmegaConf's own resolvers. `harness.config.compose` registers these."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from harness.config.family_files import BY_TASK, contents, existing, has_option

UNNAMED = "???"  # Hydra's own sign for a choice that has to be typed


def setting(key: str, default: Any, *, _root_: DictConfig) -> Any:
    """`${setting:window,16}` in a model's yaml: 16, unless the budget or the recipe sets another value.

    The budget's values stand in the model's own yaml (`budgets:`), the recipe's in `settings:` of the protocol.
    """
    for values in (*budget_values(_root_), _root_.settings.get(_root_.model.name)):
        if values is not None and key in values:
            return values[key]
    return default


def budget_values(root: DictConfig) -> Iterator[DictConfig | None]:
    """`budgets:` of the model for this budget and task, its family, or any task: the most specific one first."""
    budgets, budget = root.model.get("budgets") or {}, OmegaConf.select(root, "budget.name")
    if budgets and budget is not None:
        budget, task = getattr(budget, "name", budget), OmegaConf.select(root, "task.name", default="")
        yield from (budgets.get(key) for key in (f"{budget}/{task}", f"{budget}/{family(task)}", budget))


def pick(key: str, options: DictConfig) -> Any:
    """`${pick:${task.features},{M: 336, S: 168}}`: the option that another value names."""
    if key not in options:
        raise ValueError(f"nothing is given for '{key}', only for {', '.join(map(str, options))}")
    return options[key]


def size(key: str, *, _root_: DictConfig) -> Any:
    """`${size:length}` in a recipe of several sizes: the value of the chosen one of `protocol.configurations`."""
    return pick(key, pick(_root_.protocol.configuration, _root_.protocol.configurations))


def default_protocol(task: str, folders: Sequence[str | Path]) -> str:
    """`protocol:` of a task's yaml, or `???` where it names none. `folders`: of configuration, the first one wins."""
    files = existing(f"task/{task}.yaml", folders)
    return next((OmegaConf.load(file).get("protocol") for file in files), None) or UNNAMED


def for_task(group: str, folders: Sequence[str | Path], choices: DictConfig) -> str:
    """`${for_task:protocol}`: the option of a group that holds the choice's values for the chosen task.

    For google and lra/text that is `google/lra/text`, a file or a part of `google/lra.yaml`; or `google/lra` where that
    file holds the same values for every task.

    `choices`: what Hydra knows while it reads the defaults list, {group: option}; defaults that are still to be
    resolved stand in `choices.defaults`.
    """
    choice = choices.get(group) or next(default[group] for default in choices.defaults if group in default)
    return option_for(group, choice, choices.task, folders)


def option_for(group: str, choice: str, task: str, folders: Sequence[str | Path]) -> str:
    """The task's own option below a choice, its family's, or the one for any other task.

    Where there is none it is the choice itself: a budget whose values are for every task, a protocol without a folder.
    A protocol that has one serves the tasks in it alone, and its missing option is named.
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
