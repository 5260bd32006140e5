"""The one door for configurations of other people: folders that `--config-dir` adds, and overrides in shared files.

A configuration is shared: a folder of options, a table, `depends_on`, the overrides in a run folder. Hydra would set
variables and open log files for it, and OmegaConf would evaluate any resolver. Each file is therefore read here first,
as plain data and within bounds, and holds what a recipe, a table or a figure needs. Only its values reach Hydra:

- options of a recipe, with the keys `RECIPE`, and tables and figures; neither `hydra.*`, folders, trusted packages,
  loggers nor the cluster, which only the command line and `conf/local` set;
- defaults lists that name options of the folder or the clone, and do not change where values belong;
- interpolations that read one of `READABLE`, or call a resolver of `CALL` with plain values or such readings. They form
  no circle and repeat nothing often, so no value grows when it is evaluated.

What the values build is checked where it is built (`harness.config.allowed`), and files that they name are checked when
the whole is composed (`harness.config.own_files`).
"""

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from harness.config import yaml_files
from harness.config.places import below
from harness.config.schema import Config
from harness.errors import UsageError, did_you_mean, shown

OWNER = "only the command line and conf/local"
# what a table's row or column, an entry of `depends_on` and a run folder may set
SHARED = ("model", "task", "backbone", "train", "protocol", "budget", "settings", "seed", "bench")
# what a yaml may set
RECIPE = (*SHARED, "depends_on", "defaults", "trainer", "resources", "checkpoint")
OVERRIDDEN_KEY = re.compile(r"[+~]{0,2}([A-Za-z_]\w*)(\.\w[\w-]*)*")

PARTS = ("model", "task", "trainer", "resources")  # a yaml of these groups has the values of this part
DATA = ("table", "figure", "finding")  # the schemas of tables and figures check these
FOR_TASKS = ("protocol", "budget")  # folders below an option have its values for single tasks
NOT_SHARED = ("hydra", "local", "cluster", "logger")

MOST_BYTES = 2**18
MOST_READ = 10_000  # values that a composition reads, each as often as defaults lists name its file
LONGEST_CHAIN = 20  # of defaults lists that name each other
MOST_REPEATED = 50_000  # calls of a resolver x values of the file, which each of them may repeat
LONGEST_TEXT = 1_000  # characters of a text with interpolations

# keys that a value may read; if one of them reads another itself, then one that precedes it here
READABLE = (
    *("paths.data", "paths.slices", "paths.outputs", "seed", "model.name", "task.name", "protocol.name", "budget.name"),
    *(f"resources.{key}" for key in ("nodes", "devices", "accelerator", "cpus")),
    *("task.dataset", "task.features", "task.pattern", "task.max_length"),
    *(f"backbone.{key}" for key in ("dim", "layers", "heads", "dropout", "ffn_dim", "head_dim")),
    *("train.batch_size", "train.max_steps", "train.eval_every"),
)
MOST_READINGS = 2  # of a value that others may read
READING = re.compile(rf"\$\{{({'|'.join(map(re.escape, READABLE))})\}}")
FOLDER = re.compile(rf"{READING.pattern}(/(?!\.)[\w.+-]+)*")
SIZE = re.compile(r"\$\{size:\w+(,[\w.+-]+)?\}")
SELECT = re.compile(r"\$\{oc\.select:settings\.[\w.]+(,[\w.+-]*)?\}")
CALL = re.compile(rf"\$\{{(setting|size|pick):[^$]*\}}|{SELECT.pattern}", re.DOTALL)
# what the values that a resolver returns may read themselves
RETURNED = {"configurations": (), "settings": (SIZE,), "budgets": (SIZE, SELECT)}
OPTION = r"(?!\.)[\w.+-]+(/(?!\.)[\w.+-]+)*"
DEFAULT = re.compile(rf"(optional |override )?(?P<name>/?{OPTION})(?P<package>@_here_|@_global_)?")


def text_in(folder: str, option: str) -> str:
    """The text of a yaml in a folder of somebody else. Raises UsageError for any other file, and for links."""
    path = below(folder, f"{option}.yaml")
    group = option.split("/")[0]
    if group in NOT_SHARED or group == option:
        raise UsageError(f"{shown(path)}: a shared folder has no {group}: {OWNER} set it")
    if path.is_symlink():
        raise UsageError(f"{shown(path)}: a link, which is not followed, so it is not read as yaml")
    text = yaml_files.text_in(path, follow=False)
    if len(text) > MOST_BYTES:
        raise UsageError(f"{shown(path)}: more than {MOST_BYTES:,} characters of yaml")
    return text


