"""One yaml with the recipes of a family's tasks: `conf/protocol/luna/lra.yaml` holds the values that the tasks share
and, below `tasks:`, the values of each task (`any`: of every other task).

`register` adds a source of configurations, with which Hydra finds the option `protocol/luna/lra/image` in that file.
"""

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf

from harness.config import yaml_files
from harness.config.option_names import check_option

BY_TASK = "tasks"
PROVIDER = "families"  # the name of the source in Hydra's search path

Folders = Sequence[str | Path]


def register(folders: Callable[[], Folders]) -> None:
    """Let Hydra read the files of families. `folders`: the config folders; the first has priority."""
    for plugin in _plugins(folders):
        Plugins.instance().register(plugin)


@functools.cache
def _plugins(folders: Callable[[], Folders]) -> tuple[type[ConfigSource], type[SearchPathPlugin]]:

    class FamilyFiles(ConfigSource):
        @staticmethod
        def scheme() -> str:
            return PROVIDER

        def load_config(self, config_path: str) -> ConfigResult:
            return ConfigResult(
                self.provider, self.path, values_in_family(config_path, folders()), header={"package": None}
            )

        def is_config(self, config_path: str) -> bool:
            return is_in_family(config_path, folders())

        def is_group(self, config_path: str) -> bool:
            return False

        def available(self) -> bool:
            return True

        def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
            return []

    class FamilySearchPath(SearchPathPlugin):
        def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
            search_path.append(PROVIDER, f"{PROVIDER}://")

    return FamilyFiles, FamilySearchPath


def has_option(option: str, folders: Folders) -> bool:
    """Whether an option such as `protocol/luna/lra/image` is a file or part of its family's file."""
    return any(existing(f"{option}.yaml", folders)) or is_in_family(option, folders)


def is_in_family(option: str, folders: Folders) -> bool:
    """Whether `luna/lra.yaml` has the values of `protocol/luna/lra/image`, and the task has no file of its own."""
    return next(_parts_in_family(option, folders), None) is not None


def values_in_family(option: str, folders: Folders) -> DictConfig | None:
    """The values of `protocol/luna/lra/image` in `luna/lra.yaml`; None unless `is_in_family`."""
    parts = next(_parts_in_family(option, folders), None)
    return None if parts is None else OmegaConf.merge(*parts)


def _parts_in_family(option: str, folders: Folders) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    if option.count("/") != 3 or any(existing(f"{option}.yaml", folders)):
        return
    family, _, name = option.rpartition("/")
    for content in contents(family, folders):
        if (parts := _parts_of(content, name)) is not None:
            yield parts


def contents(option: str, folders: Folders) -> Iterator[dict[str, Any]]:
    """The yaml `protocol/luna/lra` in each folder, with unresolved interpolations."""
    return (_parsed(file, os.stat(file).st_mtime_ns) for file in existing(f"{option}.yaml", folders))


def _parts_of(content: Mapping[str, Any], name: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The values that a family shares, and those of a task that override them; None if `tasks:` lacks the task."""
    by_task = content.get(BY_TASK, {"any": {}})
    key = next((key for key in (name, "any") if key in by_task), None)
    if key is None:
        return None
    return {key: value for key, value in content.items() if key != BY_TASK}, by_task[key] or {}


def existing(path: str, folders: Iterable[str | Path]) -> Iterator[Path]:
    """The files of an option such as `protocol/luna/lra.yaml`. Raises UsageError for a path that is not a name."""
    check_option(path)  # `Path.is_file` takes four times as long, and a plan asks a hundred thousand times
    return (Path(file) for folder in folders if os.path.isfile(file := f"{folder}/{path}"))


@functools.lru_cache(maxsize=64)
def _parsed(file: Path, modified_ns: int) -> dict[str, Any]:
    """The content of a yaml, cached until the file changes."""
    content = yaml_files.read_config(file)
    return content if isinstance(content, dict) else OmegaConf.to_container(yaml_files.load_config(file))
