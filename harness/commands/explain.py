"""Hydra's and OmegaConf's errors of composition in one line: what is wrong, where, and what would be right."""

import itertools
import re
from collections.abc import Sequence
from difflib import get_close_matches

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from harness.commands.hints import (
    not_key_value,
    of_several_seeds,
    synonym,
    unread,
    unreadable_value,
    with_several_values,
)
from harness.config.cell import flatten
from harness.config.compose import NAMED, compose, names_in, option_config, options, recipes
from harness.config.option_files import UNNAMED
from harness.config.overrides import key_of
from harness.config.untrusted import OVERRIDDEN_KEY
from harness.config.yaml_files import LONGEST_REASON, fault_of, reason
from harness.errors import UsageError, did_you_mean, one_line, same_name

ALIKE = 0.8  # similarity of two names, of which one is misspelt
MOST_SHOWN = 6  # keys of a mapping that a message shows


def explain(error: BaseException, arguments: Sequence[str]) -> str | None:
    """One line for an error of composition; None for an error that no override causes."""
    if refusal := refusal_in(error):  # OmegaConf and Hydra wrap what a resolver raises
        return refusal
    text, typed = str(error), " ".join(arguments)
    if isinstance(error, YAMLError):
        mark = getattr(error, "problem_mark", None)
        return f"{mark.name}:{mark.line + 1}: {fault_of(error)}" if mark else reason(error)
    if match := re.match(r"In '([^']+)': \w+ raised while composing config:", text):
        group, problem = match[1].partition("/")[0], with_key(error.__cause__ or error, text[match.end() :])
        is_headless = problem.startswith((f"{group}.{group}:", f"{group}: Key '{group}' not in"))
        head = "; its first line lacks # @package _global_" if is_headless else ""
        return f"{match[1]}: {problem}{head}"
    if match := re.match(r"In '([^']+)': Could not load '([^']+)'", text):
        return f"{match[1]}: defaults: {unknown_option(match[2], ())}"
    if "does not support sweep type" in text:
        return f"cannot sweep {typed}: type the values, key=1e-4,1e-3"
    if isinstance(error, MissingConfigException) and error.options is not None:
        return unknown_option(error.missing_cfg_file, error.options)
    if isinstance(error, OverrideParseException) and text.startswith("Error parsing override"):
        return not_key_value(str(error.override)) if "=" not in str(error.override) else unread(str(error.override))
    if isinstance(error, OverrideParseException) or "Config group override" in text:
        return unreadable(arguments)
    # Hydra names the override of the following errors only in their text
    if match := re.match(r"Could not override '([^']+)'", text):
        group, _, key = match[1].partition(".")
        if group == "logger" and f"logger={key.partition('.')[0]}" in arguments:  # it takes more than its yaml has
            return f"there is no key '{match[1]}': +{match[1]}=... passes a further argument to the logger"
        inner = getattr(error.__cause__, "full_key", None) or ""  # `resources={gpus: 1}`
        return unknown_key(inner if inner.startswith(f"{match[1]}.") else match[1])
    if text.startswith("Could not append to config") and (match := re.search(r"already at '([^']+)'", text)):
        return f"+{match[1]}: there is a value already; leave the + out"
    if (deleted := re.match(r"Error merging override ~(\S+)", text)) or re.match(r"Key '\w+' not in 'Config'", text):
        word = deleted[1] if deleted else next((word[1:] for word in arguments if word.startswith("~")), "")
        return f"~{word}: every cell has a value; {word.partition('=')[0]}=... sets another"
    if match := re.match(r"Error merging override (.+)", text):
        key, _, value = match[1].partition("=")
        problem = several_keys(match[1]) or reason(error.__cause__ or error)
        if "is not a ListConfig" in f"{text} {problem}":
            problem = f"a list is expected, {key}=[{value}]"
        problem += of_several_seeds(key)
        return f"{match[1]}: {problem} (python run.py --cfg job shows every key and its value)"
    if match := re.match(r"Ambiguous value for argument '([^']+)'", text):
        if key_of(match[1]) not in NAMED and (unknown := unknown_part(key_of(match[1]))):
            return unknown
        if key_of(match[1]) == "do":
            return f"{match[1]}: a command has one verb; type one command for each"
        is_group = key_of(match[1]) in NAMED
        as_list = "" if is_group else f"; a list is typed in brackets, {match[1].replace('=', '=[', 1)}]"
        as_number = with_several_values(*match[1].split("=", 1))
        return (
            f"{match[1]} names several values: add -m to sweep over them, python run.py -m {typed}{as_list}{as_number}"
        )
    if isinstance(error, OmegaConfBaseException):
        return f"{with_key(error, str(error))} (python run.py --cfg job shows every key)"
    return reason(error) if isinstance(error, HydraException) else None


