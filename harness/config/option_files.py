"""The yamls of options, `task/lra/listops` in each folder of configuration, as Hydra and this project read them.

Hydra reads options through a plugin of it, a source of configurations. `register` adds ours: the clone's files are read
by the C parser once per version, those of other folders through `harness.config.untrusted`, and nothing else of Hydra
opens a file of configuration.

A yaml may have the recipes of a family's tasks: `conf/protocol/luna/lra.yaml` has the values that the tasks share and,
below `tasks:`, the values of each task (`any`: of every other task). It serves the option `protocol/luna/lra/image`.
"""

import functools
import os
import pickle
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, ListConfig, OmegaConf

from harness.config import untrusted, yaml_files
from harness.config.places import CONF
from harness.config.plain import family
from harness.config.schema import Config
from harness.errors import UsageError, shown

BY_TASK = "tasks"
UNNAMED = "???"  # Hydra's mark for a choice that the command must give
PART = re.compile(r"[\w.+-]+")
LONGEST = 200  # characters; a file system has no longer names
DEEPEST = 20  # tasks that name each other in a chain of defaults lists
PARENT = re.compile(r"/task/([^@']+)@_here_")  # the task whose values a task's yaml starts from
SCHEME, SCHEMA = "options", "schema"
PREFIX = f"{SCHEME}://"  # of a folder in Hydra's search path
COMMAND_LINE = "command-line"  # name of sources in Hydra's search path

Folders = Sequence[str | Path]


@functools.lru_cache(maxsize=8192)
def is_option(path: str) -> bool:
    """Whether a path such as `task/lra/listops` is a name: not an absolute path, and without `..`."""
    parts = path.split("/")
    return len(path) <= LONGEST and all(
        part == UNNAMED or (PART.fullmatch(part) is not None and part.strip(".")) for part in parts
    )


def check_option(path: str) -> None:
    """Raises UsageError for a path that is not a name."""
    if not path:
        raise UsageError("an override without a key: settings are typed key=value (python run.py --help)")
    if not is_option(path):
        raise UsageError(
            f"'{shown(path[:60])}' is no name of an option: names have letters, digits and _ . + -, separated by /"
        )


class OptionFiles(FileConfigSource):
    """A folder of configuration, as Hydra searches it. That of the clone has the schema, and the parts of families."""

    @staticmethod
    def scheme() -> str:
        return SCHEME

    def load_config(self, config_path: str) -> ConfigResult:
        if not os.path.lexists(self._file(config_path)):
            parts = in_family(config_path, folders())
            values = pickle.loads(pickled_schema()) if parts is None else OmegaConf.merge(*parts)
            return ConfigResult(self.provider, PREFIX + self.path, values, header={"package": None})
        option = loaded(self.path, config_path.removesuffix(".yaml"))
        return ConfigResult(self.provider, PREFIX + self.path, pickle.loads(option.pickled), option.header)

    def is_group(self, config_path: str) -> bool:
        return (not config_path or is_option(config_path)) and super().is_group(config_path)

    def is_config(self, config_path: str) -> bool:
        check_option(config_path)
        if self.path != str(CONF) or os.path.lexists(self._file(config_path)):
            return os.path.lexists(self._file(config_path))
        return config_path == SCHEMA or in_family(config_path, folders()) is not None

    def _file(self, config_path: str) -> str:
        return f"{self.path}/{self._normalize_file_name(config_path)}"


class SearchPath(SearchPathPlugin):
    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for entry in search_path.get_path():
            if entry.path == str(CONF):
                entry.path = f"{PREFIX}{CONF}"
        for folder in _added.get():
            search_path.append(COMMAND_LINE, f"{PREFIX}{folder}")


def register() -> None:
    """Let Hydra read options as this module does; each time, because its plugins are lost when it is reset."""
    for plugin in (OptionFiles, SearchPath):
        Plugins.instance().register(plugin)


@functools.cache
def pickled_schema() -> bytes:
    return pickle.dumps(OmegaConf.structured(Config))


_added: ContextVar[tuple[str, ...]] = ContextVar("added", default=())


@contextmanager
def added(folders: Iterable[str]) -> Iterator[None]:
    """Inside the context the search path of Hydra has these folders after the clone's."""
    token = _added.set(tuple(folders))
    try:
        yield
    finally:
        _added.reset(token)


def search_path() -> list[str]:
    """The config folders that the running command added with `--config-dir`. Empty outside a Hydra application."""
    if not GlobalHydra.instance().is_initialized():
        return []
    sources = GlobalHydra.instance().config_loader().get_search_path().get_path()
    return [source.path.removeprefix(PREFIX) for source in sources if source.provider == COMMAND_LINE]


def folders() -> list[str]:
    """All config folders, in Hydra's order of search."""
    return [str(CONF), *search_path()]


class Loaded(NamedTuple):
    """`values`, `config`: callers must not change them, but may change what is read from `pickled`."""

    values: Any
    config: DictConfig | ListConfig
    header: dict[str, str | None]
    pickled: bytes


def loaded(folder: str, option: str) -> Loaded:
    """The yaml of an option. Raises UsageError, and YAMLError for invalid yaml of the clone."""
    try:
        status = os.stat(f"{folder}/{option}.yaml")
    except OSError as error:  # a broken link
        raise UsageError(
            f"{shown(f'{folder}/{option}.yaml')}: {(error.strerror or '').lower()}, so it is not read as yaml"
        ) from error
    return _loaded(folder, option, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=2048)
