"""Overrides -> configuration, and the options in `conf/`.

`run.py` composes through hydra.main, sweeps and tests through `compose`, with the same files and schema.
"""

import functools
import pickle
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, flag_override, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from harness import masking
from harness.config import option_files, plain, yaml_files
from harness.config.option_files import folders, read_option, search_path
from harness.config.overrides import typed_values
from harness.config.own_files import check_own_files, resolved_parts
from harness.config.places import CONF
from harness.config.plain import escaped, resolved
from harness.config.schema import DECLARES, NAMED_PARTS, PARTS, SHORT_CONV, Train, check_names, check_ranges, value_of
from harness.config.source_code import check_class
from harness.errors import UsageError, did_you_mean, shown
from tasks.regular_files import read_text

# groups whose options have names with folders
NAMED = (
    *("model", "task", "protocol", "budget", "table", "figure"),
    *("trainer", "resources", "cluster", "hydra/launcher", "logger", "debug"),
)
OWN_CLASS = ("custom", "module")  # models that the user completes with a class
FIRST_COMMENT = re.compile(r"(?:\s*# @.*\n)*\s*#[# ]*(.*)")
# keys in the yaml of a model, task or backbone that the harness reads; the others are arguments of its class
NOT_ARGUMENTS = ("name", "budgets", "protocol", DECLARES)


def register() -> None:
    """Register the reader of options, with the schema, and the resolvers."""
    option_files.register()
    functions = {
        "pick": plain.pick,
        "setting": plain.setting,
        "size": plain.size,
        "default_protocol": lambda task: option_files.default_protocol(task, folders()),
        "oc.env": masking.environment,
        "oc.select": plain.select,
        "for_task": lambda group, *, _root_: option_files.for_task(group, folders(), _root_),
    }
    for name, function in functions.items():
        OmegaConf.register_new_resolver(name, function, replace=True)


def compose(overrides: Sequence[str] = (), search: Sequence[str] = (), *, shared: Collection[str] = ()) -> DictConfig:
    """The configuration of these overrides. `search`: further config folders, as in `--config-dir`.

    `shared`: overrides of a shared file, such as a table, among them; what only the user sets, they do not.
    Hydra composes each choice of options once per process. The result is a copy with the model and the typed values,
    which the caller may change. Raises UsageError for a number out of range, and Hydra's errors, which
    `harness.commands.mistakes` turns into one line.
    """
    search = tuple(map(str, search))
    values = [word for word in overrides if not is_choice(word, search)]
    choices = [word for word in overrides if word not in values]
    model, rest = model_of(choices, search)
    cfg = pickle.loads(pickled(rest, search))
    if model is not None:
        cfg.model = model
    apply_values(cfg, values)
    complete(cfg, overrides, search, shared)
    return cfg


def complete(cfg: DictConfig, overrides: Sequence[str], search: Sequence[str], shared: Collection[str] = ()) -> None:
    """Make a composed configuration canonical, and check it. Raises as `compose` does."""
    masking.note_environment()
    keep_settings(cfg, overrides)
    apply_short_conv(cfg)
    parts = resolved_parts(cfg)
    check_parts(cfg, overrides, search, shared, parts)
    check_ranges(cfg, parts)


def model_of(choices: Sequence[str], search: tuple[str, ...]) -> tuple[DictConfig | None, tuple[str, ...]]:
    """The yaml of the typed model, and the other choices, if what they compose differs from it in its model alone.

    Otherwise None and all choices: Hydra must compose them.
    """
    models = [word for word in choices if word.startswith("model=")]
    rest = tuple(word for word in choices if word not in models)
    model = read_option("model", models[0].removeprefix("model="), search) if len(models) == 1 else None
    return (model, rest) if model is not None and has_model_of_yaml(rest, search) else (None, tuple(choices))


def apply_values(cfg: DictConfig, values: Iterable[str]) -> None:
    """Set typed values by the function with which Hydra adds them to the composed options."""
    ConfigLoaderImpl._apply_overrides_to_config(list(map(parse_value, values)), cfg)


def check_parts(
    cfg: DictConfig, overrides: Sequence[str], search: Sequence[str], shared: Collection[str], parts: Mapping[str, Any]
) -> None:
    """Raises UsageError for some `parts`, which are plain values: names, files and settings of a configuration."""
    masking.note_overrides(overrides)
    check_own_files(cfg.paths, [override for override in overrides if override not in shared], parts)
    check_names(cfg)
    check_part_names(cfg, overrides, search)
    if cfg.protocol.configuration is not None and not cfg.protocol.configurations:
        raise UsageError(f"protocol.configuration={cfg.protocol.configuration}: {cfg.protocol.name} has no sizes")