def refusal_in(error: BaseException) -> str | None:
    """The message of the UsageError that an error was raised for; None without one."""
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        if isinstance(cause, UsageError):
            return str(cause)
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__
    return None


def with_key(error: BaseException, text: str) -> str:
    """The first line that says something, after the key where OmegaConf names it."""
    named = re.search(r"^\s*full_key: (\S+)$", text, re.MULTILINE)
    key = getattr(error, "full_key", None) or (named and named[1])
    text = re.sub(r"^\s*\w+ raised while resolving interpolation: ", "", text)
    text = re.sub(r"Cannot assign (\w+) to Dict\[.*", r"a mapping is expected, {name: value}, not a \1", text)
    text = re.sub(
        r"'(\w+)' is not a ListConfig.*|Invalid value assigned: (\w+) is not a ListConfig.*",
        "a list is expected, [value]",
        text,
    )
    lines = [line for line in text.splitlines() if line.strip()]
    return f"{f'{key}: ' if key else ''}{one_line(lines[0])[:LONGEST_REASON] if lines else reason(error)}"


def unknown_option(path: str, available: Sequence[str]) -> str:
    """`model/lavoo`, `protocol/google/lm/pg19`, `task/lra/listop`, `hydra/launcher/slrum`."""
    group = next((group for group in NAMED if path.startswith(group + "/")), None)
    if group is None:
        group, _, name = path.rpartition("/")
        return f"there is no {group} '{name}': {did_you_mean(name, available)}"
    name = path[len(group) + 1 :]
    names = names_in(group)
    if name.startswith(UNNAMED):
        task = name.removeprefix(UNNAMED + "/")
        fitting = ", ".join(recipes(task)) or "own, which is for every task"
        return f"task '{task}' names no protocol: add protocol=...; protocols that have a recipe for it: {fitting}"
    for option in names:
        if group in ("protocol", "budget") and name.startswith(option + "/"):
            task = name[len(option) + 1 :]
            fitting = ", ".join(recipes(task)) or "none"
            return f"{group} '{option}' has no recipe for task '{task}'; protocols that have: {fitting}"
    if group == "model" and "." in name:
        return f"there is no model '{name}': your own class is model=module model.module._target_={name}"
    if below := [option for option in names if option.startswith(f"{name}/")]:
        return f"there is no {group} '{name}': -m '{group}={name}/*' runs its {len(below)}: {', '.join(below)}"
    return f"there is no {group} '{name}': {did_you_mean(name, names)} (python run.py do=list)"


def unknown_part(key: str) -> str:
    """The message for a key that the default cell lacks; empty for a key that it has."""
    part, _, rest = key.partition(".")
    is_known = part in ("model", "task", "backbone", "hydra") or OmegaConf.select(compose(), part) is not None
    return "" if is_known or (rest and part in ("settings", "trainer", "logger")) else unknown_key(key)


