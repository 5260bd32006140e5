"""Mistyped commands: what is wrong, where, and what would be right, in one line, before anything trains.

`check_typed` refuses words that Hydra would accept and the verb would ignore. `explain` makes one line of an error of
Hydra or OmegaConf: the nearest names, a suggestion of `mistakes.yaml`, or else the library's own message.
"""

import contextlib
import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from harness.commands import VERBS
from harness.config import yaml_files
from harness.config.cell import flatten
from harness.config.compose import NAMED, compose, names_in, option_config, recipes
from harness.config.option_files import UNNAMED
from harness.config.overrides import key_of, typed_values
from harness.config.schema import Config
from harness.config.yaml_files import LONGEST_REASON, fault_of, reason
from harness.errors import UsageError, did_you_mean, one_line, same_name

if TYPE_CHECKING:
    from harness.config.sweep import Command

RECIPE = ("model", "task", "protocol", "budget")
NARROWED = ("do", "paths", "table", *RECIPE, "seed")
# the keys that a verb which runs no cell reads; `model.`: only keys below it
READS = {
    "status": (*NARROWED, "status", "state", "since", "each_cell"),
    "compare": ("do", "paths", "cells"),
    "export": ("do", "paths", "cells", "trusted_packages", "model.", "task.", "backbone."),
    "outputs": ("do", "paths", "cells", "trusted_packages", "model.", "task.", "backbone."),
    "curves": NARROWED,
    "report": ("do", "paths", "table", "figure", "check", "format", "notes", "trusted_packages"),
    "check": ("do", "paths"),
    "list": ("do", "task"),
    "verify": ("do", "paths", *RECIPE, "backbone", "settings", "trusted_packages", "record"),
}
# what the verbs that read a whole recipe do not read, and the verb that does
READ_ELSEWHERE = {"check": "report", "format": "report", "cells": "compare", "figure": "report", "status": "status"}
READ_ELSEWHERE |= {"bench": "bench", "record": "verify", "each_cell": "plan", "costs": "plan", "notes": "report"}
NOT_OF_BENCH = ("seed", "rerun", "n_jobs", "fail_fast", "checkpoint", "logger", "debug")
OF_LAYER = tuple(f"bench.{key}" for key in ("pattern", "dim", "heads", "layers", "decoder"))  # a recipe sets these
# pattern of keys that do=bench reads only together with another word: that word
NEEDED_BY_BENCH = {
    r"bench\.run": "table=",
    r"(backbone|train|protocol|budget|settings)(\..*)?": "task=",
    r"bench\.decoder(\..*)?": "bench.layers=",
    r"bench\.chunk": "what=forward",
    r"bench\.(mode|batches|prompt|top_k)": "what=generate",
}
ENDING = re.compile(r"\.(ya?ml|md|py|csv|html)$")
NO_TEXT = re.compile(r"(null|true|false|[-+]?\d[\d_]*(\.\d*)?(e[-+]?\d+)?)?", re.IGNORECASE)  # to Hydra
OTHER_THAN_NAME = re.compile(rf"[\s,;][+~\w./]+=|^[\s\[/]|^conf/|[\s/]$|\\|{ENDING.pattern}")  # settings, lists, paths
SEVERAL = ("trainer", "resources", "cluster", "hydra/launcher", "logger", "debug")  # groups that take a list
ALIKE = 0.8  # similarity of two names, of which one is misspelt
MOST_SHOWN = 6  # keys of a mapping that a message shows
LONGEST_SHOWN = 100  # characters of a word


@functools.cache
def suggestions() -> dict[str, dict[str, str]]:
    tables = yaml_files.read(Path(__file__).with_suffix(".yaml"))
    return tables | {"synonyms": {key: says for keys, says in tables["synonyms"].items() for key in keys.split()}}


def suggestion(table: str, text: str, word: str, **further: str) -> str:
    """The suggestion of the first pattern of a table that the text fits, for a word `key=value`; empty for none."""
    key, _, value = word.lstrip("+~").partition("=")
    for pattern, says in suggestions()[table].items():
        if match := re.search(pattern, text):
            return says.format(*match.groups(), word=word, key=key, value=value, **further)
    return ""


