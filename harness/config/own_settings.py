"""Settings that only the user makes: on the command line, in Python, or in the `conf/local` of this machine.

Configurations are shared: a table, a protocol, a folder of `--config-dir`, the overrides in a run folder. None of them
may trust packages, move the folders that are written, name files of the user elsewhere, choose where loggers send
data, or change what a scheduler executes. `check_own` compares a composed configuration with what the user typed;
`check_shared` refuses overrides of other origin before they are composed together with typed ones.
"""

import functools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path, PurePath
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from harness.config import yaml_files
from harness.config.places import CLONE, CONF
from harness.config.plain import ENVIRONMENT, from_environment, resolved
from harness.config.schema import DECLARES, Cluster, Paths, value_of
from harness.errors import UsageError

# what a table's row or column, an entry of `depends_on` and a run folder may set
SHARED = ("model", "task", "backbone", "train", "protocol", "budget", "settings", "seed", "bench")
KEY = re.compile(r"[+~]{0,2}([A-Za-z_]\w*)(\.\w[\w-]*)*")
OWNER = "only the command line and conf/local"
OPENING = ("model", "task", "backbone")  # parts whose classes open files
FILE_LOGGERS = tuple(f"lightning.pytorch.loggers.{name}" for name in ("CSVLogger", "TensorBoardLogger"))
READ_FROM = ("data", "slices", "outputs")  # folders of `paths` with files for them


def check_shared(overrides: Iterable[str], where: str) -> None:
    """Raises UsageError for overrides of a shared file that set more than a recipe. `where` names their source."""
    for override in overrides:
        key, equals, _ = override.partition("=")
        if not equals and not key.startswith("~"):
            raise UsageError(f"{where}: '{override[:60]}' is not key=value")
        match = KEY.fullmatch(key)
        if match is None or match[1] not in SHARED:
            raise UsageError(f"{where}: {key[:60]} is not set here, {OWNER} set it; here stand {', '.join(SHARED)}")
        if ENVIRONMENT in override:
            raise UsageError(f"{where}: {key[:60]}: {ENVIRONMENT} is not read here, {OWNER} read the environment")


def check_own(cfg: DictConfig, overrides: Iterable[str], parts: Mapping[str, Any] | None = None) -> None:
    """Raises UsageError if a shared configuration makes a setting that only the user makes.

    `overrides`: what the user typed. `parts`: as `resolved_parts` gives them, for a caller that has them.
    """
    typed = typed_leaves(overrides)
    check_trusted(cfg, typed)
    check_folders(cfg, typed)
    check_own_files(cfg.paths, overrides, parts or {part: cfg[part] for part in OPENING})
    check_cluster(cfg.cluster, typed)
    check_loggers(cfg.logger, typed)


def check_own_files(paths: Mapping[str, Any], overrides: Iterable[str], parts: Mapping[str, Any]) -> None:
    """`check_own` of the files that `parts` name: model, task and backbone, or some of them."""
    typed = (key for key in typed_leaves(overrides) if is_below_group(key))
    check_files(files_outside(parts, paths), typed)


def typed_leaves(overrides: Iterable[str]) -> dict[str, str]:
    """{key: typed value}, with each entry of a typed mapping: `paths={data:/d}` is `paths.data=/d` as well."""
    typed: dict[str, str] = {}
    for key, value in map(split, overrides):
        typed[key] = value
        if value.startswith("{"):
            parsed = OverridesParser.create().parse_override(f"key={value}").value()
            parsed = parsed if isinstance(parsed, Mapping) else {}
            typed |= {f"{key}.{name}": str(entry) for name, entry in leaves(parsed).items()}
    return typed


def leaves(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"job.env_set.PATH": value}: the values that are no mappings."""
    flat: dict[str, Any] = {}
    for key, value in node.items():
        flat |= leaves(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def split(override: str) -> tuple[str, str]:
    key, _, value = override.lstrip("+~").partition("=")
    return key, value


def check_trusted(cfg: DictConfig, typed: Mapping[str, str]) -> None:
    if not cfg.trusted_packages:
        return
    trusted = {word.strip(" '\"") for word in typed.get("trusted_packages", "").strip("[] ").split(",")}
    refuse_untrusted(cfg.trusted_packages, trusted)


def refuse_untrusted(packages: Iterable[Any], trusted: Iterable[str], where: str = "") -> None:
    """Raises UsageError for packages that are neither in `trusted` nor in `conf/local`. `where` names their source."""
    if unknown := sorted(set(map(str, packages)) - set(trusted) - locally_trusted()):
        raise UsageError(
            f"{where}trusted_packages={unknown}: {OWNER} can name trusted packages; "
            f"if you trust it, type trusted_packages=[{unknown[0]}]"
        )


def locally_trusted() -> set[str]:
    return {str(name) for values in local_values() for name in values.get("trusted_packages") or ()}


def check_folders(cfg: DictConfig, typed: Mapping[str, str]) -> None:
    """Raises UsageError for a folder that is written and is not the user's own."""
    check_paths(cfg.paths, typed)
    root = value_of(cfg.task, "data_root")
    if root is not None and "task.data_root" not in typed and not inside(root, (cfg.paths.data, cfg.paths.outputs)):
        raise UsageError(f"task.data_root={root}: {OWNER} move it out of paths.data; type paths.data=... to use it")


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


