"""Checks between Hydra's reading of a configuration and everything that Hydra does with it.

Hydra sets environment variables, opens log files and builds callbacks, launchers and sweepers from `hydra.*` before it
calls any code of this project, and it has no hook in between. `guard_hydra` therefore replaces three methods: the
composition that every command and `hydra.compose` call, the reader of yaml files, and the one that applies overrides.
`tests/harness/test_hydra_guard.py` fails if a new version of Hydra renames or bypasses them.
"""

import copy
import functools
import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import hydra as hydra_package
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf

from harness.config import yaml_files
from harness.config.allowed import targets
from harness.config.own_settings import OWNER, leaves, local_values, raw_at
from harness.config.places import CONF
from harness.config.plain import ENVIRONMENT, from_environment
from harness.config.schema import BUILT_IN
from harness.errors import UsageError

# `hydra.*`: what Hydra fills in, and texts and folders that nothing uses here
FREE = ("runtime", "overrides", "help", "hydra_help", "sweep", "verbose", "job.config", "job.config_name", "job.id",
        "job.name", "job.num", "job.override_dirname")  # fmt: skip
# the values of conf/config.yaml; other keys act, too, and have none
FIXED = {"run.dir": ".", "output_subdir": None, "mode": None, "job.chdir": None, "searchpath": [], "job.env_copy": []}
LOGGING = ("hydra_logging", "job_logging")  # conf/config.yaml disables them; an option of Hydra may be typed
LOG_CLASSES = ("logging.StreamHandler", "logging.FileHandler", "logging.NullHandler", "logging.Formatter")
BUILT = ("hydra._internal.", "hydra_plugins.")  # packages of launchers and sweepers
OWN_FILES = ("local", "cluster")  # folders of conf/ whose files may read the environment


@functools.cache
def guard_hydra() -> None:
    """Check every configuration after Hydra has composed it and before Hydra acts on it; bound every yaml."""
    compose, apply = ConfigLoaderImpl.load_configuration, ConfigLoaderImpl._apply_overrides_to_config
    load = ConfigRepository.load_config
    read: dict[tuple[str, str, str, int], bytes] = {}  # each version of a yaml, parsed once: compositions share most

    @functools.wraps(compose)
    def compose_checked(
        self: ConfigLoaderImpl, config_name: str | None, overrides: list[str], *arguments: Any, **settings: Any
    ) -> DictConfig:
        cfg = compose(self, config_name, overrides, *arguments, **settings)
        check_hydra(cfg.hydra, overrides)
        return cfg

    @functools.wraps(load)
    def load_checked(self: ConfigRepository, config_path: str) -> ConfigResult | None:
        source = self._find_object_source(config_path=config_path, object_type=ObjectType.CONFIG)
        if source is None or source.scheme() != "file":
            return load(self, config_path)
        path = Path(source.path, source._normalize_file_name(config_path)).resolve()
        yaml_files.checked(path)
        key = (source.provider, source.path, config_path, path.stat().st_mtime_ns)
        if key not in read:
            read[key] = pickle.dumps(load(self, config_path))
        result = pickle.loads(read[key])
        if is_own_file(path):
            result.config = OmegaConf.create(from_environment(OmegaConf.to_container(result.config)))
        return result

    @functools.wraps(apply)
    def apply_typed(overrides: list[Override], cfg: DictConfig) -> None:
        apply(list(map(with_environment, overrides)), cfg)

    ConfigLoaderImpl.load_configuration = compose_checked
    ConfigLoaderImpl._apply_overrides_to_config = staticmethod(apply_typed)
    ConfigRepository.load_config = load_checked


def is_own_file(path: Path) -> bool:
    return any(path.is_relative_to(CONF / folder) for folder in OWN_FILES)


def with_environment(override: Override) -> Override:
    """A typed setting with its `${oc.env:NAME}` replaced."""
    if ENVIRONMENT not in (override.input_line or "") or override.is_sweep_override():
        return override
    override = copy.copy(override)
    override._value = from_environment(override.value())
    return override


def check_hydra(hydra: DictConfig, overrides: Iterable[str] = ()) -> None:
    """Raises UsageError for a setting of Hydra that acts and is neither the project's, nor typed, nor in conf/local.

    `overrides`: what the user typed. Typed settings, too, build only launchers, sweepers and log handlers.
    """
    settings = OmegaConf.to_container(hydra, resolve=False)
    check_built(settings)
    typed = [override.lstrip("+~").partition("=")[0] for override in overrides]
    values = allowed_values(tuple(group for group in LOGGING if f"hydra/{group}" in typed))
    local = [leaves(raw_at(content, "hydra") or {}) for content in local_values()]
    for key, value in leaves(settings).items():
        if key in FREE or key.startswith(tuple(f"{free}." for free in FREE)) or value in values.get(key, ()):
            continue
        if f"hydra.{key}" not in typed and not any(key in content and content[key] == value for content in local):
            raise UsageError(f"hydra.{key}: {OWNER} set it; a shared configuration may not")


def check_built(settings: Mapping[str, Any]) -> None:
    """Raises UsageError for a class that Hydra or `logging` would build."""
    for key in ("callbacks", "launcher", "sweeper"):
        for path, name in targets(settings.get(key), f"hydra.{key}"):
            if key == "callbacks" or not name.startswith(BUILT):
                raise UsageError(f"{path}: _target_ '{name}' may not be built by a configuration")
    for key in LOGGING:
        for path, name in targets(settings.get(key), f"hydra.{key}", ("()", "class", "ext")):
            if name not in LOG_CLASSES:
                raise UsageError(f"{path}: '{name}' may not be built by a configuration")


@functools.cache
def allowed_values(typed_logging: tuple[str, ...]) -> dict[str, list[Any]]:
    """The values that a configuration may have. `typed_logging`: groups of logs with a typed option."""
    values: dict[str, list[Any]] = {key: [value] for key, value in FIXED.items()}
    options = [{group: node} for group in ("launcher", "sweeper") for _, node in BUILT_IN[f"hydra/{group}"].values()]
    folder = Path(hydra_package.__file__).parent / "conf" / "hydra"
    for group in LOGGING:
        names = "*" if group in typed_logging else "disabled"
        files = sorted((folder / group).glob(f"{names}.yaml"))
        options += [{group: OmegaConf.to_container(yaml_files.load_config(file))} for file in files]
    for option in options:
        for key, value in leaves(option).items():
            values.setdefault(key, []).append(value)
    return values