def unknown_key(key: str) -> str:
    """A key outside the schema: keys of the same name at other places, or else similar ones of its node, or of all."""
    if key.startswith("hydra.sweeper."):
        return f"there is no key '{key}': hydra.sweeper.trials= and .seed= belong to -m hydra/sweeper=optuna"
    if key.startswith("cluster.sbatch."):
        return f"there is no key '{key}': +{key}=... is a further flag of sbatch"
    if key.startswith("logger."):
        return f"there is no key '{key}': {logger_hint(key.split('.')[1])}"
    if meant := synonym(key):
        return f"there is no key '{key}': {meant}"
    group, _, setting = key.partition(".")
    of_options = settings_of_options(group) if setting else {}
    if with_setting := of_options.get(setting):
        shown = f"{', '.join(with_setting[:MOST_SHOWN])}{', ...' * (len(with_setting) > MOST_SHOWN)}"
        verb = "have" if len(with_setting) > 1 else "has"
        return f"there is no key '{key}' in this {group}; {shown} {verb} it: add {group}=..., which chooses one"
    leaves = set(flatten(OmegaConf.to_container(compose(), enum_to_str=True)))
    keys = {name.rpartition(".")[0] for name in leaves} - {""} | leaves | set(NAMED)
    if key in keys:  # the default cell has it
        return f"there is no key '{key}' in this recipe, as in others: +{key}=... adds it"
    parent, _, last = key.rpartition(".")
    siblings = {name for name in keys if parent and name.rpartition(".")[0] == parent}
    if close := [
        name for name in siblings if get_close_matches(last, [name.rpartition(".")[2]], cutoff=ALIKE)
    ]:  # paths.table is paths.tables
        return f"there is no key '{key}': {did_you_mean(key, close)} (python run.py --cfg job shows them all)"
    elsewhere = same_name(last, sorted(keys))  # train.lr is train.optimizer.lr
    if not elsewhere and (alike := get_close_matches(setting, of_options, cutoff=ALIKE)):  # of another task or model
        siblings = {f"{group}.{name}" for name in alike}
    listed = siblings or {name for name in keys if "." not in name}
    hint = did_you_mean(last, elsewhere) if elsewhere else did_you_mean(key, siblings or keys, listed)
    return f"there is no key '{key}': {hint} (python run.py --cfg job shows them all)"


def settings_of_options(group: str) -> dict[str, list[str]]:
    """{setting: the tasks or models whose yaml has it}; empty for another group."""
    names: dict[str, list[str]] = {}
    for name in names_in(group) if group in ("task", "model") else ():
        try:
            for setting in option_config(group, name):
                names.setdefault(str(setting), []).append(name)
        except (OmegaConfBaseException, HydraException, YAMLError, OSError, UsageError):
            continue  # a file that nobody asked for
    return names


def logger_hint(name: str) -> str:
    """What to type instead of a key of a logger that was not chosen, or of the one that has no settings."""
    names = [option for option, _ in options("logger")]
    if name == "csv":
        return "metrics.csv in the run folder has no settings; paths.outputs=... moves the run folders"
    return f"add logger={name}, which it belongs to" if name in names else did_you_mean(name, names)


def several_keys(override: str) -> str:
    """What to type where one value was typed for a mapping, `train.optimizer=sgd`; empty for any other override."""
    key = override.partition("=")[0]
    node = OmegaConf.select(compose(), key, throw_on_missing=False) if OVERRIDDEN_KEY.fullmatch(key) else None
    if not isinstance(node, DictConfig):
        return ""
    values = flatten(OmegaConf.to_container(node, resolve=False, enum_to_str=True))
    shown = ", ".join(f"{key}.{name}={value}" for name, value in itertools.islice(values.items(), MOST_SHOWN))
    return f"several settings, type {f'one of them: {shown}' if shown else f'{key}={{name: value}}'}"


def unreadable(arguments: Sequence[str]) -> str:
    """The argument that Hydra's grammar of overrides does not read, and how it is typed."""
    for argument in arguments:
        try:
            OverridesParser.create().parse_override(argument)
        except HydraException:
            key, equals, value = argument.partition("=")
            if key in NAMED and value not in dict(options(key)):
                return unknown_option(f"{key}/{value[:LONGEST_REASON]}", ())
            if not equals or argument.startswith("-"):
                continue
            return f"cannot read {argument[:LONGEST_REASON]}: {unreadable_value(key, value)}"
    return f"cannot read {' '.join(arguments)}: settings are typed key=value"
