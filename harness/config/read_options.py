"""Values in the yaml of an option, read without a composition: Hydra would take as long as for a hundred records."""

import functools
import re
from collections.abc import Sequence
from pathlib import Path

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf

from harness.config import yaml_files
from harness.config.option_names import is_option
from harness.config.places import CONF


def read_option(group: str, name: str, search: Sequence[str]) -> DictConfig | None:
    """The values in an option's yaml, which callers must not change.

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

    None for a missing yaml, and for one that is no mapping or has a `@package`.
    """
    for folder in map(Path, (CONF, *search)) if is_option(name) else ():
        if (file := folder / group / f"{name}.yaml").is_file():
            yaml_files.checked(file)
            with yaml_files.content_of(file):
                read = read_source(folder, f"{group}/{name}", file.stat().st_mtime_ns)
            return read.config if isinstance(read.config, DictConfig) and not read.header["package"] else None
    return None


@functools.lru_cache(maxsize=256)
def read_source(folder: Path, name: str, modified_ns: int) -> ConfigResult:
    """A yaml as Hydra reads it, cached until the file changes."""
    return FileConfigSource("main", f"file://{folder}").load_config(name)
