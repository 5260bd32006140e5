"""The same configuration with another seed, learning rate or model: what they share is composed and resolved once.

A plan of all tables has thousands of cells and two hundred groups of them. `Variants` composes commands and rows of
tables, and `VariedConfig` is one of their configurations. `changes` compares a cell with its recipe.
"""

import functools
import pickle
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from omegaconf import MISSING, DictConfig, OmegaConf, flag_override, open_dict
from omegaconf.errors import OmegaConfBaseException

from harness import masking
from harness.config.cell import (
    AXES,
    IDENTITY,
    NOT_A_CHANGE,
    Cell,
    NoValueError,
    cell_of,
    flatten,
    identifying_config,
    identifying_parts,
    identity,
    resolved_alone,
    with_value,
    without_values,
)
from harness.config.compose import OWN_CLASS, apply_values, check_parts, compose, folders, is_choice, model_of
from harness.config.local_mixing import KEY, apply_short_conv
from harness.config.option_files import existing, is_option
from harness.config.overrides import key_of, to_overrides
from harness.config.plain import resolved
from harness.config.schema import check_sizes
from harness.errors import UsageError

MODEL, BACKBONE = "model.", "backbone"
NO_COPY = "no_deepcopy_set_nodes"  # OmegaConf's flag: it sets a value itself, not a copy, which takes most of the time
CHECKED = ("paths", "trainer", "resources", "cluster", "checkpoint", "bench")  # parts that are checked once per group
SEED = re.compile(r"seed=(0|[1-9]\d{0,8})")  # a seed that needs no check; others are composed


@dataclass(frozen=True)
class VariedConfig:
    """A composed configuration with other values at some keys. A copy takes milliseconds, and a plan has thousands.

    `pickled`: the composed configuration, which its variants share. `set_model`: puts another model into it.
    `changes`: (key, value), such as another seed. `paths`: its folders, as attributes. `canonical`: the identity of the
    cell without `changes`; None if another value depends on one of the keys, so that each variant is resolved anew.
    """

    pickled: bytes
    set_model: Callable[[DictConfig], None] | None = None
    changes: tuple[tuple[str, Any], ...] = ()
    paths: SimpleNamespace = field(default_factory=SimpleNamespace)
    canonical: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, cfg: DictConfig, keys: Collection[str] = ("seed",)) -> "VariedConfig":
        """A configuration whose variants differ at `keys`."""
        pickled = pickle.dumps(cfg)
        try:
            canonical = identifying_config(cfg, keys) | {"seed": cfg.seed}
            with without_values(cfg, keys):
                return cls(pickled, paths=SimpleNamespace(**resolved(cfg.paths)), canonical=canonical)
        except (OmegaConfBaseException, UsageError):
            return cls(pickled)

    def cell(self, changes: Mapping[str, Any]) -> "tuple[DictConfig | VariedConfig, Cell]":
        """A variant and its cell. `changes`: at some of the keys, not mappings. Raises UsageError for a missing value.

        The variant is a configuration of its own where the values do not separate.
        """
        if self.canonical is None:
            cfg = with_changes(self.copy(), changes)
            return cfg, cell_of(cfg)
        config = dict(self.canonical)
        for key, value in changes.items():
            config = with_value(config, key.split("."), value)
        return replace(self, changes=tuple(changes.items())), Cell(identity(config), config)

    def copy(self) -> DictConfig:
        cfg = pickle.loads(self.pickled)
        if self.set_model is not None:
            self.set_model(cfg)
        return with_changes(cfg, dict(self.changes))

    def resolved(self) -> dict[str, Any]:
        """The configuration as plain values. Variants of the same keys share what does not change."""
        values = shared_values(self.pickled, self.set_model, tuple(key for key, _ in self.changes))
        if values is None:
            return resolved(self.copy())
        for key, value in self.changes:
            values = with_value(values, key.split("."), value)
        return values


def with_changes(cfg: DictConfig, changes: Mapping[str, Any]) -> DictConfig:
    for key, value in changes.items():
        OmegaConf.update(cfg, key, value)
    return cfg


@functools.lru_cache(maxsize=64)
def shared_values(
    pickled: bytes, set_model: Callable[[DictConfig], None] | None, keys: tuple[str, ...]
) -> dict[str, Any] | None:
    """All of a configuration as plain values, without those at `keys`; None if another value depends on one of them."""
    cfg = VariedConfig(pickled, set_model).copy()
    try:
        with without_values(cfg, keys):
            return resolved(cfg)
    except (OmegaConfBaseException, UsageError):
        return None