def is_choice(override: str, search: Sequence[str]) -> bool:
    """Whether an override chooses an option of a group or configures Hydra; otherwise it sets a value."""
    group = re.split("[/@=]", override.lstrip("+~"), maxsplit=1)[0]
    return group.startswith("hydra") or any((Path(folder) / group).is_dir() for folder in (CONF, *search))


@functools.lru_cache(maxsize=1024)
def parse_value(override: str) -> Override:
    parsed = OverridesParser.create().parse_override(override)
    ConfigLoaderImpl.validate_sweep_overrides_legal([parsed], RunMode.RUN, from_shell=False)
    return parsed


@functools.lru_cache(maxsize=256)
def pickled(choices: tuple[str, ...], search: tuple[str, ...]) -> bytes:
    """The configuration that Hydra composes from these choices. A pickle is copied in a third of the time."""
    register()
    with option_files.added(search):
        path = create_config_search_path(str(CONF))
    # Hydra's only global instance, which a running hydra.main holds, is used for another composition
    global_hydra = GlobalHydra.instance()
    application, global_hydra.hydra = global_hydra.hydra, None
    try:
        Hydra.create_main_hydra2("longhaul", path)
        return pickle.dumps(hydra.compose("config", overrides=list(choices)))
    except (HydraException, OmegaConfBaseException, YAMLError):
        raise  # `harness.commands.mistakes` knows them
    except yaml_files.UNREADABLE as error:
        raise UsageError(f"{' '.join(choices)[:200]}: does not compose: {yaml_files.reason(error)}") from error
    finally:
        global_hydra.hydra = application


@functools.lru_cache(maxsize=256)
def has_model_of_yaml(choices: tuple[str, ...], search: tuple[str, ...]) -> bool:
    """Whether `model` is exactly the yaml of the default model, so that another model may replace it."""
    default, cfg = read_option("model", default_model(), search), pickle.loads(pickled(choices, search))
    return default is not None and OmegaConf.to_container(cfg.model) == OmegaConf.to_container(default)


def copied(cfg: DictConfig) -> DictConfig:
    """A copy. It takes a third of the time of `cfg.copy()`."""
    return pickle.loads(pickle.dumps(cfg))


def with_resolved_train(cfg: DictConfig) -> DictConfig:
    """A copy in which `train` has no interpolations. Updates read it, and each reading would evaluate them again."""
    cfg = copied(cfg)
    cfg.train = OmegaConf.merge(OmegaConf.structured(Train), escaped(resolved(cfg.train)))
    return cfg


def apply_short_conv(cfg: DictConfig) -> None:
    """Replace `backbone.short_conv` by what it means for the model: taps of the backbone, or settings of the model.

    null      every model as published
    k >= 2    a convolution of k taps on the input of each self-attention; a model that has its own mixing of
              neighbouring tokens (`declares: short_conv`) keeps that, and gets no second one
    1         none: a model that has its own is built without it

    So equal cells have one id: the backbone's key is a number only where it convolves, null where the model decides,
    and absent where nobody asked. Raises UsageError for a value that is not a number of taps.
    """
    taps = value_of(cfg.backbone, SHORT_CONV)
    with open_dict(cfg), flag_override(cfg, "readonly", False):
        if taps is None:
            cfg.backbone.pop(SHORT_CONV, None)
            return
        if not isinstance(taps, int) or isinstance(taps, bool) or taps < 1:
            raise UsageError(f"backbone.{SHORT_CONV}={taps}: null, 1 (none) or the number of taps is expected")
        own = own_mixing(cfg.model)
        if taps == 1:
            for key, off in own.items():
                cfg.model[key] = off
        cfg.backbone[SHORT_CONV] = None if taps == 1 or own else taps


def own_mixing(model: DictConfig) -> Mapping[str, Any]:
    """{setting: the value that switches it off} of a model's own mixing of neighbouring tokens; empty without one."""
    off = (model.get(DECLARES) or {}).get(SHORT_CONV) or {}
    return off if any(value_of(model, key) != value for key, value in off.items()) else {}