def is_below_group(key: str) -> bool:
    """Whether a typed key sets a value: `task=lra/text` alone names none of the task's files."""
    return "." in key


def is_local(key: str, path: str) -> bool:
    local = (raw_at(values, *key.split(".")) for values in local_values())
    return any(value == path for value in local if isinstance(value, str))


def resolved_parts(cfg: DictConfig) -> dict[str, Any]:
    """Model, task and backbone as plain values; one that does not resolve stays a configuration."""
    parts: dict[str, Any] = {}
    for part in OPENING:
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
    for part in filter(parts.__contains__, OPENING):
        try:
            values = resolved(parts[part])
        except OmegaConfBaseException:
            continue
        declares = values.get(DECLARES)
        declared = declares.get("paths") if isinstance(declares, Mapping) else None
        keys = declared_in_clone() | set(declared if isinstance(declared, Mapping) else ())
        for key, value in values.items():
            if key not in (DECLARES, "data_root"):  # `check_folders` checks the folder of the data
                for place, text in texts(value, f"{part}.{key}"):
                    if leads_out(text, paths, is_path=key in keys):
                        outside[place] = text
    return outside


def leads_out(text: str, paths: Mapping[str, Any], *, is_path: bool) -> bool:
    is_anywhere = text.startswith(("/", "~")) or ".." in PurePath(text).parts
    if not is_anywhere and not (is_path and os.path.exists(text)):
        return False
    if os.path.expanduser(text).startswith("~"):  # of a user that this machine lacks
        return True
    folders = [paths[name] for name in READ_FROM]
    if inside(text, [*folders, *([CLONE] if CLONE else ())]):
        return False
    # the folders of data may hold links of the user; `..` behind a link leads elsewhere than it seems
    typed = Path(os.path.abspath(os.path.expanduser(text)))
    linked = any(typed.is_relative_to(os.path.abspath(os.path.expanduser(folder))) for folder in folders[:2])
    return ".." in PurePath(text).parts or not linked


def texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """The texts in nested mappings and lists with their keys."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            yield from texts(entry, f"{key}.{name}")
    elif isinstance(value, list):
        for number, entry in enumerate(value):
            yield from texts(entry, f"{key}[{number}]")


@functools.cache
def declared_in_clone() -> frozenset[str]:
    """The path keys that a yaml of the clone declares: a shared yaml need not declare the keys that it sets."""
    keys = {"path"}
    for group in ("model", "task", "protocol", "budget"):
        for file in sorted((CONF / group).rglob("*.yaml")):
            if DECLARES in file.read_text(encoding="utf-8"):
                keys |= set(declared_paths(yaml_files.read(file)))
    return frozenset(keys)


def declared_paths(content: Any) -> Iterator[str]:
    """The keys below `declares.paths` at any depth of a yaml."""
    entries = content.items() if isinstance(content, Mapping) else ()
    for key, value in entries:
        yield from (value.get("paths") or ()) if key == DECLARES else declared_paths(value)


def check_paths(paths: DictConfig, typed: Mapping[str, str]) -> None:
    """Raises UsageError for a folder that is neither the user's own nor below the user's `paths.outputs`."""
    moved = [name for name in paths if f"paths.{name}" not in typed and not is_own_path(paths, str(name))]
    for name in moved:
        outputs = None if "outputs" in moved else absolute(paths.outputs)
        if outputs is None or outputs not in absolute(paths[name]).parents:  # baselines lie beside the records
            raise UsageError(
                f"paths.{name}={paths[name]}: {OWNER} move it out of the folders below paths.outputs; "
                f"type paths.{name}=... to use it"
            )


def is_own_path(paths: DictConfig, name: str) -> bool:
    """Whether a folder is that of the schema or of conf/local."""
    value = raw(paths, name)
    return value in default_forms(name) or any(
        local == value or ("${" not in str(local) and absolute(local) == absolute(value))
        for values in local_values()
        if (local := raw_at(values, "paths", name)) is not None
    )


@functools.cache
def default_forms(name: str) -> tuple[str, ...]:
    """A default folder, relative to the clone and absolute: which of them it is depends on the working directory."""
    (default,) = (entry.default_factory() for entry in fields(Paths) if entry.name == name)
    if CLONE is None:
        return (default,)
    path = CLONE / default
    return (str(path), str(path.relative_to(CLONE))) if path.is_relative_to(CLONE) else (str(path),)


def check_cluster(cluster: DictConfig, typed: Mapping[str, str]) -> None:
    """Raises UsageError for a setting of the scheduler, such as the shell lines of its jobs, from another source.

    `conf/cluster/*.yaml` of this clone, which `cluster=` chooses, are the user's own as well.
    """
    values = OmegaConf.to_container(cluster)
    if values == default_cluster():
        return
    sources = [values.get("cluster") or {} for values in local_values()] + list(values_in(CONF / "cluster"))
    trusted = [default_cluster(), *sources]
    for name, value in values.items():
        for key, part in leaves({name: value}).items():
            if f"cluster.{key}" not in typed and not any(leaves(source).get(key) == part for source in trusted):
                raise UsageError(f"cluster.{key}: {OWNER}, and conf/cluster of this clone, set it")


def check_loggers(logger: DictConfig, typed: Collection[str]) -> None:
    """Raises UsageError for a logger that a shared configuration sets, unless it only writes files.

    Any other one may send what it is told, and the password of its service, to an address of the configuration.
    `conf/logger/*.yaml` of this clone are the user's own as well.
    """
    sending = {
        name: settings
        for name, settings in OmegaConf.to_container(logger).items()
        if not (isinstance(settings, Mapping) and settings.get("_target_") in FILE_LOGGERS)
    }
    if not sending:
        return
    local = [values.get("logger") or {} for values in local_values()]
    sources = [leaves(source) for source in (*local, *values_in(CONF / "logger"))]
    for key, value in leaves(sending).items():
        if f"logger.{key}" not in typed and not any(key in own and own[key] == value for own in sources):
            raise UsageError(
                f"logger.{key}: {OWNER}, and conf/logger of this clone, set loggers that may send data; "
                f"type logger.{key}=... to use it"
            )


def logger_keys(logger: Mapping[str, Any]) -> list[str]:
    """The keys that `check_loggers` asks for, as they are typed."""
    return [f"logger.{key}" for key in leaves(logger)]


@functools.cache
def default_cluster() -> Any:
    return OmegaConf.to_container(OmegaConf.structured(Cluster))


def raw(node: DictConfig, key: str) -> Any:
    """A value as it stands, with its interpolations."""
    return node._get_node(key)._value()


def raw_at(values: Mapping[str, Any], *keys: str) -> Any:
    for key in keys:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def absolute(path: Any) -> Path:
    """Without links and `..`, so that a folder below another one is there on the disk, too."""
    return Path(os.path.realpath(os.path.expanduser(str(path))))


def local_values() -> Sequence[Mapping[str, Any]]:
    """The unresolved values of the yamls in `conf/local`."""
    return values_in(CONF / "local")


def values_in(folder: Path) -> Sequence[Mapping[str, Any]]:
    files = sorted(folder.glob("*.yaml"))
    return tuple(from_environment(_values_of(file, file.stat().st_mtime_ns)) for file in files)


@functools.lru_cache(maxsize=64)
def _values_of(file: Path, modified_ns: int) -> Mapping[str, Any]:
    """Read once per version of the file."""
    try:
        values = OmegaConf.to_container(yaml_files.load_config(file))
    except (OSError, ValueError, YAMLError, UsageError, OmegaConfBaseException):
        return {}  # Hydra reports the fault
    return values if isinstance(values, Mapping) else {}


def inside(path: str, folders: Iterable[Any]) -> bool:
    """Whether a path lies in one of the folders."""
    target = absolute(path)
    return any(target.is_relative_to(absolute(folder)) for folder in folders if folder not in (None, MISSING))


def own_folders(cfg: DictConfig) -> Iterator[str]:
    """The folders that a run may write: those of `paths.*`."""
    yield from map(str, resolved(cfg.paths).values())