def _loaded(folder: str, option: str, modified_ns: int, size: int) -> Loaded:
    """Read once per version of the file: compositions share most files."""
    path = Path(folder, f"{option}.yaml")
    text = yaml_files.text_in(path) if is_own(folder) else untrusted.text_in(folder, option)
    content = yaml_files.parsed(text, path, yaml_files.config_loader(), yaml_files.MOST_CONFIGURED)
    header = ConfigSource._get_header_dict(text[:512])
    if not is_own(folder):
        untrusted.check(content, header, folder, option)
    config = yaml_files.as_written(content, path)
    return Loaded(content, config, header, pickle.dumps(config))


def is_own(folder: str | Path) -> bool:
    """Whether a folder of configuration is the clone's."""
    return os.path.realpath(folder) == os.path.realpath(CONF)


def read_option(group: str, name: str, search: Sequence[str]) -> DictConfig | None:
    """The values in an option's yaml, which callers must not change; a composition takes a hundred times as long.

    With `defaults: [/<group>/<other>@_here_, _self_]` they override those of the other option. None if Hydra must
    compose them: the yaml is missing, or has another defaults list or a `@package`, or the other option has one.
    """
    config = option_source(group, name, search)
    if config is None or "defaults" not in config:
        return config
    defaults = OmegaConf.to_container(config)["defaults"]
    is_pair = isinstance(defaults, list) and defaults[1:] == ["_self_"]
    match = re.fullmatch(rf"/{group}/([^@]+)@_here_", str(defaults[0])) if is_pair else None
    other = option_source(group, match[1], search) if match else None
    if other is None or "defaults" in other:
        return None
    return OmegaConf.merge(other, OmegaConf.masked_copy(config, [key for key in config if key != "defaults"]))


def option_source(group: str, name: str, search: Sequence[str]) -> DictConfig | None:
    """The content of an option's yaml, without the options that its defaults list names.

    None for a missing yaml, and for one that is not a mapping or has a `@package`.
    """
    for folder in (str(CONF), *map(str, search)) if is_option(name) else ():
        if os.path.isfile(f"{folder}/{group}/{name}.yaml"):
            option = loaded(folder, f"{group}/{name}")
            return option.config if isinstance(option.config, DictConfig) and not option.header["package"] else None
    return None


def has_option(option: str, folders: Folders) -> bool:
    """Whether an option such as `protocol/luna/lra/image` is a file or part of its family's file."""
    return any(existing(f"{option}.yaml", folders)) or in_family(option, folders) is not None


def in_family(option: str, folders: Folders) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The values of `protocol/luna/lra/image` in `luna/lra.yaml`: the shared ones, and those that override them.

    None if the task has a file of its own, and if no family's file has it.
    """
    if option.count("/") != 3 or any(existing(f"{option}.yaml", folders)):
        return None
    family, _, name = option.rpartition("/")
    for content in contents(family, folders):
        by_task = content.get(BY_TASK, {"any": {}})
        if (key := next((key for key in (name, "any") if key in by_task), None)) is not None:
            return {key: value for key, value in content.items() if key != BY_TASK}, by_task[key] or {}
    return None


def contents(option: str, folders: Folders) -> Iterator[dict[str, Any]]:
    """The yaml `protocol/luna/lra` in each folder, with unresolved interpolations."""
    for folder in folders:
        if any(existing(f"{option}.yaml", [folder])):
            values = loaded(str(folder), option).values
            yield values if isinstance(values, dict) else {}


def existing(path: str, folders: Iterable[str | Path]) -> Iterator[Path]:
    """The files of an option such as `protocol/luna/lra.yaml`. Raises UsageError for a path that is not a name."""
    check_option(path)  # `Path.is_file` takes four times as long, and a plan asks a hundred thousand times
    return (Path(file) for folder in folders if os.path.isfile(file := f"{folder}/{path}"))


def default_protocol(task: str, folders: Folders) -> str:
    """`protocol:` of a task's yaml or of the task that it starts from, or `???` without one.

    `folders`: config folders; the first has priority. Raises UsageError for a protocol that is not a name.
    """
    for _ in range(DEEPEST):
        content = next(contents(f"task/{task}", folders), {})
        protocol, parent = content.get("protocol"), PARENT.search(str(content.get("defaults")))
        if protocol is not None and not (isinstance(protocol, str) and is_option(protocol)):
            raise UsageError(f"task={task}: the name of a protocol is expected below `protocol:`")
        if protocol or parent is None:
            return protocol or UNNAMED
        task = parent[1]
    return UNNAMED


def for_task(group: str, folders: Folders, choices: DictConfig) -> str:
    """`${for_task:protocol}`: the option of a group with the choice's values for the chosen task.

    For google and lra/text that is `google/lra/text`, a file or a part of `google/lra.yaml`. It is `google/lra` if that
    file has the same values for every task.

    `choices`: {group: option}, as far as Hydra has read the defaults list; `choices.defaults` has the rest.
    """
    choice = choices.get(group) or next(default[group] for default in choices.defaults if group in default)
    return option_for(group, choice, choices.task, folders)


def option_for(group: str, choice: str, task: str, folders: Folders) -> str:
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
