"""Rewrites typed arguments for Hydra: patterns, folders of tables, lists, and the order of flags.

The default protocol needs no rewriting: `conf/config.yaml` reads it from the task's yaml.
"""

import fnmatch
import functools
import re
import sys
from collections.abc import Mapping, Sequence

from hydra._internal.utils import get_args_parser

from harness.config.compose import NAMED, OWN_CLASS, has_recipe, names_in
from harness.config.overrides import to_overrides, typed_values
from harness.config.table_rows import has_cells, read_table, row_named
from harness.errors import UsageError

MULTIRUN = ("-m", "--multirun")
# verb: {key: what it means there}; with []: a list, which is typed without brackets. do=bench compares the entries of
# its lists within one run instead of sweeping over them
KEYS = {
    "bench": {"model": "bench.models[]", "lengths": "bench.lengths[]", "what": "bench.what[]", "mode": "bench.mode[]"},
    "report": {"format": "format[]"},
    "plan": {"cells": "each_cell"},
    "status": {"state": "status.state[]", "since": "status.since", "cells": "each_cell"},
}


def rewrite(arguments: Sequence[str]) -> list[str]:
    """The arguments of run.py in Hydra's form. Raises UsageError for a pattern without a match.

    `model=a,b -m`              -> `-m model=a,b`: Hydra takes flags before settings
    `model='a'`                 -> `model=a`: not every shell takes the quotes off
    `task=lra/*`                -> `task=lra/image,lra/listops,...`
    `table=union`               -> `-m table=union/causal,... budget=reduced`: all tables of a folder, with their budget
    `do=bench model=a,b`        -> `do=bench model=a bench.models=[a,b]`
    `do=compare a b`            -> `do=compare cells=[a,b]`
    `do=report format=md,html`  -> `do=report format=[md,html]`
    `do=plan cells=true`        -> `do=plan each_cell=true`
    `do=status state=dead`      -> `do=status status.state=[dead]`
    `table=probes model=a,b`    -> `-m table=probes model=a,b`: a table is a sweep already
    `-m task=a protocol=b,c`    -> `-m task=choice(a) protocol=b,c`
    """
    expanded = budget_of_tables(expand_patterns([unquoted(word) for word in flags_first(arguments)]))
    return choices_together(table_sweep(named_cells(keys_of_verb(expanded))))


def flags_first(arguments: Sequence[str]) -> list[str]:
    """Flags with their values, then the other words; argparse takes no settings on both sides of a flag."""
    flags, words, before = [], [], ""
    for argument in arguments:
        is_value = before in flags_with_value() or (before in ("-i", "--info") and "=" not in argument)
        is_flag = argument.startswith("-") or is_value
        is_again = argument in MULTIRUN and bool(set(flags) & set(MULTIRUN))
        (flags if is_flag else words).extend([] if is_again else [argument])
        before = argument
    return [*flags, *words]


def unquoted(argument: str) -> str:
    """`model='lavo'`, whose quotes no shell has taken off, as `model=lavo`."""
    key, equals, value = argument.partition("=")
    match = re.fullmatch(r"(['\"])([\w./+-]+)\1", value)
    return f"{key}{equals}{match[2]}" if match and key in NAMED else argument


def expand_patterns(arguments: Sequence[str]) -> list[str]:
    """Replace patterns (`*`, `?`, `[]`) by the matching names of the group."""
    expanded = []
    for argument in arguments:
        group, equals, value = argument.partition("=")
        if group == "table":
            value = with_folders(value)
        # logger=[csv,tensorboard] is Hydra's list of options that apply together
        if not equals or group not in NAMED or value.startswith("[") or not set(value) & set("*?["):
            expanded.append(argument)
            continue
        names = names_in(group)
        patterns = [value[5:-1]] if value.startswith("glob(") else value.split(",")
        matches = list(dict.fromkeys(name for pattern in patterns for name in fitting(pattern, group, names)))
        if group == "table" and not {"do=report", "do=bench"} & set(arguments):
            matches = with_cells(matches)
        expanded.append(f"{group}={','.join(with_recipes(group, matches, typed_values(arguments)))}")
    return expanded


def with_folders(value: str) -> str:
    """`union` -> `union/*`: a folder means all of its tables, unless a table has the same name."""
    names = names_in("table")
    folders = {name.partition("/")[0] for name in names if "/" in name} - set(names)
    return ",".join(f"{name}/*" if name in folders else name for name in value.split(","))


def with_cells(tables: list[str]) -> list[str]:
    """The tables that have cells to run. If none has, all of them, for the error message that follows."""
    return [name for name in tables if has_cells(read_table(name))] or tables


