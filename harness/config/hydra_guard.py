"""Checks between Hydra's reading of a configuration and everything that Hydra does with it.

Hydra sets environment variables, opens log files and builds callbacks, launchers and sweepers from `hydra.*` before it
calls any code of this project, and it has no hook in between. `guard_hydra` therefore replaces some of its methods: the
composition that every command and `hydra.compose` call, the expansion of defaults lists, the search for options and
their reader, and the one that applies overrides. Names of options do not lead out of the folders, a composition reads a
limited number of files, and whatever Hydra raises for a file becomes one line with the file.
`tests/harness/test_hydra_guard.py` fails if a new version of Hydra renames or bypasses them.
"""

import contextlib
import copy
import functools
import os
import pickle
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hydra as hydra_package
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository
from hydra._internal.hydra import Hydra
from hydra.core.default_element import DefaultsTreeNode, InputDefault
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.config import table_files, yaml_files
from harness.config.allowed import targets
from harness.config.option_names import check_option
from harness.config.own_settings import OWNER, leaves, local_values, raw_at
from harness.config.places import CONF
from harness.config.plain import ENVIRONMENT, count, from_environment
from harness.config.schema import BUILT_IN
from harness.errors import UsageError, shown
from tasks.regular_files import RefusedFileError, require_regular

# `hydra.*`: what Hydra fills in, and texts and folders that nothing uses here
FREE = ("runtime", "overrides", "help", "hydra_help", "sweep", "verbose", "job.config", "job.config_name", "job.id",
        "job.name", "job.num", "job.override_dirname")  # fmt: skip
# the values of conf/config.yaml; other keys act, too, and have none
FIXED = {"run.dir": ".", "output_subdir": None, "mode": None, "job.chdir": None, "searchpath": [], "job.env_copy": []}
LOGGING = ("hydra_logging", "job_logging")  # conf/config.yaml disables them; an option of Hydra may be typed
LOG_CLASSES = ("logging.StreamHandler", "logging.FileHandler", "logging.NullHandler", "logging.Formatter")
BUILT = ("hydra._internal.", "hydra_plugins.")  # packages of launchers and sweepers
OWN_FILES = ("local", "cluster")  # folders of conf/ whose files may read the environment

NEVER_CHANGE = ("pkg", "structured")  # schemes of Hydra's own yamls and of what `harness.config.compose` registers

MOST_READ = 1_000  # files of one composition, each as often as a defaults list names it
MOST_VALUES = 10_000  # values in them
DEEPEST = 50  # options that name each other in a chain of defaults lists
SAME_NAME = r"\s*'[^']*' is validated against ConfigStore schema with the same name"


@dataclass
class Reading:
    """What one composition has read so far. `last`: the option that it read last."""

    files: int = 0
    values: int = 0
    levels: int = 0  # of defaults lists, at the moment
    last: str = ""
    values_of: dict[str, int] = field(default_factory=dict)

    def add(self, option: str, result: ConfigResult | None) -> None:
        """Raises UsageError beyond the bounds."""
        if option not in self.values_of:
            self.values_of[option] = 0 if result is None else count(result.config, MOST_VALUES)
        self.last = option
        self.files += 1
        self.values += self.values_of[option]
        if self.files > MOST_READ or self.values > MOST_VALUES:
            most = f"{MOST_READ:,} files or {MOST_VALUES:,} values"
            raise UsageError(f"{option}: the defaults lists name more than {most}, or they name themselves")

    @contextlib.contextmanager
    def level(self) -> Iterator[None]:
        """Raises UsageError for too long a chain: Hydra recurses into each option that a defaults list names."""
        if self.levels >= DEEPEST:
            raise UsageError(f"{self.last}: a chain of more than {DEEPEST} defaults lists, or they name themselves")
        self.levels += 1
        try:
            yield
        finally:
            self.levels -= 1


_reading: ContextVar[Reading | None] = ContextVar("reading", default=None)