def check(content: Any, header: Mapping[str, str | None], folder: str, option: str) -> None:
    """Raises UsageError for content that a recipe, table or figure does not need. `header`: the `@` lines of the file.

    Also for a defaults list that leads to more files than the bounds.
    """
    path = shown(f"{folder}/{option}.yaml")
    try:
        check_content({} if content is None else content, header, option)
        check_chain(folder, option)
    except ValueError as error:
        raise UsageError(f"{path}: {shown(error)}") from None


def check_content(content: Any, header: Mapping[str, str | None], option: str) -> None:
    """Raises ValueError."""
    group, _, name = option.partition("/")
    is_recipe, package = group not in (*PARTS, *DATA), header.get("package")
    if not isinstance(content, dict):
        raise ValueError(f"a mapping is expected, not {str(content)[:60]}")
    if {key: value for key, value in header.items() if value} not in ({}, {"package": "_global_"} if is_recipe else {}):
        raise ValueError(f"# @package {str(package)[:60]}: this file has the values of {group}, without @package")
    if is_recipe and package is None and not (group in FOR_TASKS and "/" in name):
        raise ValueError("its first line lacks # @package _global_")
    known = (*RECIPE, "tasks") if group in FOR_TASKS else RECIPE
    if is_recipe and (unknown := [key for key in content if key not in known]):
        is_key = unknown[0] in ("hydra", *(entry.name for entry in fields(Config)))
        why = f"{OWNER} set it" if is_key else f"there is no such key, {did_you_mean(unknown[0], known)}"
        raise ValueError(f"{unknown[0][:60]}: {why}")
    if group == "task" and content.get("name", name) != name and isinstance(content["name"], str):
        raise ValueError(f"name: {content['name'][:60]}, but the file is that of task={name}: write this name")
    if group in DATA and "defaults" in content:
        raise ValueError("defaults: a table or figure has none")
    texts = dict(entries(content, "" if is_recipe else f"{group}."))
    check_defaults(texts.pop("defaults", []), group)
    calls = 0
    for key, value in texts.items():
        key = re.sub(r"^tasks\.[^.]+\.", "", key) if group in FOR_TASKS else key
        if key in READABLE and isinstance(value, (dict, list)) and len(list(entries(value, ""))) > MOST_READINGS:
            raise ValueError(f"{key}: one value is expected")
        if isinstance(value, str) and "${" in value:
            if group in DATA:
                raise ValueError(f"{key}: {value[:100]!r}: a table or figure has no interpolations")
            check_interpolation(value, key)
            calls += FOLDER.fullmatch(value) is None
    if calls * len(texts) > MOST_REPEATED:
        raise ValueError(f"{calls:,} interpolations among {len(texts):,} values are too many")


