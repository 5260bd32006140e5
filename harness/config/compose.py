"""Overrides -> configuration, and the names that `conf/` holds.

`run.py` composes through hydra.main; sweeps and tests compose through here. Both see the same files and schema.
"""

import contextlib
import functools
import io
import os
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hydra
import omegaconf.base
import yaml
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathElement
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf, open_dict

from harness.config import family_files, resolvers
from harness.config.allowed import check_hydra, check_trusted
from harness.config.places import CONF
from harness.config.ranges import check_ranges
from harness.config.schema import BUILT_IN, Config

# groups whose options the harness chooses among by their full path below the group
NAMED = (
    *("model", "task", "protocol", "budget", "table", "figure"),
    *("trainer", "resources", "cluster", "hydra/launcher", "logger", "debug"),
)
# what a model's yaml holds for the harness; its class takes the rest
NOT_ARGUMENTS = ("name", "budgets")


def register() -> None:
    """Tell Hydra the schema, the options that have no file, the resolvers of the yamls, and what it may not build."""
    family_files.register(folders)  # each time: Hydra loses its plugins where its singletons are put back
    _register_once()


@functools.cache
def _register_once() -> None:
    store = ConfigStore.instance()
    store.store(name="schema", node=Config)
    for group, named in BUILT_IN.items():
        for name, (_, node) in named.items():
            store.store(group=group, name=name, node=node)
    found = {
        "pick": resolvers.pick,
        "setting": resolvers.setting,
        "size": resolvers.size,
        "default_protocol": lambda task: resolvers.default_protocol(task, folders()),
        "for_task": lambda group, *, _root_: resolvers.for_task(group, folders(), _root_),
    }
    for name, resolver in found.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)
    # OmegaConf parses the text of an interpolation each time that it is read: three quarters of the time of planning
    omegaconf.base.parse = functools.lru_cache(maxsize=4096)(omegaconf.base.parse)
    # and a yaml each time that it is read: a quarter of the time of composing
    OmegaConf.load = staticmethod(parsed_once(OmegaConf.load))
    compose_config = Hydra.compose_config

    def checked(self: Hydra, *arguments: Any, **settings: Any) -> DictConfig:
        cfg = compose_config(self, *arguments, **settings)
        check_hydra(cfg.hydra)
        return cfg

    Hydra.compose_config = checked  # before Hydra acts on what it composed