@functools.cache
def guard_hydra() -> None:
    """Check every configuration after Hydra has composed it and before Hydra acts on it; bound what it reads."""
    compose, apply = ConfigLoaderImpl.load_configuration, ConfigLoaderImpl._apply_overrides_to_config
    load, load_cached = ConfigRepository.load_config, CachingConfigRepository.load_config
    find, list_options = ConfigRepository._find_object_source, ConfigRepository.get_group_options
    expand, choices_so_far = defaults_list._create_defaults_tree_impl, defaults_list._create_interpolation_map
    composed_mode, begin = Hydra.get_mode, CachingConfigRepository.__init__
    parsed: dict[tuple[str, str, str, int], bytes] = {}  # each version of a yaml, parsed once: compositions share most

    @functools.wraps(compose)
    def compose_checked(
        self: ConfigLoaderImpl, config_name: str | None, overrides: list[str], *arguments: Any, **settings: Any
    ) -> DictConfig:
        reading = Reading()
        token = _reading.set(reading)
        try:
            with warnings.catch_warnings():  # an option of the user may have the name of one in the schema
                warnings.filterwarnings("ignore", SAME_NAME)
                cfg = compose(self, config_name, overrides, *arguments, **settings)
        except (HydraException, OmegaConfBaseException):
            raise  # `harness.commands.explain` knows them
        except yaml_files.UNREADABLE as error:
            raise UsageError(f"{reading.last}: does not compose: {yaml_files.reason(error)}") from error
        finally:
            _reading.reset(token)
        check_hydra(cfg.hydra, overrides)
        return cfg

    @functools.wraps(composed_mode)
    def mode_where_set(self: Hydra, config_name: str | None, overrides: list[str]) -> RunMode | None:
        """None where nobody sets `hydra.mode`: Hydra would compose the whole command for it, and then once more."""
        return composed_mode(self, config_name, overrides) if sets_mode(overrides) else None

    @functools.wraps(expand)
    def expand_bounded(*arguments: Any, **settings: Any) -> DefaultsTreeNode:
        reading = _reading.get()
        with reading.level() if reading is not None else contextlib.nullcontext():
            return expand(*arguments, **settings)

    @functools.wraps(choices_so_far)
    def choices_where_read(overrides: Any, entries: list[InputDefault], self_added: bool) -> DictConfig | None:
        """Only interpolations read it, and few lists have one; it takes a fifth of the time of a composition."""
        is_read = any("${" in repr(vars(entry)) for entry in entries)
        return choices_so_far(overrides, entries, self_added) if is_read else None

    @functools.wraps(begin)
    def begin_with_sources(self: CachingConfigRepository, delegate: ConfigRepository) -> None:
        """`initialize_sources` replaces the list of sources; Hydra copies all that is in them, the schema too."""
        self.delegate, self.cache = copy.copy(delegate), {}

    @functools.wraps(load_cached)
    def load_counted(self: CachingConfigRepository, config_path: str) -> ConfigResult | None:
        result = load_cached(self, config_path)
        if (reading := _reading.get()) is not None:
            reading.add(config_path, result)
        return result

    def of_installed(self: ConfigRepository, source: ConfigSource, config_path: str) -> ConfigResult | None:
        key = (source.provider, source.path, config_path, 0)
        if key not in parsed:
            parsed[key] = pickle.dumps(load(self, config_path))
        return pickle.loads(parsed[key])

    @functools.wraps(load)
    def load_checked(self: ConfigRepository, config_path: str) -> ConfigResult | None:
        source = self._find_object_source(config_path=config_path, object_type=ObjectType.CONFIG)
        if source is not None and source.scheme() in NEVER_CHANGE:
            return of_installed(self, source, config_path)
        if source is None or source.scheme() != "file":
            return load(self, config_path)
        path = Path(source.path, source._normalize_file_name(config_path))
        if config_path.startswith(("table/", "figure/")):
            table_files.require_inside(path, source.path)
        path = path.resolve()
        yaml_files.checked(path)
        key = (source.provider, source.path, config_path, path.stat().st_mtime_ns)
        if key not in parsed:
            with yaml_files.content_of(path):
                loaded = load(self, config_path)
            check_name(config_path, loaded.config, path)
            parsed[key] = pickle.dumps(loaded)
        result = pickle.loads(parsed[key])
        if is_own_file(path):
            with yaml_files.content_of(path):
                result.config = OmegaConf.create(from_environment(OmegaConf.to_container(result.config)))
        return result

    @functools.wraps(find)
    def find_named(self: ConfigRepository, config_path: str, object_type: ObjectType) -> ConfigSource | None:
        check_option(config_path)
        source = find(self, config_path, object_type)
        if source is None and object_type is ObjectType.CONFIG:
            for folder in (source.path for source in self.get_sources() if source.scheme() == "file"):
                check_in_place_of(Path(folder, f"{config_path.removesuffix('.yaml')}.yaml"))
        return source

    @functools.wraps(list_options)
    def list_named(self: ConfigRepository, group_name: str, *arguments: Any, **settings: Any) -> list[str]:
        check_option(group_name)
        return list_options(self, group_name, *arguments, **settings)

    @functools.wraps(apply)
    def apply_typed(overrides: list[Override], cfg: DictConfig) -> None:
        apply(list(map(with_environment, overrides)), cfg)

    Hydra.get_mode = mode_where_set
    defaults_list._create_defaults_tree_impl = expand_bounded
    defaults_list._create_interpolation_map = choices_where_read
    ConfigLoaderImpl.load_configuration = compose_checked
    ConfigLoaderImpl._apply_overrides_to_config = staticmethod(apply_typed)
    ConfigRepository.load_config = load_checked
    ConfigRepository._find_object_source = find_named
    ConfigRepository.get_group_options = list_named
    CachingConfigRepository.load_config = load_counted
    CachingConfigRepository.__init__ = begin_with_sources


def check_in_place_of(file: Path) -> None:
    """Raises UsageError for what has the name of a yaml and is none, such as a FIFO or a broken link."""
    if os.path.lexists(file):
        try:
            require_regular(file, follow=True)
        except OSError as error:
            problem = error.strerror if isinstance(error, RefusedFileError) else (error.strerror or "").lower()
            raise UsageError(f"{shown(file)}: {problem}, so it is not read as yaml") from error


def sets_mode(overrides: Iterable[str]) -> bool:
    """Whether the command line or `conf/local` sets `hydra.mode`; `check_hydra` refuses it anywhere else."""
    typed = any(override.lstrip("+~").startswith(("hydra.mode", "hydra=")) for override in overrides)
    return typed or any(raw_at(content, "hydra", "mode") is not None for content in local_values())


def check_name(option: str, config: Any, path: Path) -> None:
    """Raises UsageError for the yaml of a task with the name of another one: records would be filed under that name."""
    name = config.get("name") if option.startswith("task/") and isinstance(config, DictConfig) else None
    if isinstance(name, str) and name != (expected := option.removeprefix("task/")):
        raise UsageError(f"{path}: name: {shown(name[:60])}, but the file is that of task={expected}: write this name")


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
    if not isinstance(verbose := settings.get("verbose", False), (bool, list)):
        raise UsageError(f"hydra.verbose={verbose}: true, false or a list of loggers is expected")
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