@dataclass(frozen=True)
class Shared:
    """A configuration, and the canonical form of its parts that do not depend on the model.

    `dependent`: the other parts, such as the model.
    """

    cfg: DictConfig
    pickled: bytes
    canonical: dict[str, Any]
    paths: SimpleNamespace
    dependent: tuple[str, ...]


class Variants:
    """Composes commands and rows of tables. `search`: further config folders, as of `compose`."""

    def __init__(self, search: Iterable[str] = ()):
        self._search = tuple(map(str, search))
        self._first: dict[tuple[str, ...], DictConfig] = {}
        self._seeds: dict[tuple[str, ...], VariedConfig | None] = {}
        self._shared: dict[tuple[tuple[str, ...], tuple[str, ...], bool], Shared | None] = {}
        self._models: dict[int, tuple[DictConfig, bytes]] = {}

    def command(self, overrides: Sequence[str]) -> tuple[DictConfig, tuple[VariedConfig, Cell] | None]:
        """The configuration of these overrides, as of `compose`, and its cell if it is there without further work.

        Commands that differ in their seed only are composed, checked and resolved once.
        """
        typed = [word for word in overrides if key_of(word) == "seed"]
        seed = SEED.fullmatch(typed[0]) if len(typed) == 1 else None
        others = tuple(word for word in overrides if word not in typed)
        if seed is None or others not in self._first:
            cfg = compose(overrides, self._search)
            if seed is not None:
                self._first[others] = cfg
            return cfg, None
        if others not in self._seeds:
            self._seeds[others] = seeds_of(self._first[others])
        if (varied := self._seeds[others]) is None:
            return compose(overrides, self._search), None
        masking.note_overrides(overrides)
        config, cell = varied.cell({"seed": int(seed[1])})
        return config.copy(), (config, cell)

    def row(
        self, overrides: Sequence[str], keys: Sequence[str], *, shared: Collection[str] = ()
    ) -> tuple[DictConfig, VariedConfig]:
        """The configuration of these overrides, which holds until the next call, and that of its variants at `keys`.

        `shared`: as of `compose`, whose errors this raises. A row is composed by itself if it has a part that depends
        on the model or on one of the keys.
        """
        model, _ = model_of([word for word in overrides if is_choice(word, self._search)], self._search)
        values = tuple(word for word in overrides if word.lstrip("+~").startswith(MODEL))
        taps = tuple(word for word in overrides if word.startswith(f"{BACKBONE}.{KEY}="))
        others = tuple(word for word in overrides if word not in (*values, *taps) and not word.startswith("model="))
        if model is None or any(word.startswith("model.name=") for word in values):
            return self._by_itself(overrides, keys, shared)
        group = (others, tuple(keys), bool(taps))
        if group not in self._shared:
            composed = compose([word for word in overrides if word not in taps], self._search, shared=shared)
            self._shared[group] = shared_parts(composed, keys, ["model", BACKBONE] if taps else ["model"])
        if (base := self._shared[group]) is None:
            return self._by_itself(overrides, keys, shared)
        content = self._pickled_model(model)
        set_model(base.cfg, content, values, taps)
        try:
            parts = resolved_alone(base.cfg, keys, base.dependent)
        except (OmegaConfBaseException, UsageError):
            return self._by_itself(overrides, keys, shared)
        check_parts(base.cfg, overrides, self._search, shared, parts)
        check_sizes(parts)
        canonical = identifying_parts(parts) | base.canonical
        config = {part: canonical[part] for part in (*IDENTITY, "depends_on") if part in canonical}
        set_this = partial(set_model, model=content, values=values, taps=taps)
        return base.cfg, VariedConfig(base.pickled, set_this, (), base.paths, config | {"seed": base.cfg.seed})

    def _pickled_model(self, model: DictConfig) -> bytes:
        if id(model) not in self._models:
            self._models[id(model)] = (model, pickle.dumps(model))  # the model is kept, and with it its id
        return self._models[id(model)][1]

    def _by_itself(
        self, overrides: Sequence[str], keys: Collection[str], shared: Collection[str]
    ) -> tuple[DictConfig, VariedConfig]:
        cfg = compose(overrides, self._search, shared=shared)
        return cfg, VariedConfig.of(cfg, keys)