def entries(node: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """(key, value) at all depths; of a defaults list only the list itself."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        if key == "defaults" and isinstance(node, dict):
            yield "defaults", value
            continue
        if "${" in str(key) or not str(key).strip() or not str(key).isprintable():
            raise ValueError(f"{str(key)[:60]!r} is not a key")
        yield f"{prefix}{key}", value
        yield from entries(value, f"{prefix}{key}.")


def check_interpolation(text: str, key: str) -> None:
    """Raises ValueError for a text with interpolations that is none of those that a recipe needs."""
    inner = SIZE.sub("", READING.sub("", text[2:]))
    is_call = len(text) <= LONGEST_TEXT and CALL.fullmatch(text[:2] + inner)
    if not (FOLDER.fullmatch(text) or SIZE.fullmatch(text) or is_call):
        raise ValueError(f"{key}: {text[:100]!r} is not an interpolation of a shared configuration")
    keys = key.split(".")
    kind = next((part for part in RETURNED if part in keys), None)
    reads = [READABLE.index(match[1]) for match in READING.finditer(text)]
    if kind is not None and not (text.startswith("${paths.") or any(form.fullmatch(text) for form in RETURNED[kind])):
        raise ValueError(f"{key}: {text[:100]!r}: other values read this one, so it does not read another")
    if key in READABLE and (len(reads) > MOST_READINGS or max(reads, default=-1) >= READABLE.index(key)):
        raise ValueError(f"{key}: {text[:100]!r}: it may read {MOST_READINGS} values that do not read it in turn")


def check_defaults(default_list: Any, group: str) -> None:
    """Raises ValueError for a list with another entry than `_self_` or an option, which stays in its part."""
    if not isinstance(default_list, list):
        raise ValueError(f"defaults: a list is expected, not {str(default_list)[:60]}")
    for entry in default_list:
        named, value = next(iter(entry.items())) if isinstance(entry, dict) and len(entry) == 1 else (entry, None)
        match = DEFAULT.fullmatch(named) if isinstance(named, str) else None
        if match is None or not (value is None or (isinstance(value, str) and re.fullmatch(OPTION, value))):
            raise ValueError(f"defaults: {str(entry)[:100]} is not an option")
        own_group = match["name"].strip("/").split("/")[0] if match["name"].startswith("/") else group
        if own_group in NOT_SHARED:
            raise ValueError(f"defaults: {str(entry)[:100]}: {OWNER} choose it")
        if match["package"] and (own_group != group or (match["package"] == "@_global_" and group in (*PARTS, *DATA))):
            raise ValueError(f"defaults: {str(entry)[:100]} is not an option of {group}, whose values it would be")


def check_chain(folder: str, option: str) -> None:
    """Raises ValueError for an option whose defaults lists name themselves, or name too much when taken together."""
    sizes: dict[str, int] = {}

    def size(option: str, above: tuple[str, ...]) -> int:
        """The values of an option and of all that its list names, at every mention."""
        if option in above or len(above) > LONGEST_CHAIN:
            raise ValueError(f"{option}: defaults lists that name themselves, or a chain of more than {LONGEST_CHAIN}")
        if option not in sizes:
            content = plain(folder, option)
            named = named_in(content.get("defaults"), option.rpartition("/")[0])
            sizes[option] = len(list(entries(content, ""))) + sum(size(name, (*above, option)) + 1 for name in named)
        return sizes[option]

    if size(option, ()) > MOST_READ:
        raise ValueError(f"the defaults lists name more than {MOST_READ:,} values")


def plain(folder: str, option: str) -> dict[str, Any]:
    """The content of a file of the folder; empty for an option of the clone, and for a file that would be refused."""
    if not os.path.isfile(f"{folder}/{option}.yaml"):
        return {}
    text = text_in(folder, option)
    content = yaml_files.parsed(text, f"{folder}/{option}.yaml", yaml_files.Loader, yaml_files.MOST_CONFIGURED)
    return content if isinstance(content, dict) else {}


def named_in(default_list: Any, parent: str) -> Iterator[str]:
    """The options that a defaults list names. `parent`: the group of its file."""
    for entry in default_list if isinstance(default_list, list) else ():
        named, value = next(iter(entry.items())) if isinstance(entry, dict) and entry else (entry, None)
        match = DEFAULT.fullmatch(named) if isinstance(named, str) else None
        if match is not None and named != "_self_":
            name = match["name"] if value is None else f"{match['name']}/{value}"
            yield name.lstrip("/") if name.startswith("/") else f"{parent}/{name}"


def check_shared(overrides: Iterable[str], where: str) -> None:
    """Raises UsageError for overrides of a shared file that set more than a recipe. `where` names their source."""
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals and not key.startswith("~"):
            raise UsageError(f"{where}: '{override[:60]}' is not key=value")
        match = OVERRIDDEN_KEY.fullmatch(key)
        if match is None or match[1] not in SHARED:
            raise UsageError(f"{where}: {key[:60]}: {OWNER} set it; a shared file sets {', '.join(SHARED)}")
        # the grammar of overrides recurses into brackets
        levels = itertools.accumulate((letter in "[{(") - (letter in "]})") for letter in value)
        if max(levels, default=0) > yaml_files.DEEPEST:
            raise UsageError(f"{where}: {key[:60]}: more than {yaml_files.DEEPEST} levels of brackets")
        if "${" in value:
            try:
                check_interpolation(value.strip("'\""), key.lstrip("+~"))
            except ValueError as error:
                raise UsageError(f"{where}: {shown(error)}") from None