def check_typed(overrides: Sequence[str], search: Sequence[str] = ()) -> None:
    """Raises UsageError for typed settings that the command would not use. They went through `rewrite`.

    `search`: further config folders, which may have groups of their own.
    """
    typed = typed_values(overrides)
    refuse_ignored(do := typed.get("do", "train"), overrides)
    if do == "bench":
        refuse_ignored_by_bench(typed)
    groups = Counter(key_of(word) for word in set(overrides) if key_of(word) in (*NAMED, "seed"))
    if twice := [group for group, count in groups.items() if count > 1]:
        raise UsageError(f"{twice[0]}= is typed twice: leave one out, or type {twice[0]}=a,b with -m to run both")
    for word in overrides:
        if hint := suggestion("words", word, word):
            raise UsageError(f"{word[:LONGEST_SHOWN]}: {hint}")
        if word.startswith("+"):
            refuse_added(key_of(word), search)
    for key, value in typed.items():
        is_list = "(" in value or (key in SEVERAL and value.startswith("["))
        is_other = NO_TEXT.fullmatch(value) or OTHER_THAN_NAME.search(value) or key == "hydra/launcher"
        if key in NAMED and is_other and not is_list and value not in names_in(key):
            raise UsageError(unknown_option(f"{key}/{value}"))


def refuse_ignored(do: str, overrides: Iterable[str]) -> None:
    """Raises UsageError for a typed key that the verb would not read."""
    reads = READS.get(do)
    takes = ", ".join(f"{name}=".replace(".=", ".<key>=") for name in reads or () if name not in ("do", do))
    for word in overrides:
        key = key_of(word)
        part, dot, _ = key.partition(".")
        if reads is None:
            if (verb := READ_ELSEWHERE.get(part, do)) != do and (do, part) != ("bench", "figure"):
                raise UsageError(f"do={do} does not read {key}=, do={verb} does: python run.py do={verb} ...")
        elif "=" not in word and not word.startswith(("-", "~")):
            raise UsageError(f"{not_key_value(word)}; do={do} takes {takes}")
        elif part not in reads and not (dot and f"{part}." in reads):
            raise UsageError(f"do={do} does not read {key}=: it takes {takes}")


def refuse_ignored_by_bench(typed: Mapping[str, str]) -> None:
    """Raises UsageError for a typed key that do=bench would not read. A table or figure says what is read."""
    has_runs = any(typed.get(group, "null") != "null" for group in ("table", "figure"))
    measures = re.findall(r"\w+", typed.get("bench.what", "forward"))
    given = {*(f"{key}=" for key in typed), *(f"what={name}" for name in measures)}
    for key in typed:
        if key.split(".")[0] in NOT_OF_BENCH:
            raise UsageError(f"do=bench does not read {key}=: it runs no cell")
        if key.startswith(OF_LAYER) and "task" in typed and not has_runs:
            raise UsageError(f"{key}=: the recipe sets it; leave {key} out, or task= for one layer")
        needed = next((word for keys, word in NEEDED_BY_BENCH.items() if re.fullmatch(keys, key)), None)
        if needed and needed not in given and not has_runs:
            raise UsageError(f"do=bench reads {key}= only with {needed}: add it, or leave {key} out")


def refuse_added(key: str, search: Sequence[str]) -> None:
    """Raises UsageError for `+key=value` where the harness has the keys of a node and would not read another."""
    node: type = Config
    parts = key.split("@")[0].split(".")
    for number, part in enumerate(parts):
        entries: Mapping[str, type] = {entry.name: entry.type for entry in fields(node)}
        if part not in entries:
            is_group = "/" in part or part in (*NAMED, "hydra") or any(Path(path, part).is_dir() for path in search)
            if not number and is_group:
                return
            path = ".".join([*parts[:number], part])
            raise UsageError(f"+{key}: nothing reads {path}; {did_you_mean(part, entries)} (python run.py --cfg job)")
        if not is_dataclass(entries[part]):
            return
        node = entries[part]


def require_choice(commands: "Iterable[Command]") -> None:
    """Raises UsageError for a run without its task and its scale, which would be the default task for days."""
    for command in commands:
        typed = typed_values(command.overrides)
        if not {"task", "table", "budget"} & typed.keys() and not any(key.startswith("task.") for key in typed):
            raise UsageError(
                "type task= or table= (python run.py do=list shows them), and budget=smoke for a first run of seconds"
            )