def seeds_of(cfg: DictConfig) -> VariedConfig | None:
    """The other seeds of a configuration of one cell; None if a value that is checked depends on the seed."""
    if cfg.table is not None or cfg.get("depends_on"):
        return None
    varied = VariedConfig.of(cfg)
    shares = varied.canonical is not None and shared_values(varied.pickled, None, ("seed",)) is not None
    return varied if shares else None


def set_model(cfg: DictConfig, model: bytes, values: Iterable[str], taps: Sequence[str]) -> None:
    """Replace the model by that of a yaml, pickled, and set typed values of it. `taps`: a typed short convolution."""
    if cfg._get_flag(NO_COPY):
        cfg.model = pickle.loads(model)
    else:
        with flag_override(cfg, NO_COPY, True):
            cfg.model = pickle.loads(model)
    apply_values(cfg, values)
    if taps:
        with open_dict(cfg):
            cfg.backbone[KEY] = None
        apply_values(cfg, taps)
        apply_short_conv(cfg)


def shared_parts(cfg: DictConfig, keys: Sequence[str], dependent: list[str]) -> Shared | None:
    """What a configuration shares with others that differ only in their model.

    The model of `cfg` is removed. None if a part on which checks, folders or other cells depend follows the model, and
    with a short convolution that no override sets, which each model reads in its own way. `dependent`: parts that do.
    """
    if KEY in cfg.backbone:
        return None
    pickled = pickle.dumps(cfg)
    cfg._set_flag(NO_COPY, True)  # for all rows: a change of flags visits every value
    cfg.model = MISSING
    canonical: dict[str, Any] = {}
    for part in IDENTITY:
        if part in dependent:
            continue
        try:
            canonical |= identifying_parts(resolved_alone(cfg, keys, [part]))
        except (OmegaConfBaseException, UsageError):
            dependent.append(part)
    try:
        others = resolved_alone(cfg, keys, CHECKED)
        if cfg.get("depends_on"):
            canonical |= {"depends_on": resolved(cfg.depends_on)}
    except (OmegaConfBaseException, UsageError):
        return None
    return Shared(cfg, pickled, canonical, SimpleNamespace(**others["paths"]), tuple(dependent))


def changes(cell: Cell, search: Sequence[str] = ()) -> dict[str, list[Any]]:
    """{key: [recipe's value, value used]} where a cell differs from the configuration that its names compose to.

    The keys of a model outside `conf/model/` are left out, because there is no recipe to compare them with.
    """
    names = [f"{key}={getattr(cell, key)}" for key in ("task", "protocol", "budget")]
    is_named = cell.model not in OWN_CLASS and is_option(cell.model)
    has_recipe = is_named and any(existing(f"model/{cell.model}.yaml", folders()))
    if has_recipe:
        names.append(f"model={cell.model}")
    places, used = (tuple(search), tuple(folders())), flatten(cell.config)
    recipe = None
    while recipe is None:
        try:
            recipe = composed_settings(tuple(names), *places)
        except NoValueError as error:  # what the command must give is no change
            if error.key not in used:
                raise
            names += to_overrides({error.key: used[error.key]})
    chosen = {key: used[key] for key in AXES if used.get(key) not in (None, recipe.get(key))}
    if chosen:  # values that follow from these keys are not further changes
        default = {key: recipe.get(key) for key in chosen}
        recipe = composed_settings((*names, *to_overrides(chosen)), *places) | default
    differing = {key for key in recipe.keys() | used.keys() if recipe.get(key) != used.get(key)}
    if not has_recipe:
        differing = {key for key in differing if not key.startswith("model.")}
    return {key: [recipe.get(key), used.get(key)] for key in sorted(differing - set(NOT_A_CHANGE))}


@functools.lru_cache(maxsize=2048)
def composed_settings(
    overrides: tuple[str, ...], search: tuple[str, ...], places: tuple[str, ...]
) -> Mapping[str, Any]:
    """The flattened configuration of a cell: thousands of records share it. `places`: all folders that have options."""
    variants = composed_rows(tuple(word for word in overrides if not word.startswith("model=")), search, places)
    _, varied = variants.row(overrides, ("seed",))
    config = varied.cell({})[1].config
    return flatten({key: value for key, value in config.items() if key != "seed"})


@functools.lru_cache(maxsize=4)
def composed_rows(others: tuple[str, ...], search: tuple[str, ...], places: tuple[str, ...]) -> Variants:
    """What the models of a recipe share. Records of one recipe are neighbours, so a few recipes are kept."""
    return Variants(search)
