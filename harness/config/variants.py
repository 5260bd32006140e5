"""The same configuration with another seed, learning rate or model: what they share is composed and resolved once.

A plan of all tables has thousands of cells and two hundred groups of them. `Variants` composes commands and rows of
tables, and `VariedConfig` is one of their configurations. `changes` compares a cell with its recipe.
"""

import functools
import pickle
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from omegaconf import MISSING, DictConfig, OmegaConf, flag_override, open_dict
from omegaconf.errors import OmegaConfBaseException

from harness.config.cell import (
    AXES,
    IDENTITY,
    NOT_A_CHANGE,
    Cell,
    cell_of,
    flatten,
    identifying_config,
    identifying_parts,
    identity,
)
from harness.config.compose import (
    OWN_CLASS,
    apply_short_conv,
    apply_values,
    check_parts,
    compose,
    folders,
    is_choice,
    model_of,
)
from harness.config.option_files import existing, is_option
from harness.config.overrides import key_of, to_overrides
from harness.config.plain import NoValueError, resolved, resolved_alone, with_value
from harness.config.schema import SHORT_CONV, check_sizes
from harness.errors import UsageError

MODEL, BACKBONE = "model.", "backbone"
TAPS = f"{BACKBONE}.{SHORT_CONV}="
NO_COPY = "no_deepcopy_set_nodes"  # OmegaConf's flag: it sets a value itself, not a copy, which takes most of the time
CHECKED = ("paths", "trainer", "resources", "cluster", "checkpoint", "bench")  # parts that are checked once per group
SEED = re.compile(r"seed=(0|[1-9]\d{0,8})")  # a seed that needs no check; others are composed


@dataclass(frozen=True)
class VariedConfig:
    """A composed configuration with other values at some keys. A copy takes milliseconds, and a plan has thousands.

    `pickled`: the composed configuration, which its variants share. `model`, `values`: the pickled model that replaces
    that of the configuration, and typed values of it. `changes`: (key, value), such as another seed. `paths`: its
    folders, as attributes. `canonical`: the identity of the cell without `changes`; None if another value depends on
    one of the keys, so that each variant is resolved anew.
    """

    pickled: bytes
    model: bytes | None = None
    values: tuple[str, ...] = ()
    changes: tuple[tuple[str, Any], ...] = ()
    paths: SimpleNamespace = field(default_factory=SimpleNamespace, compare=False)
    canonical: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, cfg: DictConfig, keys: Collection[str] = ("seed",)) -> "VariedConfig":
        """A configuration whose variants differ at `keys`."""
        pickled = pickle.dumps(cfg)
        try:
            canonical = identifying_config(cfg, keys) | {"seed": cfg.seed}
            paths = resolved_alone(cfg, keys, CHECKED)["paths"]
            return cls(pickled, paths=SimpleNamespace(**paths), canonical=canonical)
        except (OmegaConfBaseException, UsageError):
            return cls(pickled)

    def cell(self, changes: Mapping[str, Any]) -> "tuple[DictConfig | VariedConfig, Cell]":
        """A variant and its cell. `changes`: at some of the keys, not mappings. Raises UsageError for a missing value.

        The variant is a configuration of its own where the values do not separate.
        """
        varied = replace(self, changes=tuple(changes.items()))
        if self.canonical is None:
            cfg = varied.copy()
            return cfg, cell_of(cfg)
        config = self.canonical
        for key, value in changes.items():
            config = with_value(config, key.split("."), value)
        return varied, Cell(identity(config), dict(config))

    def copy(self) -> DictConfig:
        cfg = pickle.loads(self.pickled)
        if self.model is not None:
            set_model(cfg, self.model, self.values)
        for key, value in self.changes:
            OmegaConf.update(cfg, key, value)
        return cfg