def budget_of_tables(arguments: Sequence[str]) -> list[str]:
    """Add the `budget` that all typed tables require, unless a budget was typed."""
    typed = typed_values(arguments)
    if "table" not in typed or "budget" in typed or "do=report" in arguments:
        return list(arguments)
    names = {name for name in names_in("table") if name != "all"} & set(typed["table"].split(","))
    budgets = {read_table(name).get("budget") for name in names}
    return [*arguments, *(f"budget={name}" for name in budgets if name)] if len(budgets) == 1 else list(arguments)


def with_recipes(group: str, names: list[str], typed: Mapping[str, str]) -> list[str]:
    """The tasks (or protocols) that have a recipe for the typed protocols (or tasks), among those of a pattern.

    Standard error lists the others. If none has a recipe, all are kept, for the error message that follows.
    """
    partner = {"task": "protocol", "protocol": "task"}.get(group)
    if partner not in typed or set(typed[partner]) & set("*?["):
        return names
    partners = typed[partner].split(",")

    def has_recipes(name: str) -> bool:
        return all(has_recipe(*((option, name) if group == "task" else (name, option))) for option in partners)

    kept = [name for name in names if has_recipes(name)]
    for name in names if kept else ():
        if name not in kept:
            print(f"left out: {name} (no recipe of {typed[partner]})", file=sys.stderr)
    return kept or names


def fitting(pattern: str, group: str, names: Sequence[str]) -> list[str]:
    if pattern in names:
        return [pattern]
    matches = [name for name in fnmatch.filter(names, pattern) if name not in ("all", "own", *OWN_CLASS)]
    if not matches:
        raise UsageError(f"no {group} fits {pattern}: there is {', '.join(names)}")
    return matches


def keys_of_verb(arguments: Sequence[str]) -> list[str]:
    """`do=bench model=a,b` -> `do=bench bench.models=[a,b] model=a`, so that model.key=value is the first model's."""
    meanings = KEYS.get(typed_values(arguments).get("do", ""), {})
    rewritten = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or key not in meanings:
            rewritten.append(argument)
            continue
        name, is_list, _ = meanings[key].partition("[]")
        if not value.strip("[] "):
            raise UsageError(f"{key}= has no value: {key}=a or, where it takes several, {key}=a,b")
        rewritten.append(f"{name}=[{value.strip('[]')}]" if is_list else f"{name}={value}")
        first = value.split(",")[0]  # which may be a row of a published table, such as `luna_16`
        if key == "model" and (first in names_in("model") or row_named(first) is None):
            rewritten.append(f"model={first}")
    return rewritten


def named_cells(arguments: Sequence[str]) -> list[str]:
    """`do=compare a b` and `do=compare cells=a,b` -> `do=compare cells=[a,b]`, also for do=export and do=outputs.

    An id that consists of digits stays text.
    """
    if not {"do=compare", "do=export", "do=outputs"} & set(arguments):
        return list(arguments)
    cells, rest = [], []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        key, equals, value = argument.partition("=")
        if key == "cells":
            cells += [name.strip() for name in value.strip("[]").split(",")]
        elif equals or argument.startswith("-") or before in flags_with_value():
            rest.append(argument)
        else:
            cells.append(argument)
    return [*rest, *to_overrides({"cells": cells})] if cells else rest


@functools.cache
def flags_with_value() -> frozenset[str]:
    """Hydra's flags whose value is the next argument, such as `--config-dir`."""
    actions = get_args_parser()._actions
    return frozenset(flag for action in actions if action.nargs is None for flag in action.option_strings)


def table_sweep(arguments: Sequence[str]) -> list[str]:
    """Add `-m` for several typed tables, and for a table with a list of models, tasks or seeds."""
    typed = typed_values(arguments)
    lists = any("," in typed.get(key, "") for key in ("table", "model", "task", "seed"))
    is_meant = "table" in typed and lists and not set(arguments) & set(MULTIRUN)
    return ["-m", *arguments] if is_meant else list(arguments)


def choices_together(arguments: Sequence[str]) -> list[str]:
    """If either task or protocol is swept, sweep the other as well, over its single value.

    Hydra first composes the choices that are not swept, and a protocol may have no recipe for the default task.
    """
    typed = typed_values(arguments)
    pair = [key for key in ("task", "protocol") if key in typed]
    swept = [key for key in pair if "," in typed[key] or typed[key].startswith("choice(")]
    if not set(arguments) & set(MULTIRUN) or len(pair) < 2 or len(swept) != 1:
        return list(arguments)
    (single,) = set(pair) - set(swept)
    return [f"{single}=choice({typed[single]})" if word.startswith(f"{single}=") else word for word in arguments]
