"""Files that only the user names: on the command line, in Python, or in the `conf/local` of this machine.

A shared configuration (a table, a protocol, a folder of `--config-dir`, the overrides in a run folder) does not name
files outside the user's folders of data, its outputs and the clone.
"""

import contextlib
import functools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from harness.config import yaml_files
from harness.config.overrides import typed_values
from harness.config.places import CLONE, CONF
from harness.config.plain import resolved, walk
from harness.config.schema import DECLARES, PARTS, value_of
from harness.config.untrusted import OWNER
from harness.errors import UsageError

READ_FROM = ("data", "slices", "outputs")  # folders of `paths` with files for them


def check_own_files(paths: Mapping[str, Any], overrides: Iterable[str], parts: Mapping[str, Any]) -> None:
    """Raises UsageError if a shared configuration names a file elsewhere.

    `overrides`: what the user typed. `parts`: model, task and backbone, or some of them.
    """
    typed = [key for key in typed_leaves(overrides) if "." in key]  # `task=lra/text` names none of the task's files
    check_files(files_outside(parts, paths), typed)
    check_data_root(parts.get("task", {}), paths, typed)


def check_data_root(task: Mapping[str, Any], paths: Mapping[str, Any], typed: Iterable[str]) -> None:
    """Raises UsageError for a folder of prepared data that is neither below the user's own nor typed."""
    root = value_of(task, "data_root")
    if root is None or inside(root, (paths["data"], paths["outputs"])) or "task.data_root" in typed:
        return
    if not is_local("task.data_root", root):
        raise UsageError(f"task.data_root={root}: {OWNER} move it out of paths.data; type paths.data=... to use it")


def typed_leaves(overrides: Iterable[str]) -> dict[str, str]:
    """{key: typed value}, with each entry of a typed mapping: `task={path:/d}` is `task.path=/d` as well."""
    typed = typed_values(overrides)
    for key, value in tuple(typed.items()):
        if value.startswith("{"):
            parsed = OverridesParser.create().parse_override(f"key={value}").value()
            typed |= {f"{key}.{name}": str(entry) for name, entry in parsed.items()} if isinstance(parsed, dict) else {}
    return typed


def check_files(outside: Mapping[str, str], typed: Iterable[str]) -> None:
    """Raises UsageError for a file that neither a typed key nor conf/local names. `outside`: of `files_outside`."""
    keys = tuple(typed)
    for key, path in outside.items():
        is_typed = any(key == name or key.startswith((f"{name}.", f"{name}[")) for name in keys)
        if not is_typed and not is_local(key, path):
            raise UsageError(
                f"{key}={path[:200]}: {OWNER} name files outside paths.data, paths.outputs and the clone; "
                f"type {key}=... to use it"
            )


def is_local(key: str, path: str) -> bool:
    """Whether a yaml in `conf/local` names this file. Hydra reports what is wrong with it."""
    for file in sorted((CONF / "local").glob("*.yaml")):
        with contextlib.suppress(OSError, ValueError, YAMLError, UsageError, OmegaConfBaseException):
            if OmegaConf.select(yaml_files.load_config(file), key) == path:
                return True
    return False


def resolved_parts(cfg: DictConfig) -> dict[str, Any]:
    """Model, task and backbone as plain values; one that does not resolve stays a configuration."""
    parts: dict[str, Any] = {}
    for part in PARTS:
        try:
            parts[part] = resolved(cfg[part])
        except OmegaConfBaseException:
            parts[part] = cfg[part]
    return parts


def files_outside(parts: Mapping[str, Any], paths: Mapping[str, Any]) -> dict[str, str]:
    """{"task.path": path}: what model, task and backbone name outside the folders of the user and the clone.

    A text counts if it is absolute or has `..`, and below a declared path key also if it exists, relative to the
    working directory. A part that does not resolve is left out: nothing is built from it.
    """
    outside: dict[str, str] = {}
    for part in filter(parts.__contains__, PARTS):
        try:
            values = resolved(parts[part])
        except OmegaConfBaseException:
            continue
        declares = values.get(DECLARES)
        declared = declares.get("paths") if isinstance(declares, Mapping) else None
        declared = declared if isinstance(declared, Mapping) else {}
        for key, value in values.items():
            if key in (DECLARES, "data_root"):  # `check_data_root` checks the folder of the data
                continue
            for place, text in walk(value, f"{part}.{key}"):
                if not isinstance(text, str):
                    continue
                is_anywhere = text.startswith(("/", "~")) or ".." in PurePath(text).parts
                is_file = is_anywhere or (os.path.exists(text) and (key in declared or key in declared_in_clone()))
                if is_file and leads_out(text, paths):
                    outside[place] = text
    return outside


def leads_out(text: str, paths: Mapping[str, Any]) -> bool:
    """Whether a path leads out of the folders that a shared configuration may name."""
    if os.path.expanduser(text).startswith("~"):  # of a user that this machine lacks
        return True
    folders = [paths[name] for name in READ_FROM]
    if inside(text, [*folders, *([CLONE] if CLONE else ())]):
        return False
    # the folders of data may hold links of the user; `..` behind a link leads elsewhere than it seems
    typed = Path(os.path.abspath(os.path.expanduser(text)))
    linked = any(typed.is_relative_to(os.path.abspath(os.path.expanduser(folder))) for folder in folders[:2])
    return ".." in PurePath(text).parts or not linked


@functools.cache
def declared_in_clone() -> frozenset[str]:
    """The path keys that a yaml of the clone declares: a shared yaml need not declare the keys that it sets."""
    keys = {"path"}
    for group in ("model", "task", "protocol", "budget"):
        for file in sorted((CONF / group).rglob("*.yaml")):
            if DECLARES in file.read_text(encoding="utf-8"):
                entries = walk(yaml_files.read(file), "yaml")
                keys |= {key for place, paths in entries if place.endswith(f".{DECLARES}.paths") for key in paths or ()}
    return frozenset(keys)


def absolute(path: Any) -> Path:
    """Without links and `..`, so that a folder below another one is there on the disk, too."""
    return Path(os.path.realpath(os.path.expanduser(str(path))))


def inside(path: str, folders: Iterable[Any]) -> bool:
    """Whether a path lies in one of the folders."""
    target = absolute(path)
    return any(target.is_relative_to(absolute(folder)) for folder in folders if folder not in (None, MISSING))