class Variants:
    """Composes commands and rows of tables. `search`: further config folders, as of `compose`."""

    def __init__(self, search: Iterable[str] = ()):
        self._search = tuple(map(str, search))
        self._seeds: dict[tuple[str, ...], VariedConfig | None] = {}
        # a configuration without its model, what its rows share, and the parts that depend on the model
        self._shared: dict[tuple[Any, ...], tuple[DictConfig, VariedConfig, Sequence[str]] | None] = {}
        self._models: dict[int, tuple[DictConfig, bytes]] = {}

    def seed(self, overrides: Sequence[str]) -> tuple[VariedConfig, Cell] | None:
        """A command's configuration and cell from those of other seeds. Raises as `compose` does.

        None for a command that must be composed by itself: its seed is not typed, it has several cells, or a value
        that is checked depends on the seed.
        """
        typed = [word for word in overrides if key_of(word) == "seed"]
        seed = SEED.fullmatch(typed[0]) if len(typed) == 1 else None
        if seed is None:
            return None
        others = tuple(word for word in overrides if word not in typed)
        if others not in self._seeds:
            cfg, varied = self.row(others, ("seed",))
            is_cell = cfg.table is None and not cfg.get("depends_on") and varied.canonical is not None
            self._seeds[others] = varied if is_cell else None
        varied = self._seeds[others]
        return None if varied is None else varied.cell({"seed": int(seed[1])})

    def row(
        self, overrides: Sequence[str], keys: Sequence[str], *, shared: Collection[str] = ()
    ) -> tuple[DictConfig, VariedConfig]:
        """The configuration of these overrides, which holds until the next call, and that of its variants at `keys`.

        `shared`: as of `compose`, whose errors this raises. A row is composed by itself if it has a part that depends
        on the model or on one of the keys.
        """
        model, _ = model_of([word for word in overrides if is_choice(word, self._search)], self._search)
        values = tuple(word for word in overrides if word.lstrip("+~").startswith(MODEL) or word.startswith(TAPS))
        others = tuple(word for word in overrides if word not in values and not word.startswith("model="))
        if model is None or any(word.startswith("model.name=") for word in values):
            return self._by_itself(overrides, keys, shared)
        dependent = ["model", BACKBONE] if any(word.startswith(TAPS) for word in values) else ["model"]
        group = (others, tuple(keys), len(dependent))
        if group not in self._shared:
            composed = [word for word in overrides if not word.startswith(TAPS)]
            self._shared[group] = shared_parts(compose(composed, self._search, shared=shared), keys, dependent)
        if (base := self._shared[group]) is None:
            return self._by_itself(overrides, keys, shared)
        cfg, varied, dependent = base
        varied = replace(varied, model=self._pickled(model), values=values)
        set_model(cfg, varied.model, values)
        try:
            parts = resolved_alone(cfg, keys, dependent)
        except (OmegaConfBaseException, UsageError):
            return self._by_itself(overrides, keys, shared)
        check_parts(cfg, overrides, self._search, shared, parts)
        check_sizes(parts)
        canonical = identifying_parts(parts) | varied.canonical
        config = {part: canonical[part] for part in (*IDENTITY, "depends_on") if part in canonical}
        return cfg, replace(varied, canonical=config | {"seed": cfg.seed})

    def _pickled(self, model: DictConfig) -> bytes:
        if id(model) not in self._models:
            self._models[id(model)] = (model, pickle.dumps(model))  # the model is kept, and with it its id
        return self._models[id(model)][1]

    def _by_itself(
        self, overrides: Sequence[str], keys: Collection[str], shared: Collection[str]
    ) -> tuple[DictConfig, VariedConfig]:
        cfg = compose(overrides, self._search, shared=shared)
        return cfg, VariedConfig.of(cfg, keys)


def set_model(cfg: DictConfig, model: bytes, values: Sequence[str]) -> None:
    """Replace the model by that of a yaml, pickled, and set typed values of it and a typed short convolution."""
    if cfg._get_flag(NO_COPY):
        cfg.model = pickle.loads(model)
    else:
        with flag_override(cfg, NO_COPY, True):
            cfg.model = pickle.loads(model)
    taps = [word for word in values if word.startswith(TAPS)]
    apply_values(cfg, [word for word in values if word not in taps])
    if taps:
        with open_dict(cfg):
            cfg.backbone[SHORT_CONV] = None
        apply_values(cfg, taps)
        apply_short_conv(cfg)


def shared_parts(
    cfg: DictConfig, keys: Sequence[str], dependent: list[str]
) -> tuple[DictConfig, VariedConfig, Sequence[str]] | None:
    """What a configuration shares with others that differ only in their model, and the parts that do not.

    The model of `cfg` is removed. None if a part on which checks, folders or other cells depend follows the model, and
    with a short convolution that no override sets, which each model reads in its own way. `dependent`: parts that do.
    """
    if SHORT_CONV in cfg.backbone:
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
    return cfg, VariedConfig(pickled, paths=SimpleNamespace(**others["paths"]), canonical=canonical), dependent


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