def keep_settings(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Apply the settings of recipe and budget for a model also under the new name that `model.name=` gives it."""
    if not any(override.startswith("model.name=") for override in overrides):
        return
    typed = [override.partition("=")[2] for override in overrides if override.startswith("model=")]
    option = typed[-1] if typed else default_model()
    if option in cfg.settings and cfg.model.name not in cfg.settings:
        with open_dict(cfg.settings):
            cfg.settings[cfg.model.name] = cfg.settings[option]


def check_part_names(cfg: DictConfig, overrides: Sequence[str], search: Sequence[str]) -> None:
    """Raises UsageError for a typed setting or class without effect, and for parts with the name of another option.

    A record has the names alone: they choose the row of a table, and the recipe that the cell is compared with.
    """
    typed = typed_values(overrides)
    model = typed.get("model", default_model())
    for key, target in typed.items():
        if key.endswith("._target_") and key.split(".")[0] in PARTS:
            check_class(key, target)
    declares = plain.entry(cfg.model, DECLARES)
    needs = plain.entry(declares, "acts_with") if isinstance(declares, DictConfig) else None
    for setting, other in needs.items() if isinstance(needs, Mapping) else ():
        if f"model.{setting}" in typed and value_of(cfg.model, setting) and not value_of(cfg.model, other):
            raise UsageError(
                f"model.{setting} has no effect without model.{other}: add model.{other}=true, or leave it out"
            )
    for part in NAMED_PARTS:
        name, option = value_of(cfg[part], "name"), model if part == "model" else typed.get(part, "")
        if part == "model" and name != model and read_option("model", name, search) is not None:
            raise UsageError(f"model.name={name}: this is the name of another model; model={name} chooses it")
        if part == "budget" and option and name != option:
            raise UsageError(f"budget={option}: its yaml has the name {name}, and records would pass for its")
        if part != "model" and not option_files.has_option(f"{part}/{name}", (CONF, *search)):
            hint = did_you_mean(name, names_in(part))
            raise UsageError(f"{part}={option}: {part}.name is {name}, and no yaml has it: {hint}")


@functools.cache
def default_model() -> str:
    """The model of the defaults list in `conf/config.yaml`."""
    return next(entry.model for entry in yaml_files.load_config(CONF / "config.yaml").defaults if "model" in entry)


def option_config(group: str, name: str) -> DictConfig:
    """The values of an option; Hydra composes them if the yaml has defaults. Raises FileNotFoundError."""
    file_of(group, name)
    config = read_option(group, name, search_path())
    return compose([f"{group}={name}"], search_path())[group] if config is None else config


def default_arguments(model: str) -> dict[str, Any]:
    """`_target_` and arguments of `conf/model/<model>.yaml` without the settings of a recipe or a budget."""
    register()
    config = OmegaConf.create({"model": option_config("model", model), "settings": {}})
    return arguments(config.model)


def arguments(part: DictConfig | dict[str, Any]) -> dict[str, Any]:
    """Plain values: `_target_` and the arguments of a model, task or backbone: all keys except those of the harness."""
    return {key: value for key, value in resolved(part).items() if key not in NOT_ARGUMENTS}


def options(group: str) -> Iterator[tuple[str, str]]:
    """(name, description) of every option of a group. The description is the first comment line of its file."""
    yield from sorted((name, describe(path)) for name, path in files_of(group).items())


def names_in(group: str) -> list[str]:
    """The names in `options`, for which no file is read."""
    return sorted(files_of(group))


def files_of(group: str, parents: Sequence[str | Path] = ()) -> dict[str, Path]:
    """{name: file} of the options of a group; of files with one name, the first in `parents`, by default `folders`.

    Files in subfolders of `protocol/` and `budget/` hold values for single tasks and are not options.
    """
    files = {}
    for folder in (Path(parent) / group for parent in reversed(parents or folders())):
        for path in folder.glob("*.yaml") if group in ("protocol", "budget") else folder.rglob("*.yaml"):
            files[shown(path.relative_to(folder).with_suffix("").as_posix())] = path
    return files


def file_of(group: str, name: str) -> Path:
    """The yaml of an option: the first one in `folders`. Raises FileNotFoundError."""
    file = next(option_files.existing(f"{group}/{name}.yaml", folders()), None)
    if file is None:
        raise FileNotFoundError(f"{group}/{name}.yaml in {', '.join(folders())}")
    return file


def describe(path: Path) -> str:
    """The first comment line of a yaml, except directives; empty for what is no regular file of its folder."""
    try:
        match = FIRST_COMMENT.match(read_text(path, yaml_files.MOST_BYTES, errors="replace"))
    except OSError:
        return ""
    return shown(match[1].strip()) if match else ""


def recipes(task: str) -> list[str]:
    """The protocols with a recipe for a task or its family, without the protocols for every task."""
    protocols = names_in("protocol")
    return sorted(name for name in protocols if recipe_of(name, task) != name and has_recipe(name, task))


def has_recipe(protocol: str, task: str) -> bool:
    return option_files.has_option(f"protocol/{recipe_of(protocol, task)}", folders())


def recipe_of(protocol: str, task: str) -> str:
    """The option of the group `protocol` with the values for a task."""
    return option_files.option_for("protocol", protocol, task, folders())