@contextlib.contextmanager
def in_one_line(words: Sequence[str]) -> Iterator[None]:
    """Turns the errors of a composition into a UsageError. `words`: the overrides, or the arguments of run.py."""
    try:
        yield
    except (HydraException, OmegaConfBaseException, YAMLError, ValueError) as error:
        if (line := explain(error, words)) is None:
            raise
        raise UsageError(line) from error


def explain(error: BaseException, arguments: Sequence[str]) -> str | None:
    """One line for an error of composition; None for an error that no override causes."""
    if refusal := refusal_in(error):  # OmegaConf and Hydra wrap what a resolver raises
        return refusal
    if isinstance(error, YAMLError):
        mark = getattr(error, "problem_mark", None)
        return f"{mark.name}:{mark.line + 1}: {fault_of(error)}" if mark else reason(error)
    text = str(error)
    if not isinstance(error, (HydraException, OmegaConfBaseException)) and "Config group override" not in text:
        return None
    if match := re.match(r"In '([^']+)': (?:Could not load '([^']+)'|\w+ raised while composing config:)", text):
        group = match[1].partition("/")[0]
        cause = error.__cause__ or error
        problem = f"defaults: {unknown_option(match[2])}" if match[2] else line_of(cause, text[match.end() :])
        is_headless = problem.startswith((f"{group}.{group}:", f"{group}: Key '{group}' not in"))
        return f"{match[1]}: {problem}{'; its first line lacks # @package _global_' if is_headless else ''}"
    if isinstance(error, MissingConfigException) and error.options is not None:
        return unknown_option(error.missing_cfg_file, error.options)
    if isinstance(error, OverrideParseException) or "Config group override" in text:
        return unread(arguments)
    # Hydra names the override of the following errors only in their text
    if match := re.match(r"Could not override '([^']+)'", text):
        inner = getattr(error.__cause__, "full_key", None) or ""  # `resources={gpus: 1}`
        return unknown_key(inner if inner.startswith(f"{match[1]}.") else match[1])
    deleted = next((word for word in arguments if word.startswith("~")), "")
    named = re.search(r"(?:merging override |for argument '|already at ')(.*?)'?$", text, re.MULTILINE)
    word = named[1] if named else deleted or " ".join(arguments)
    if named and (key := key_of(word)) not in NAMED and OmegaConf.select(compose(), key.split(".")[0]) is None:
        return unknown_key(key)
    line = line_of((named and error.__cause__) or error)
    if says := suggestion("errors", f"{text}\n{line}", word, line=line):
        return says
    return f"{f'{word}: ' if named else ''}{line} (python run.py --cfg job shows every key and its value)"


def refusal_in(error: BaseException) -> str | None:
    """The message of the UsageError that an error was raised for; None without one."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, UsageError):
        cause = cause.__cause__ or cause.__context__
    return str(cause) if cause else None


def line_of(error: BaseException, text: str | None = None) -> str:
    """The first line of a library's message that says something, after the key where OmegaConf names it."""
    text = str(error) if text is None else text
    named = re.search(r"^\s*full_key: (\S+)$", text, re.MULTILINE)
    key = getattr(error, "full_key", None) or (named and named[1])
    text = re.sub(r"^\s*\w+ raised while resolving interpolation: ", "", text)
    text = re.sub(r"Cannot assign (\w+) to Dict\[.*", r"a mapping is expected, {name: value}, not a \1", text)
    text = re.sub(r".* is not a ListConfig.*", "a list is expected, [value]", text)
    line = next((line for line in text.splitlines() if line.strip()), reason(error))
    return f"{f'{key}: ' if key else ''}{one_line(line)[:LONGEST_REASON]}"


def unread(arguments: Sequence[str]) -> str:
    """The message for the first argument that Hydra's grammar of overrides does not read."""
    for word in (word for word in arguments if not word.startswith("-")):
        try:
            OverridesParser.create().parse_override(word)
        except HydraException:
            key, equals, value = word.partition("=")
            if key in NAMED and equals and value not in names_in(key):
                return unknown_option(f"{key}/{value}")
            if not equals or not key:
                return not_key_value(word)
            return f"cannot read {word[:LONGEST_REASON]}: {suggestion('unread', word, word)}"
    return f"cannot read {' '.join(arguments)}: settings are typed key=value (python run.py --help)"