def parsed_once(load: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`OmegaConf.load`, which parses the same text once in a process; the caller may change what it is given."""

    @functools.lru_cache(maxsize=1024)
    def parsed(text: str) -> bytes:
        return pickle.dumps(load(io.StringIO(text)))

    @functools.wraps(load)
    def load_parsed(file: Any) -> Any:
        if isinstance(file, (str, os.PathLike)):
            with open(os.path.abspath(file), encoding="utf-8") as opened:
                return load_parsed(opened)
        try:
            return pickle.loads(parsed(file.read()))
        except yaml.YAMLError:
            file.seek(0)
            return load(file)  # whose error names the file

    return load_parsed


def compose(overrides: Sequence[str] = (), search: Sequence[str] = ()) -> DictConfig:
    """The configuration of these overrides. `search`: further folders of configuration, as `--config-dir` names them.

    The same overrides are composed once in a process; the caller may change what it is given. Raises UsageError for a
    number out of range, and Hydra's own errors, which `harness.commands.explain` turns into one line.
    """
    return pickle.loads(pickled(tuple(overrides), tuple(map(str, search))))


def copied(cfg: DictConfig) -> DictConfig:
    """A copy, in a third of the time that `cfg.copy()` takes: a sweep copies its configuration for each cell."""
    return pickle.loads(pickle.dumps(cfg))


@functools.lru_cache(maxsize=256)
def pickled(overrides: tuple[str, ...], search: tuple[str, ...]) -> bytes:
    """As `compose`."""
    register()
    path = create_config_search_path(str(CONF))
    path.get_path()[-1:-1] = [SearchPathElement("search", folder) for folder in search]  # the last is the schema
    with outside_the_application():
        try:
            Hydra.create_main_hydra2("longhaul", path)
            cfg = hydra.compose("config", overrides=list(overrides))
        finally:
            GlobalHydra.instance().clear()
    check_trusted(cfg, overrides)
    keep_settings(cfg, overrides)
    check_ranges(cfg)
    return pickle.dumps(cfg)


def keep_settings(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Let what recipe and budget set for a model hold for it under the name that `model.name=` gives it, too."""
    if not any(override.startswith("model.name=") for override in overrides):
        return
    typed = [override.partition("=")[2] for override in overrides if override.startswith("model=")]
    option = typed[-1] if typed else next(each.model for each in defaults() if "model" in each)
    if option in cfg.settings and cfg.model.name not in cfg.settings:
        with open_dict(cfg.settings):
            cfg.settings[cfg.model.name] = cfg.settings[option]


def defaults() -> list[Any]:
    """The defaults list of `conf/config.yaml`."""
    return list(OmegaConf.load(CONF / "config.yaml").defaults)


def with_model(cfg: DictConfig, name: str) -> DictConfig:
    """The same configuration with another model of `conf/model/`; composing it anew takes a hundred times as long."""
    cfg = copied(cfg)
    put_model(cfg, name)
    return cfg


def put_model(cfg: DictConfig, name: str) -> None:
    """Replace the model by one of `conf/model/`. What a yaml with `@package` puts elsewhere is left out."""
    cfg.model = model_config(name)


def model_config(name: str) -> DictConfig:
    """A model of `conf/model/`, read by Hydra where its yaml names others."""
    if not stands_alone("model", name):
        return compose([f"model={name}"], search_path()).model
    return loaded(file := file_of("model", name), file.stat().st_mtime_ns)


@functools.lru_cache(maxsize=256)
def loaded(file: Path, modified_ns: int) -> DictConfig:
    """A yaml, read once while it stays as it is."""
    return OmegaConf.load(file)


def stands_alone(group: str, name: str) -> bool:
    """Whether an option is a yaml that says all by itself: no defaults list, no `@package`, which Hydra has to read."""
    try:
        text = file_of(group, name).read_text(encoding="utf-8")
    except OSError:
        return False
    return re.search(r"^(defaults *:|# *@package)", text, re.MULTILINE) is None


def default_arguments(model: str) -> dict[str, Any]:
    """`_target_` and arguments of `conf/model/<model>.yaml` where neither a recipe nor a budget sets any."""
    register()
    config = OmegaConf.create({"model": model_config(model), "settings": {}})
    return arguments(config.model)


def arguments(model: DictConfig) -> dict[str, Any]:
    """What a model's class is built with, and its `_target_`: its config without the harness' own keys."""
    resolved = OmegaConf.to_container(model, resolve=True, enum_to_str=True)
    return {key: value for key, value in resolved.items() if key not in NOT_ARGUMENTS}


@contextlib.contextmanager
def outside_the_application() -> Iterator[None]:
    """Lend Hydra's one global instance, which a running hydra.main holds, to a composition of our own."""
    global_hydra = GlobalHydra.instance()
    application, global_hydra.hydra = global_hydra.hydra, None
    try:
        yield
    finally:
        global_hydra.hydra = application


def search_path() -> list[str]:
    """Folders of configuration that the running command added (`--config-dir`), as `compose` takes them.

    Empty outside a Hydra application.
    """
    if not GlobalHydra.instance().is_initialized():
        return []
    sources = GlobalHydra.instance().config_loader().get_search_path().get_path()
    own = {"hydra", "main", "schema", family_files.PROVIDER}
    return [source.path.removeprefix("file://") for source in sources if source.provider not in own and source.path]


def folders() -> list[str]:
    """All folders of configuration, in the order in which Hydra looks into them."""
    return [str(CONF), *search_path()]


def options(group: str) -> Iterator[tuple[str, str]]:
    """(name, one-line description) of every option of a group. The description is the file's first comment line.

    `protocol/` and `budget/` hold values for single tasks in folders: those are no options.
    """
    found = {name: description for name, (description, _) in BUILT_IN.get(group, {}).items()}
    for folder in (Path(each) / group for each in reversed(folders())):
        for path in folder.rglob("*.yaml"):
            name = path.relative_to(folder).with_suffix("").as_posix()
            if group not in ("protocol", "budget") or "/" not in name:
                found[name] = describe(path)
    yield from sorted(found.items())


def file_of(group: str, name: str) -> Path:
    """The yaml of an option: the first one in `folders`. Raises FileNotFoundError."""
    found = next(family_files.existing(f"{group}/{name}.yaml", folders()), None)
    if found is None:
        raise FileNotFoundError(f"{group}/{name}.yaml in {', '.join(folders())}")
    return found


def describe(path: Path) -> str:
    """First comment line of a yaml that is not a directive."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            text = line.strip()
            if not text.startswith("#"):
                break
            if not text.startswith("# @"):
                return text.lstrip("# ").strip()
    return ""


def recipes(task: str) -> list[str]:
    """Protocols that have a recipe for a task, or for its family; without those that serve every task."""
    known = [name for name, _ in options("protocol")]
    return sorted(name for name in known if recipe_of(name, task) != name and has_recipe(name, task))


def has_recipe(protocol: str, task: str) -> bool:
    option = recipe_of(protocol, task)
    return family_files.has_option(f"protocol/{option}", folders())


def recipe_of(protocol: str, task: str) -> str:
    """The option of the group `protocol` with its values for a task."""
    return resolvers.option_for("protocol", protocol, task, folders())