def not_key_value(word: str) -> str:
    """The message for a word without `=`, such as `lavo`; what it is the name of is typed in front."""
    keys = [group for group in NAMED if word in names_in(group)] or ["do"] * (word in VERBS)
    hint = suggestion("unread", word, word) or (f"type {keys[0]}={word}" if keys else "python run.py --help")
    return f"'{word[:LONGEST_REASON]}' is not key=value ({hint})"


def unknown_option(path: str, available: Sequence[str] = ()) -> str:
    """The message for `model/lavoo`, which a group lacks, or `protocol/google/lm/pg19`: no recipe for a task."""
    group = next((group for group in NAMED if path.startswith(f"{group}/")), path.rpartition("/")[0])
    name, names = path[len(group) + 1 :], names_in(group) if group in NAMED else available
    problem = f"there is no {group} '{name[:LONGEST_SHOWN]}'"
    if name.startswith(UNNAMED):
        task = name.removeprefix(f"{UNNAMED}/")
        fitting = ", ".join(recipes(task)) or "own, which is for every task"
        return f"task '{task}' names no protocol: add protocol=...; protocols that have a recipe for it: {fitting}"
    for option in names if group in ("protocol", "budget") else ():
        if name.startswith(f"{option}/"):
            task = name[len(option) + 1 :]
            fitting = ", ".join(recipes(task)) or "none"
            return f"{group} '{option}' has no recipe for task '{task}'; protocols that have: {fitting}"
    if hint := suggestion("names", name, f"{group}={name}"):
        return f"{problem}: {hint}"
    parts = ENDING.sub("", name.strip().replace("\\", "/")).strip("/").split("/")
    paths = ["/".join(parts[first:]) for first in range(len(parts))]  # conf/task/lra/listops.yaml, /lra/listops
    if path := next((path for path in paths if path in names), None):
        return f"{problem}: {group}={path} chooses it"
    if group == "model" and "." in name:
        return f"{problem}: your own class is model=module model.module._target_={name}"
    if below := [option for option in names if option.startswith(f"{name}/")]:
        return f"{problem}: -m '{group}={name}/*' runs its {len(below)}: {', '.join(below)}"
    return f"{problem}: {did_you_mean(name, names)} (python run.py do=list)"


def unknown_key(key: str) -> str:
    """The message for a key outside the schema: keys of this name elsewhere, or similar ones."""
    problem = f"there is no key '{key}'"
    synonyms, last = suggestions()["synonyms"], key.rpartition(".")[2]
    if meant := suggestion("keys", key, key) or synonyms.get(key) or synonyms.get(last.lower()):
        return f"{problem}: {meant}"
    group, _, setting = key.partition(".")
    of_options = settings_of_options(group) if setting else {}
    if with_setting := of_options.get(setting):
        shown = f"{', '.join(with_setting[:MOST_SHOWN])}{', ...' * (len(with_setting) > MOST_SHOWN)}"
        return f"{problem} in this {group}; {shown} have it: add {group}=..., which chooses one"
    leaves = set(flatten(OmegaConf.to_container(compose(), enum_to_str=True)))
    keys = {name.rpartition(".")[0] for name in leaves} - {""} | leaves | set(NAMED)
    if key in keys:  # the default cell has it
        return f"{problem} in this recipe, as in others: +{key}=... adds it"
    siblings = [name for name in keys if "." in key and name.rpartition(".")[0] == key.rpartition(".")[0]]
    alike = [name for name in siblings if get_close_matches(last, [name.rpartition(".")[2]], cutoff=ALIKE)]
    alike = alike or same_name(last, sorted(keys))  # train.lr is train.optimizer.lr
    alike = alike or [f"{group}.{name}" for name in get_close_matches(setting, of_options, cutoff=ALIKE)]
    hint = f"did you mean {' or '.join(map(repr, sorted(alike)))}?" if alike else ""
    hint = hint or did_you_mean(key, siblings or keys, siblings or [name for name in keys if "." not in name])
    return f"{problem}: {hint} (python run.py --cfg job shows them all)"


def settings_of_options(group: str) -> dict[str, list[str]]:
    """{setting: the tasks or models whose yaml has it}; empty for another group."""
    names: dict[str, list[str]] = {}
    for name in names_in(group) if group in ("task", "model") else ():
        # a file that nobody asked for may be broken
        with contextlib.suppress(OmegaConfBaseException, HydraException, YAMLError, OSError, UsageError):
            for setting in option_config(group, name):
                names.setdefault(str(setting), []).append(name)
    return names
